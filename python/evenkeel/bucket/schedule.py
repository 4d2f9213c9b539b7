"""Reads schedules of `evenkeel bucket schedule`, in the manner of torch.utils.data.Sampler.

    sampler = evenkeel.bucket.Sampler("epoch0.jsonl", rank=rank)
    for step in sampler.steps():
        for batch in step:                   # usually one; a faster rank may have several
            loss = batch.weight * mean_loss(batch.samples)

It needs the standard library alone; where torch is installed, Sampler is one of torch's.
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
Batch.__doc__ = """One batch of a rank. weight is the factor of its mean loss over samples with which DDP's mean over ranks is the mean
over all samples of the step; token_weight that of its mean loss over tokens (None in files that lack it)."""


# A line as evenkeel writes it: other ranks' need not be parsed.
_USUAL = re.compile(rb'\{"step":(\d+),"rank":(\d+),')


class ScheduleError(ValueError):
    """The file is no schedule, or damaged, or does not fit."""


class Sampler(_Sampler):
    """The batches of one rank in one epoch, as lists of sample positions.

    Iterating gives the batches from `step` on; len() is their number, counted when it is first asked for. The whole file
    is checked against its checksum at the beginning (about a second a gigabyte); its lines are read as they are needed,
    one in memory, from the step wanted. A fresh epoch is a fresh file."""

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
        self._batches = None
        self._plain = False

    def _value(self, line, at):
        try:
            value = json.loads(line)
        except ValueError as e:
            raise ScheduleError(f"{self.path}: not a schedule in JSON Lines, at byte {at}: {e}") from None
        if not isinstance(value, dict):
            raise ScheduleError(f"{self.path}: not an object, at byte {at}")
        return value

    def _checked(self, f, crc):
        """Where the last line begins, once all before it is found sound."""
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
        """Goes to the first line of the step wanted, or of one after it: steps never fall."""
        low, high = self._start, self._end  # the line begins in low..high
        while low < high:
            middle = (low + high) // 2
            f.seek(middle - 1)  # the line break before a line counts to it
            f.readline()
            begin = f.tell()
            if begin >= high or self._step(f.readline(), begin)[0] >= self.step:
                high = middle
            else:
                low = f.tell()
        f.seek(low)

    def _step(self, line, at):
        """Step, rank and, where it had to be parsed, all of a line."""
        if m := _USUAL.match(line):
            return int(m[1]), int(m[2]), None
        value = self._value(line, at)
        if not all(isinstance(value.get(k), int) for k in ("step", "rank")) or not isinstance(value.get("samples"), list):
            raise ScheduleError(f"{self.path}: not a batch, at byte {at}")
        return value["step"], value["rank"], value

    def _own(self):
        """This rank's lines from the step on: step, text, place, and value where it was parsed."""
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

    def _lines(self):
        for _, batch in self.places():
            yield batch

    def places(self):
        """Yields this rank's batches from the step on, each with the byte of the file where its line begins."""
        for step, line, at, value in self._own():
            value = value or self._value(line, at)
            yield at, Batch(step, value.get("weight", 1.0), value.get("token_weight") or None, value["samples"])

    def totals(self, counts):
        """Yields, for every step from `step` on, the sum of counts over the samples of all ranks."""
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
        self._plain = True
        for batch in self._lines():
            yield batch.samples

    def __len__(self):
        if self._batches is None:
            self._batches = sum(1 for _ in self._own())
        return self._batches

    def steps(self):
        """Yields, for every step, the list of this rank's batches: empty where it only takes part in the exchange. After
        a step's work `state_dict` says where to go on."""
        lines = self._lines()
        ahead = next(lines, None)
        for step in range(self.step, self.header["steps"]):
            batches = []
            while ahead is not None and ahead.step == step:
                batches.append(ahead)
                ahead = next(lines, None)
            yield batches
            self.step = step + 1

    def state_dict(self, step=None):
        """The resume state after `step` steps (default: those that steps() has finished): what `evenkeel bucket schedule
        --resume` reads as JSON. Who iterates over batches instead of steps() must say how many steps are done: a
        DataLoader draws batches ahead, so that the sampler cannot know."""
        if step is None and self._plain:
            raise ScheduleError("batches were drawn without their steps: give state_dict(step), or use evenkeel.bucket.Loader, which counts them")
        return self._state(self.step if step is None else step)

    def _state(self, step):
        h = self.header
        state = {"version": 1, "data": h.get("data", ""), "plan": h.get("plan", ""), "ranks": h["ranks"], "seed": h.get("seed", 1),
                 "epoch": h.get("epoch", 0), "step": step}
        if parts := [dict(p) for p in h.get("parts", ())]:
            parts[-1]["steps"] = step - sum(p["steps"] for p in parts[:-1])
            state["parts"] = parts
        return state

    def load_state_dict(self, state):
        """Goes on in the same epoch after the state's steps."""
        now = self._state(state["step"])
        for k in ("data", "plan", "ranks", "seed", "epoch", "parts"):
            if state.get(k) != now.get(k):
                raise ScheduleError(f"resume state: {k} is {state.get(k)!r}, the schedule's {now.get(k)!r}")
        if not self.header.get("from", 0) <= state["step"] <= self.header["steps"]:
            raise ScheduleError(f"resume state: step {state['step']} is not in the schedule")
        self.step, self._batches, self._plain = state["step"], None, False
