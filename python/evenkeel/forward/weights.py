"""The weights of a run. They are integers that are moved along directions and written to a model's parameters."""

import hashlib
import math

import torch

from . import philox
from .header import Refused, Tensor

_ROWS = 1 << 11  # rows of 128 entries that are moved at a time, to limit memory
_KEPT = 1 << 18  # entries of directions that are cached
_LIMIT = 1 << 30  # largest entry


class Part:
    """A trained parameter. Entries of a float32 parameter are its values. Those of another start at zero and are added to its first values. model: the
    one that has it; buffers: whether a loss must not change that model's buffers."""

    def __init__(self, name, parameter, model=None, buffers=False):
        self.key, self.parameter, self.model, self.buffers, self.shape = name, parameter, model, buffers, list(parameter.shape)
        self.base = None if parameter.dtype == torch.float32 else parameter.detach().clone()
        self.name = name if self.base is None else f"{name}.delta"

    def initial(self):
        """The first values, float64 on the CPU."""
        if self.base is not None:
            return torch.zeros(self.shape, dtype=torch.float64)
        return self.parameter.detach().cpu().double()

    def value(self, values):
        """The parameter with values (flat, float32)."""
        values = values.to(self.parameter.device).reshape(self.shape)
        return values if self.base is None else (self.base.float() + values).to(self.base.dtype)


class Weights:
    """The entries of all parts in one int32 tensor. Each part is padded to whole rows of 128, so that directions apply row by row."""

    def __init__(self, parts, tensors, key, directions):
        self.parts, self.tensors, self._key, self._count, self._cache = parts, tensors, key, directions, {}
        device = parts[0].parameter.device
        rows, which = [], []
        self._at, at = [], 0
        for i, t in enumerate(tensors):
            n = -(-t.size() // 128)
            rows.append(torch.arange(n, device=device))
            which.append(torch.full((n,), i, device=device, dtype=torch.int64))
            self._at.append(128 * at)
            at += n
        self._rows, self._which = torch.cat(rows), torch.cat(which)
        shifts = {t.shift for t in tensors}
        self._shift = shifts.pop() if len(shifts) == 1 else torch.tensor([t.shift for t in tensors], device=device)[self._which][:, None]
        self.entries = torch.zeros(at, 128, dtype=torch.int32, device=device)

    def of(self, i):
        """A flat view of the entries of tensor i."""
        return self.entries.reshape(-1)[self._at[i] : self._at[i] + self.tensors[i].size()]

    def start(self, initial):
        """Sets the first entries of the run and compares them with the header's hashes."""
        for i, t in enumerate(self.tensors):
            e = self.of(i)
            if initial == "file":
                v = fixed(self.parts[i].initial().reshape(-1), t.shift)
            else:
                q = philox.uniform(self._key, t.size(), i)
                v = near(round(t.mean * 2.0**24), t.shift) + near(round(t.std * math.sqrt(3) * 2.0**24) * q, t.shift + 16)
            e.copy_(v)
            if digest(e) != t.hash:
                raise Refused(f"tensor {i} {t.name!r}: hash {t.hash!r} in the run, {digest(e)!r} here; start from the same weights")

    def _along(self, d, step):
        """A direction, if the weights are few. All directions of a step are computed together and cached, because trials and moves need them."""
        if step not in self._cache:
            if len(self._cache) * self._count * self.entries.numel() >= _KEPT:
                self._cache.clear()
            all_ = torch.arange(self._count, device=self.entries.device)[:, None]
            self._cache[step] = philox.signs(self._key, self._rows[None], self._which[None], all_, step)
        return self._cache[step][d]

    def move(self, amounts, sign=1):
        """Adds amounts, (direction, step, amount) each, to the entries; with the sign -1 takes them back."""
        small = self._count * self.entries.numel() <= _KEPT
        for a in range(0, len(self._rows), len(self._rows) if small else _ROWS):
            cut = slice(None) if small else slice(a, a + _ROWS)
            for d, step, n in amounts:
                z = self._along(d, step) if small else philox.signs(self._key, self._rows[cut], self._which[cut], d, step)
                s = self._shift if isinstance(self._shift, int) else self._shift[cut]
                self.entries[cut] += z.int() * (sign * near(n, s))

    def values(self, trial=()):
        """The parameters with the weights plus the amounts of a trial, which is taken back exactly: (part, tensor) each."""
        self.move(trial)
        try:
            for i, (p, t) in enumerate(zip(self.parts, self.tensors)):
                yield p, p.value(self.of(i).float() * 2.0 ** (t.shift - 24))
        finally:
            self.move(trial, -1)

    @torch.no_grad()
    def write(self, trial=()):
        """Writes the weights, plus the amounts of a trial, to the parameters."""
        for p, v in self.values(trial):
            p.parameter.copy_(v)

    def check(self):
        """Raises OverflowError before entries leave the range of int32."""
        for i, t in enumerate(self.tensors):
            e = self.of(i)
            if len(e) and max(-int(e.min()), int(e.max())) > _LIMIT:
                raise OverflowError(f"tensor {t.name!r}: a weight became too large; lower the learning rate")

    def hash(self):
        """The hash of all entries."""
        h = hashlib.sha256()
        for i in range(len(self.tensors)):
            h.update(_bytes(self.of(i)))
        return h.digest()


def describe(parts, shifts=None):
    """Describes the parts with their first values for a header. shifts: those of a header; by default they leave room to grow."""
    out = []
    for i, p in enumerate(parts):
        v = p.initial()
        if not torch.isfinite(v).all():
            raise Refused(f"parameter {p.name!r} has a value that is not finite")
        m = float(v.abs().max()) if v.numel() else 0.0
        room = next((s for s in range(25) if 2.0 ** (s + 6) >= 4 * m), None)
        if room is None:
            raise Refused(f"parameter {p.name!r} has a value of {m}; at most {2.0**28:.0f} fits")
        shift = room if shifts is None or i >= len(shifts) else shifts[i]
        out.append(Tensor(p.name, p.shape, shift, 0, 0, digest(fixed(v.reshape(-1), shift).int())))
    return out


def fixed(values, shift):
    """Converts float64 values to entries, int64."""
    return near(torch.round(values * 2.0**24).long(), shift)


def near(n, shift):
    """n / 2^shift, rounded to the nearest integer, halves up. Both may be tensors."""
    return (n + ((1 << shift) >> 1)) >> shift


def _bytes(entries):
    return entries.detach().cpu().contiguous().numpy().astype("<i4").tobytes()


def digest(entries):
    """The hash of entries, in hexadecimal."""
    return hashlib.sha256(_bytes(entries)).hexdigest()
