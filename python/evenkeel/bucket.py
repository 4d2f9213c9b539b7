"""Reads schedules of `evenkeel bucket schedule`, in the manner of torch.utils.data.Sampler.

    sampler = evenkeel.bucket.Sampler("epoch0.jsonl", rank=rank)
    loader = DataLoader(data, batch_sampler=sampler)
    for step in sampler.steps():             # or step by step, with weights
        for batch in step:                   # usually one; a faster rank may have several
            loss = batch.weight * mean_loss(batch.samples)

It needs the standard library alone; where torch is installed, Sampler is one of torch's.
"""

import json
import zlib
from collections import namedtuple

try:
    from torch.utils.data import Sampler as _Sampler
except ImportError:
    _Sampler = object

Batch = namedtuple("Batch", "step weight samples")
Batch.__doc__ = """One batch of a rank. weight is the factor of its mean loss with which DDP's mean over ranks is the mean
over all samples of the step."""


class ScheduleError(ValueError):
    """The file is no schedule, or damaged, or does not fit."""


class Sampler(_Sampler):
    """The batches of one rank in one epoch, as lists of sample positions.

    Iterating gives the batches from `step` on; len() is their number. Reading holds one line in memory; the first pass
    checks the whole file. A fresh epoch is a fresh file."""

    def __init__(self, path, rank, ranks=None, step=0):
        self.path, self.rank = str(path), rank
        self._batches = 0
        crc, done, before = 0, False, -1
        with open(self.path, "rb") as f:
            for n, line in enumerate(f, 1):
                if done:
                    raise ScheduleError(f"{self.path}:{n}: text after the last line")
                try:
                    value = json.loads(line)
                except ValueError as e:
                    raise ScheduleError(f"{self.path}:{n}: {e}") from None
                if n == 1:
                    self.header = self._check(value, ranks)
                    if not self.header.get("from", 0) <= step <= self.header["steps"]:
                        raise ScheduleError(f"step {step}: the file holds {self.header.get('from', 0)} to {self.header['steps']}")
                elif "end" in value:
                    if value.get("crc32", "%08x" % crc) != "%08x" % crc:
                        raise ScheduleError(f"{self.path}:{n}: checksum: the file was changed or damaged")
                    done = True
                    continue
                elif not isinstance(value.get("step"), int) or value["step"] < before or not isinstance(value.get("samples"), list):
                    raise ScheduleError(f"{self.path}:{n}: not a batch, or out of order")
                else:
                    before = value["step"]
                crc = zlib.crc32(line, crc)
        if not done:
            raise ScheduleError(f"{self.path}: the file ends without its last line: it was cut")
        self.step = step or self.header.get("from", 0)
        self._batches = sum(1 for _ in self._lines())

    def _check(self, header, ranks):
        if not isinstance(header, dict) or header.get("format") != "evenkeel-schedule" or header.get("version") != 1:
            raise ScheduleError(f"{self.path}:1: not a schedule of version 1")
        if ranks is not None and ranks != header["ranks"]:
            raise ScheduleError(f"{self.path}: made for {header['ranks']} ranks, not {ranks}")
        if not 0 <= self.rank < header["ranks"]:
            raise ScheduleError(f"rank {self.rank} of {header['ranks']}")
        return header

    def _lines(self):
        with open(self.path, "rb") as f:
            next(f)
            for line in f:
                value = json.loads(line)
                if "end" not in value and value["rank"] == self.rank and value["step"] >= self.step:
                    yield Batch(value["step"], value["weight"], value["samples"])

    def __iter__(self):
        for batch in self._lines():
            yield batch.samples

    def __len__(self):
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
        --resume` reads as JSON."""
        h = self.header
        return {"version": 1, "data": h["data"], "plan": h["plan"], "ranks": h["ranks"], "seed": h["seed"],
                "epoch": h["epoch"], "step": self.step if step is None else step}

    def load_state_dict(self, state):
        """Goes on in the same epoch after the state's steps."""
        for k in ("data", "plan", "ranks", "seed", "epoch"):
            if state.get(k) != self.header[k]:
                raise ScheduleError(f"resume state: {k} is {state.get(k)!r}, the schedule's {self.header[k]!r}")
        if not self.header.get("from", 0) <= state["step"] <= self.header["steps"]:
            raise ScheduleError(f"resume state: step {state['step']} is not in the schedule")
        self.step = state["step"]
        self._batches = sum(1 for _ in self._lines())
