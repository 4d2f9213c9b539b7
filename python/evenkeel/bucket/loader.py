"""The loader of a training job. `evenkeel bucket schedule` makes the schedules, torch's DataLoader loads the samples."""

import collections
import contextlib
import fcntl
import glob
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import tempfile

import numpy

from .place import MicroBatch, Stream, check, place
from .schedule import Schedule, ScheduleError


class Loader(Stream):
    """The micro-batches of one rank, epoch by epoch, as a plan has them.

    dataset   a map-style data set
    lengths   one whole number per sample, or the file from which the plan was made
    plan      plan file of `evenkeel bucket plan`
    rank, ranks   default: those of torch.distributed, else the variables RANK and WORLD_SIZE, else 0 of 1
    speeds    relative speeds of the ranks; default: the plan's, or the resume state's if there are as many ranks
    seed      seed of the order, together with the epoch
    labels    label tokens per sample, for label_weight
    command   the evenkeel binary; default: the variable EVENKEEL, else `evenkeel` on PATH
    cache     folder of schedules that the ranks of a machine share; default: one of the user's in the temporary folder
    others    arguments of torch's DataLoader: num_workers, collate_fn, pin_memory, ...

    Every rank gets at least one micro-batch in every step, and exactly one of them is the last. Iteration starts where the loader stands and ends
    with the epoch; the loader then stands at the next epoch. A micro-batch that was handed out counts as done; `state_dict` counts whole steps.
    The job may have another number of ranks than the plan or the resume state: the ranks share what is left of the epoch. Errors are
    ScheduleError."""

    def __init__(self, dataset, lengths, plan, *, rank=None, ranks=None, speeds=None, seed=1, labels=None, command=None, cache=None, **others):
        check(dataset, labels, others)
        self.rank, self.ranks = place(rank, ranks)
        self._speeds = self._check_speeds(speeds)
        self._begun = None  # the resume state, if self.epoch was begun by other ranks or with other speeds
        self._labels = labels
        self._mean = 1.0 if labels is None else float(numpy.mean(labels)) or 1.0  # label tokens of a sample
        self._source = Schedules(lengths, str(plan), len(dataset), seed, command, cache)
        self._now = self._ended = None  # the schedule of self.epoch, and of the epoch before
        self._start(dataset, others)
        self._schedule()  # reports errors at once

    def _schedule(self):
        if self._now is None or self._now[0] != self.epoch:
            self._now = self.epoch, Schedule(self._source.file(self.epoch, self.ranks, self._speeds, self._begun), self.rank, self.ranks)
        now = self._now[1]
        self.step = self.step or now.first
        if not now.first <= self.step <= now.end:
            raise ScheduleError(f"{now.path}: step {self.step}: the file holds {now.first} to {now.end}")
        return now

    def _micro(self):
        now = self._schedule()
        single = now.header.get("single", False)
        for step, batches in enumerate(now.steps(self.step), self.step):
            if not batches:
                yield MicroBatch([now.header["idle"]], step, True, 0.0, 0.0, None if self._labels is None else 0.0, idle=True, equal=single)
            for i, b in enumerate(batches):
                label = None if self._labels is None else b.weight * float(sum(self._labels[s] for s in b.samples)) / len(b.samples) / self._mean
                yield MicroBatch(b.samples, step, i == len(batches) - 1, b.weight, b.token_weight, label, equal=single)

    def __len__(self):
        """The number of this rank's micro-batches that are left in the epoch."""
        return sum(1 for _ in self._micro())

    def _go(self, epoch, step, begun=None):
        self._ended = self._now  # (its epoch, its schedule) or None
        self.epoch, self.step, self._begun, self._now = epoch, step, begun, None

    def _check_speeds(self, speeds):
        if speeds is None:
            return None
        speeds = [float(s) for s in speeds]
        if len(speeds) != self.ranks or not all(0 < s < math.inf for s in speeds):
            raise ScheduleError(f"speeds {speeds}: must be one above 0 for each of {self.ranks} ranks")
        return speeds

    def set_speeds(self, speeds):
        """Sets the relative speeds by which the ranks share what is left of the epoch. Leave the loop over the loader at a batch with `last`, call
        this on every rank at the same step with the same numbers, and begin another loop: it continues the epoch."""
        speeds = self._check_speeds(speeds)
        self._go(self.epoch, self.step, self.state_dict() if self.step else None)
        self._speeds = speeds
        self._queue = collections.deque()

    @property
    def steps(self):
        """The optimizer steps of the whole epoch. They are the same on every rank."""
        return self._schedule().end

    def state_dict(self):
        """The position after whole steps, the same on every rank. `evenkeel bucket schedule --resume` reads it as JSON."""
        if self._now is None and self.step == 0 and self._ended and self._ended[0] + 1 == self.epoch:  # the next epoch may need other ranks than the rest of this one
            h = self._ended[1].header
            return {"version": 1, **{k: h[k] for k in ("data", "plan", "ranks", "seed")}, "epoch": self.epoch, "step": 0}
        return self._schedule().state(self.step)

    def load_state_dict(self, state):
        """Goes to the position of a state, which may come from another number of ranks. Data, plan and seed must be the same."""
        try:
            epoch, step = state["epoch"], state["step"]
        except (KeyError, TypeError):
            raise ScheduleError("not a resume state: it lacks epoch or step") from None
        before = self.epoch, self.step, self._begun
        self._go(epoch, step, state if step else None)
        try:
            now = self._schedule().state(self.step)
            for k in ("version", "data", "seed", "plan"):
                if state.get(k) != now[k] and not (k == "plan" and step == 0):
                    raise ScheduleError(f"resume state: {k} is {state.get(k)!r}, the schedule's {now[k]!r}")
        except ScheduleError:
            self._go(*before)
            raise


def _write(path, numbers):
    present = numpy.flatnonzero(numpy.bincount(numbers))
    words = numpy.zeros(int(present[-1]) + 1, "S9")
    words[present] = [b"%d\n" % v for v in present.tolist()]
    with open(path, "wb") as f:
        f.write(words[numbers].tobytes().replace(b"\0", b""))


def _in_python(said):
    """Words the command's message in terms of Loader's arguments."""
    m = re.search(r"^evenkeel: (.*)", said, re.M | re.S)  # without the warnings before it
    said = m[1] if m else said
    return re.sub(r"--ranks (\d+)", r"ranks=\1", said.strip()).replace("--speeds", "speeds=[...]")


class Schedules:
    """The schedules of a plan. The command writes one when an epoch begins, once per machine: the first rank writes under a lock, and the others wait. The
    lock ends with the process."""

    def __init__(self, lengths, plan, size, seed, command, cache):
        self.seed = seed
        self.plan = os.path.abspath(plan)
        try:
            with open(plan, "rb") as f:
                value = json.load(f)
            known = value["version"] == 3
            self.sum, samples = value["checksum"], value["samples"]
        except OSError as e:
            raise ScheduleError(f"plan: {e}") from None
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise ScheduleError(f"{plan}: not a plan of version 3 of `evenkeel bucket plan`")
        if samples != size:
            raise ScheduleError(f"{plan}: made for {samples} samples; the data set has {size}")
        self.command = command or os.environ.get("EVENKEEL") or shutil.which("evenkeel")
        if not self.command:
            raise ScheduleError("evenkeel: not found: put it on PATH, or name it by the variable EVENKEEL or by command=")
        self.cache = str(cache or os.path.join(tempfile.gettempdir(), f"evenkeel-{os.getuid()}"))
        os.makedirs(self.cache, mode=0o700, exist_ok=True)
        self.lengths, self.reading = self._lengths(lengths, size)

    def _lengths(self, lengths, size):
        """The file of lengths, and how it is read if not as the plan says."""
        if isinstance(lengths, (str, os.PathLike)):
            return os.path.abspath(lengths), []
        if lengths is None:
            raise ScheduleError("lengths: give one per sample, or the file that the plan was made from")
        if len(lengths) != size:
            raise ScheduleError(f"lengths: {len(lengths)} of them; the data set has {size} samples")
        try:
            numbers = numpy.asarray(lengths, float)
        except (TypeError, ValueError):
            numbers = numpy.empty(0)
        if numbers.shape != (size,):
            raise ScheduleError("lengths: give one number per sample")
        if len(wrong := numpy.flatnonzero((numbers != numpy.floor(numbers)) | ~((numbers >= 1) & (numbers <= 1 << 24)))):
            raise ScheduleError(f"lengths: sample {wrong[0]} has {lengths[wrong[0]]!r}: give whole numbers from 1 in the plan's unit, or the file that the plan was made from")
        numbers = numbers.astype(numpy.int64)
        path = os.path.join(self.cache, f"lengths-{hashlib.blake2b(numbers.tobytes(), digest_size=12).hexdigest()}.txt")
        self._once(path, lambda out: _write(out, numbers))
        return path, ["--scale", "1", "--column", "1"]

    def _once(self, path, make):
        with open(path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                part = f"{path}.part{os.path.splitext(path)[1]}"
                try:
                    make(part)
                    os.replace(part, path)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(part)

    def file(self, epoch, ranks, speeds, begun):
        """The file of an epoch's schedule."""
        of = ["--speeds", ",".join(map(repr, speeds))] if speeds else ["--ranks", str(ranks)]
        state = json.dumps(begun, sort_keys=True)
        if begun is None:
            of += ["--seed", str(self.seed), "--epoch", str(epoch)]
        name = hashlib.blake2b(f"{of} {state} {self.lengths}".encode(), digest_size=8).hexdigest()
        path = os.path.join(self.cache, f"{self.sum}-{self.seed}-{epoch}-{name}.jsonl")
        self._once(path, lambda out: self._run(of, state, out))
        for old in glob.glob(os.path.join(glob.escape(self.cache), f"{self.sum}-{self.seed}-{epoch - 2}-*")):  # no rank is more than one epoch behind
            with contextlib.suppress(OSError):
                os.remove(old)
        return path

    def _run(self, of, state, out):
        args = [self.command, "bucket", "schedule", "--plan", self.plan, "--lengths", self.lengths, *self.reading, *of, "--out", out]
        if state != "null":
            with open(out + ".state", "w") as f:
                f.write(state)
            args += ["--resume", out + ".state"]
        try:
            done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except OSError as e:
            raise ScheduleError(f"{self.command}: {e}") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(out + ".state")
        if done.returncode:
            raise ScheduleError(f"{_in_python(done.stderr) or f'evenkeel bucket schedule: status {done.returncode}'} (plan {self.plan})")
