"""Random numbers: directions and the order of examples, by Philox 4x32-10 (Salmon and others, SC 2011). Integer arithmetic in torch gives the same
bits on CPU and GPU. docs/reference/forward-protocol.md says which bit belongs to which entry."""

import functools

import torch

_MASK = 0xFFFFFFFF


def words(c0, c1, c2, c3, key):
    """The four words of each counter, along a first dimension of 4, as int64. Counters are int64 tensors or ints below 2^32."""
    device = next((c.device for c in (c0, c1, c2, c3) if isinstance(c, torch.Tensor)), None)
    c = torch.broadcast_tensors(*(torch.as_tensor(c, dtype=torch.int64, device=device) for c in (c0, c1, c2, c3)))
    even, odd = torch.stack((c[0], c[2])), torch.stack((c[1], c[3]))
    wide = (2,) + (1,) * c[0].dim()
    factors, keys, k0, k1 = _constants(even.device).reshape(wide), [], key & _MASK, key >> 32
    for r in range(10):
        keys.append(((k0 + r * 0x9E3779B9) & _MASK, (k1 + r * 0xBB67AE85) & _MASK))
    keys = torch.tensor(keys, device=even.device).reshape((10,) + wide)
    for r in range(10):
        # int64 has the low 64 bits of the unsigned product. The mask removes the sign bits of the shift.
        p = even * factors
        even, odd = ((p >> 32) & _MASK).flip(0) ^ odd ^ keys[r], (p & _MASK).flip(0)
    return torch.stack((even[0], odd[0], even[1], odd[1]))


@functools.lru_cache(maxsize=8)
def _constants(device):
    return torch.tensor([0xD2511F53, 0xCD9E8D57], device=device)


def signs(words):
    """The signs of words, as int32 rows of 128: 1 for a bit of 0, the lowest first, else -1."""
    w = words.movedim(0, -1).to(torch.int32)  # the same 32 bits
    z = w[..., None] << torch.arange(31, -1, -1, dtype=torch.int32, device=w.device)
    return z.bitwise_right_shift_(31).bitwise_or_(1).flatten(-2)


def numbers(words):
    """The 16-bit numbers of words, along a last dimension of 8."""
    w = words.movedim(0, -1)
    return torch.stack((w & 0xFFFF, w >> 16), -1).flatten(-2)


def uniform(key, count, tensor):
    """The numbers of a tensor's first values, from -65535 to 65535."""
    return 2 * numbers(words(torch.arange(-(-count // 8)), tensor, 0, 2**32 - 1, key)).flatten()[:count] - 0xFFFF


def examples(key, count, positions):
    """The examples at positions of the endless sequence of epochs. Each epoch has every example once. positions: int64, on the CPU."""
    h = max(1, -(-(count - 1).bit_length() // 2))
    low = (1 << h) - 1
    epoch, v = (positions // count) & _MASK, positions % count
    out = torch.empty_like(v)
    todo = torch.arange(len(v))
    while len(todo):  # walk the cycle until the number is in range
        left, right = v >> h, v & low
        for r in range(4):
            left, right = right, left ^ (words(right, r, epoch, 0xFFFFFFFE, key)[0] & low)
        v = left << h | right
        inside = v < count
        out[todo[inside]] = v[inside]
        todo, v, epoch = todo[~inside], v[~inside], epoch[~inside]
    return out
