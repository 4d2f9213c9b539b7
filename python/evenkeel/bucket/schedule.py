"""Reads schedules of `evenkeel bucket schedule`.

    sampler = evenkeel.bucket.Sampler("epoch0.jsonl", rank=rank)
    for step in sampler.steps():
        for batch in step:                   # usually one; a faster rank may have several
            loss = batch.weight * mean_loss(batch.samples)

It needs only the standard library. If torch is installed, Sampler is a torch.utils.data.Sampler.
"""

import json
import os
import re
import zlib
from collections import namedtuple

try:
    from torch.utils.data import Sampler as _Sampler
except ImportError:
    _Sampler = object

Batch = namedtuple("Batch", "step weight token_weight samples")
Batch.__doc__ = """One batch of a rank. Multiply its mean loss over samples by weight, or its mean loss over tokens by token_weight: DDP's mean over
ranks is then the mean over the step. token_weight is None if the file has none."""

# The beginning of a line as evenkeel writes it. It saves parsing the lines of other ranks.
_USUAL = re.compile(rb'\{"step":(\d+),"rank":(\d+),')


class ScheduleError(ValueError):
    """The file is not a schedule, is damaged, or does not fit the job."""


class Sampler(_Sampler):
    """The batches of one rank in one epoch, from `step` on, as lists of sample positions.

    The constructor compares the whole file with its checksum, which takes about a second per gigabyte. Lines are read when they are needed,
    one at a time. Each epoch has a file of its own."""

    def __init__(self, path, rank, ranks=None, step=0):
        self.path, self.rank = str(path), rank
        with open(self.path, "rb") as f:
            head = f.readline()
            self.header = self._check(self._value(head, 0), ranks)
            self._start, self._end = f.tell(), self._checked(f, zlib.crc32(head))
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
        start = f.tell()
        size = f.seek(0, os.SEEK_END)
        f.seek(max(start, size - 4096))
        tail = f.read()
        last = tail[tail.rstrip(b"\n").rfind(b"\n") + 1:]
        if not tail.endswith(b"\n") or not last.startswith(b'{"end"'):
            raise ScheduleError(f"{self.path}: the file ends without its last line: it is truncated")
        end = size - len(last)
        want = self._value(last, end).get("crc32")
        if want is not None:
            f.seek(start)
            for at in range(start, end, 1 << 20):
                crc = zlib.crc32(f.read(min(1 << 20, end - at)), crc)
            if want != "%08x" % crc:
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

    def _seek(self, f):
        """Goes to the first line of self.step or of a later step, by binary search: the lines are ordered by step."""
        low, high = self._start, self._end  # the line begins between them
        while low < high:
            middle = (low + high) // 2
            f.seek(middle - 1)  # from the line break before a line
            f.readline()
            begin = f.tell()
            if begin >= high or self._step(f.readline(), begin)[0] >= self.step:
                high = middle
            else:
                low = f.tell()
        f.seek(low)

    def _step(self, line, at):
        """The step and the rank of a line, and its value if it had to be parsed."""
        if m := _USUAL.match(line):
            return int(m[1]), int(m[2]), None
        value = self._value(line, at)
        if not all(isinstance(value.get(k), int) for k in ("step", "rank")) or not isinstance(value.get("samples"), list):
            raise ScheduleError(f"{self.path}: not a batch, at byte {at}")
        return value["step"], value["rank"], value

    def _own(self):
        """This rank's lines from the step on: step, text, position in the file, and the value if it was parsed."""
        with open(self.path, "rb") as f:
            self._seek(f)
            at, before = f.tell(), self.step
            while at < self._end:
                line = f.readline()
                step, rank, value = self._step(line, at)
                if step < before:
                    raise ScheduleError(f"{self.path}: step {step} after {before}, at byte {at}")
                if rank == self.rank:
                    yield step, line, at, value
                at, before = at + len(line), step

    def places(self):
        """Yields this rank's batches from the step on, each with the position of its line in the file."""
        for step, line, at, value in self._own():
            value = value or self._value(line, at)
            yield at, Batch(step, value.get("weight", 1.0), value.get("token_weight") or None, value["samples"])

    def totals(self, counts):
        """Yields for every step from `step` on the sum of counts over the samples of all ranks."""
        with open(self.path, "rb") as f:
            self._seek(f)
            at, of, total = f.tell(), self.step, 0
            while at < self._end:
                line = f.readline()
                value = self._value(line, at)
                while of < value["step"]:
                    yield total
                    of, total = of + 1, 0
                total += sum(counts[i] for i in value["samples"])
                at += len(line)
        while of < self.header["steps"]:
            yield total
            of, total = of + 1, 0

    def __iter__(self):
        for _, batch in self.places():
            yield batch.samples

    def __len__(self):
        return sum(1 for _ in self._own())

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
