"""The weights of a run. They are integers that are moved along directions and written to a model's parameters."""

import hashlib
import math

import torch

from . import philox
from .header import Refused, Tensor

_ROWS = 1 << 11  # rows of 128 entries that are moved at a time, to limit memory
_DRAWN = 1 << 15  # counters whose words are drawn at a time, for the same reason
_RING = 1 << 12  # signs of a direction, at most
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
        self.parts, self.tensors, self._key, self._cache, self._back = parts, tensors, key, {}, []
        device = parts[0].parameter.device
        rows = [-(-t.size() // 128) for t in tensors]
        eights = [-(-n // 8) for n in rows]
        self._at = [128 * sum(rows[:i]) for i in range(len(rows))]

        def counters(counts, tensors, direction):
            number = torch.cat([torch.arange(n, device=device) for n in counts])
            tensor = torch.tensor(tensors, device=device).repeat_interleave(torch.tensor(counts, device=device))
            return torch.stack((number, tensor, torch.full_like(number, direction)))

        self._rows = counters(rows, range(len(rows)), 0)
        self._length = 128
        while self._length < min(_RING, sum(t.size() for t in tensors)):
            self._length *= 2
        rings = [counters([self._length // 128], [2**32 - 1], d) for d in range(directions)]
        self._few = [torch.cat(rings, 1), counters(eights, range(len(rows)), 1)]  # what a step needs besides
        first = torch.tensor([8 * sum(eights[:i]) for i in range(len(rows))], device=device)
        self._number = first[self._rows[1]] + self._rows[0]  # of a row among those of all eights
        self._shifts = sorted({t.shift for t in tensors})
        ring = torch.tensor([self._shifts.index(t.shift) * (self._length + 128) for t in tensors], device=device)
        self._ring = ring[self._rows[1]]  # where the ring of a row's shift begins
        self.entries = torch.zeros(sum(rows), 128, dtype=torch.int32, device=device)

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

    def _of_step(self, step):
        """A step's rings, where the windows of rows begin on them, and the words of the rows' signs, for both sweeps of the step."""
        if step not in self._cache:
            if len(self._cache) > 1:
                self._cache.clear()
            need = torch.cat([*self._few, self._rows], 1)
            words = [philox.words(*c, step, self._key) for c in need.split(_DRAWN, 1)]
            rings, begins, rows = torch.cat(words, 1).split([n.shape[1] for n in (*self._few, self._rows)], 1)
            begin = philox.numbers(begins).flatten()[self._number] % self._length + self._ring
            self._cache[step] = philox.signs(rings).view(-1, self._length), begin, rows
        return self._cache[step]

    def _add(self, moves):
        """Adds moves, (direction, step, amount, sign) each, to the entries, those of a step in one sweep. With the sign -1 an amount is taken back."""
        for step in sorted({m[1] for m in moves}):
            rings, begin, rows = self._of_step(step)
            here = [m for m in moves if m[1] == step]
            along = rings[[m[0] for m in here]]
            sums = [(along * torch.tensor([[m[3] * near(m[2], s)] for m in here], device=rings.device)).sum(0).int() for s in self._shifts]
            windows = torch.cat([x for ring in sums for x in (ring, ring[:128])]).unfold(0, 128, 1).contiguous()  # for index_select
            for a in range(0, len(begin), _ROWS):
                cut = slice(a, a + _ROWS)
                self.entries[cut].addcmul_(philox.signs(rows[:, cut]), windows.index_select(0, begin[cut]))

    def move(self, amounts):
        """Adds amounts, (direction, step, amount) each, to the entries, and takes the trial back, if there is one."""
        self._add([(*a, 1) for a in amounts] + self._back)
        self._back = []

    def attempt(self, trial):
        """Adds the amounts of a trial, until the next move or trial takes it back exactly."""
        self._add([(*a, 1) for a in trial] + self._back)
        self._back = [(*a, -1) for a in trial]

    def values(self, trial=()):
        """The parameters with the weights plus the amounts of a trial: (part, tensor) each."""
        self.attempt(trial)
        for i, p in enumerate(self.parts):
            yield p, self._value(i)

    def _value(self, i):
        return self.parts[i].value(self.of(i).float() * 2.0 ** (self.tensors[i].shift - 24))

    @torch.no_grad()
    def write(self, trial=()):
        """Writes the weights, plus the amounts of a trial, to the parameters."""
        self.attempt(trial)
        for i, (p, t) in enumerate(zip(self.parts, self.tensors)):
            if p.base is None:  # in place, without copies of it
                p.parameter.copy_(self.of(i).view(p.shape)).mul_(2.0 ** (t.shift - 24))
            else:
                p.parameter.copy_(self._value(i))

    def check(self):
        """Raises OverflowError before entries leave the range of int32."""
        for i, t in enumerate(self.tensors):
            e = self.of(i)
            if len(e) and max(-int(e.min()), int(e.max())) > _LIMIT:
                raise OverflowError(f"tensor {t.name!r}: a weight became too large; lower the learning rate")

    def hash(self):
        """The hash of all entries."""
        self.move([])
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
