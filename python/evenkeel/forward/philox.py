"""Directions: Philox 4x32-10 (Salmon and others, SC 2011) in torch's whole numbers, so that CPU and GPU give the same bits, and the order of
examples that follows from it. The protocol's page says which entry is which bit."""

import functools
import hashlib
import statistics
import struct

import torch

_MASK = 0xFFFFFFFF
_QUANTILES = "1ea009ce409dac97d6bd609266910f809c5fb912f78e16bd89145b08174d6fc5"


def words(c0, c1, c2, c3, key):
    """The four words of each counter, in a first dimension of 4. Counters are int64 tensors or plain ints below 2^32; words are int64."""
    c = torch.broadcast_tensors(*_same_device(c0, c1, c2, c3))
    even, odd = torch.stack((c[0], c[2])), torch.stack((c[1], c[3]))
    wide = (2,) + (1,) * c[0].dim()
    factors, keys, k0, k1 = _constants(even.device).reshape(wide), [], key & _MASK, key >> 32
    for r in range(10):
        keys.append(((k0 + r * 0x9E3779B9) & _MASK, (k1 + r * 0xBB67AE85) & _MASK))
    keys = torch.tensor(keys, device=even.device).reshape((10,) + wide)
    for r in range(10):
        # int64 keeps the low 64 bits of the product, which are those of the unsigned one; the shift's sign bits are masked away.
        p = even * factors
        even, odd = ((p >> 32) & _MASK).flip(0) ^ odd ^ keys[r], (p & _MASK).flip(0)
    return torch.stack((even[0], odd[0], even[1], odd[1]))


def _same_device(*counters):
    device = next((c.device for c in counters if isinstance(c, torch.Tensor)), None)
    return [torch.as_tensor(c, dtype=torch.int64, device=device) for c in counters]


@functools.lru_cache(maxsize=8)
def _constants(device):
    return torch.tensor([0xD2511F53, 0xCD9E8D57], device=device)


@functools.lru_cache(maxsize=1)
def quantiles():
    """The table of normal numbers, in units of 2^-12."""
    normal = statistics.NormalDist()
    half = [round(normal.inv_cdf((v + 0.5) / 65536) * 4096) for v in range(32768)]
    table = half + [-q for q in reversed(half)]
    if hashlib.sha256(struct.pack("<65536h", *table)).hexdigest() != _QUANTILES:
        raise RuntimeError("this machine's table of normal numbers is not the protocol's")
    return torch.tensor(table)


def signs(key, blocks, tensors, d, step):
    """Directions as rows of 128 entries, int16: row r has the entries from 128 * blocks[r] on of tensor tensors[r], along direction d of a step."""
    w = words(blocks, tensors, d, step, key).movedim(0, -1)
    w = ((w ^ 1 << 31) - (1 << 31)).int()  # the same 32 bits, in half of the memory
    z = w[..., None] >> torch.arange(32, dtype=torch.int32, device=w.device)
    return z.bitwise_and_(1).mul_(-2).add_(1).to(torch.int16).flatten(-2)


def normals(key, count, tensor):
    """The normal numbers from which the first entries of a tensor are drawn, in units of 2^-12."""
    w = words(torch.arange(-(-count // 8)), tensor, 0, 2**32 - 1, key).t()
    return quantiles()[torch.stack((w & 0xFFFF, w >> 16), -1)].flatten()[:count]


def examples(key, count, positions):
    """The examples at positions (int64, on the CPU) of the endless sequence of epochs: each example once an epoch."""
    h = max(1, -(-(count - 1).bit_length() // 2))
    low = (1 << h) - 1
    epoch, v = (positions // count) & _MASK, positions % count
    out = torch.empty_like(v)
    todo = torch.arange(len(v))
    while len(todo):  # walk until it is in range
        left, right = v >> h, v & low
        for r in range(4):
            left, right = right, left ^ (words(right, r, epoch, 0xFFFFFFFE, key)[0] & low)
        v = left << h | right
        inside = v < count
        out[todo[inside]] = v[inside]
        todo, v, epoch = todo[~inside], v[~inside], epoch[~inside]
    return out
