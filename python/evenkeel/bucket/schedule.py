"""Reads schedules of `evenkeel bucket schedule`. It needs only the standard library. If torch is installed, Sampler is a torch.utils.data.Sampler."""

import json
import re
import zlib
from collections import namedtuple

try:
    from torch.utils.data import Sampler as _Sampler
except ImportError:
    _Sampler = object

Batch = namedtuple("Batch", "step weight token_weight samples")
Batch.__doc__ = """One batch of a rank. Multiply its mean loss over samples by weight, or its mean loss over tokens by token_weight: with DDP's mean over
ranks, every sample or token of the epoch then counts the same. token_weight is None if the file has none."""

# The beginning of a line as evenkeel writes it. It saves parsing the lines of other ranks.
_USUAL = re.compile(rb'\{"step":(\d+),"rank":(\d+),')


class ScheduleError(ValueError):
    """The file is not a schedule, is damaged, or does not fit the job."""


class Sampler(_Sampler):
    """The batches of one rank in one epoch, from `step` on, as lists of sample positions.

    The constructor compares the whole file with its checksum, which takes a few seconds per gigabyte. Lines are read when they are needed,
    one at a time. Each epoch has a file of its own."""

    def __init__(self, path, rank, ranks=None, step=0):
        self.path, self.rank = str(path), rank
        with open(self.path, "rb") as f:
            head = f.readline()
            self.header = self._check(self._value(head, 0), ranks)
            self._start = f.tell()
            self._end = self._checked(f, zlib.crc32(head))
        first = self.header.get("from", 0)
        if step and not first <= step <= self.header["steps"]:
            raise ScheduleError(f"step {step}: the file holds {first} to {self.header['steps']}")
        self.step = step or first

    def _value(self, line, at):
        try:
            value = json.loads(line)
        except ValueError as e:
            raise ScheduleError(f"{self.path}: not a schedule in JSON Lines, at byte {at}: {e}") from None
        if not isinstance(value, dict):
            raise ScheduleError(f"{self.path}: not an object, at byte {at}")
        return value

    def _checked(self, f, crc):
        """Compares the file with its checksum. Returns where the last line begins."""
        end, last = f.tell(), b""
        for line in f:
            end, crc, last = end + len(last), zlib.crc32(last, crc), line
        if not last.endswith(b"\n") or not last.startswith(b'{"end"'):
            raise ScheduleError(f"{self.path}: the file ends without its last line: it is truncated")
        if self._value(last, end).get("crc32") not in (None, "%08x" % crc):
            raise ScheduleError(f"{self.path}: checksum: the file was changed or damaged")
        return end

    def _check(self, header, ranks):
        if header.get("format") != "evenkeel-schedule" or header.get("version") != 1:
            raise ScheduleError(f"{self.path}: not a schedule of version 1")
        if not all(isinstance(header.get(k), int) for k in ("ranks", "steps")):
            raise ScheduleError(f"{self.path}: the header lacks ranks or steps")
        if ranks is not None and ranks != header["ranks"]:
            raise ScheduleError(f"{self.path}: made for {header['ranks']} ranks, not {ranks}")
        if not 0 <= self.rank < header["ranks"]:
            raise ScheduleError(f"rank {self.rank} of {header['ranks']}")
        return header

    def _step(self, line, at):
        """The step and the rank of a line, and its value if it had to be parsed."""
        if m := _USUAL.match(line):
            return int(m[1]), int(m[2]), None
        value = self._value(line, at)
        if not all(isinstance(value.get(k), int) for k in ("step", "rank")) or not isinstance(value.get("samples"), list):
            raise ScheduleError(f"{self.path}: not a batch, at byte {at}")
        return value["step"], value["rank"], value

    def _lines(self):
        """The lines from the step on: position in the file, text, step, rank, and the value if it was parsed."""
        begin, before = self.step, 0
        with open(self.path, "rb") as f:
            f.seek(at := self._start)
            while at < self._end:
                line = f.readline()
                step, rank, value = self._step(line, at)
                if step < before:
                    raise ScheduleError(f"{self.path}: step {step} after {before}, at byte {at}")
                if step >= begin:
                    yield at, line, step, rank, value
                at, before = at + len(line), step

    def places(self):
        """Yields this rank's batches from the step on, each with the position of its line in the file."""
        for at, line, step, rank, value in self._lines():
            if rank == self.rank:
                value = value or self._value(line, at)
                yield at, Batch(step, value.get("weight", 1.0), value.get("token_weight") or None, value["samples"])

    def __iter__(self):
        for _, batch in self.places():
            yield batch.samples

    def __len__(self):
        return sum(rank == self.rank for _, _, _, rank, _ in self._lines())

    def steps(self):
        """Yields for every step the list of this rank's batches. The list is empty if the rank has no work in the step."""
        batches = (batch for _, batch in self.places())
        ahead = next(batches, None)
        for step in range(self.step, self.header["steps"]):
            own = []
            while ahead is not None and ahead.step == step:
                own.append(ahead)
                ahead = next(batches, None)
            yield own
            self.step = step + 1

    def state_dict(self):
        """The resume state before `step`, as `evenkeel bucket schedule --resume` reads it in JSON. steps() advances `step`; iteration does not."""
        h = self.header
        state = {"version": 1, "data": h.get("data", ""), "plan": h.get("plan", ""), "ranks": h["ranks"], "seed": h.get("seed", 1),
                 "epoch": h.get("epoch", 0), "step": self.step}
        if parts := [dict(p) for p in h.get("parts", ())]:
            parts[-1]["steps"] = self.step - sum(p["steps"] for p in parts[:-1])
            state["parts"] = parts
        return state
