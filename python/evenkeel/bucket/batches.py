"""Global batches of a fixed number of random samples, divided among the ranks so that all finish together."""

import math

import numpy

from ..tuner.step_sampler import shuffled
from .partition import partition
from .place import MicroBatch, Stream, check, place
from .schedule import ScheduleError


class BatchLoader(Stream):
    """The micro-batches of one rank, epoch by epoch.

    dataset, lengths  a map-style data set, and the tokens of each sample
    global_batch      samples of a step, over all ranks, drawn at random; the last of an epoch may have fewer
    cost              seconds of a sample by its length, or in proportion to them: a function of an array of lengths; default: the length
    speeds            relative speeds of the ranks; default: equal
    counts            "equal": ranks have equally many micro-batches, as FSDP needs; "free": ranks wait for one another only at the end of a step, as under DDP
    micro_batches, memory, packed, fixed   the number of micro-batches of a rank in a step, more where memory needs them; the tokens that a micro-batch holds
                      on any rank, or one number per rank; whether samples lie end to end instead of being padded to the longest; and the cost of a
                      micro-batch beside its samples. As in partition()
    rank, ranks, seed, labels, others   as in Loader

    A step's samples follow from seed, epoch and step alone. So a job that resumes may have other ranks, speeds or micro-batches, and each sample still
    comes once an epoch. Between two steps, `speeds` may be changed: leave the loop at a batch with `last`, set the same numbers on every rank, and begin
    a loop again. Errors are ScheduleError."""

    def __init__(self, dataset, lengths, global_batch, *, cost=None, speeds=None, counts="equal", micro_batches=1, memory=None, packed=False, fixed=0.0,
                 rank=None, ranks=None, seed=1, labels=None, **others):
        check(dataset, labels, others)
        self.rank, self.ranks = place(rank, ranks)
        self.lengths = numpy.asarray(lengths)
        if self.lengths.shape != (len(dataset),) or not len(dataset):
            raise ScheduleError(f"lengths: {self.lengths.shape} of them; the data set has {len(dataset)} samples, and each needs one")
        self.costs = numpy.asarray(cost(self.lengths) if cost else self.lengths, float)
        self.global_batch, self.seed, self.labels = global_batch, seed, None if labels is None else numpy.asarray(labels, float)
        if not isinstance(global_batch, int) or global_batch < 1:
            raise ScheduleError(f"global_batch {global_batch!r}: give the samples of a step, a whole number from 1")
        self.steps = math.ceil(len(dataset) / global_batch)
        self.speeds = [1.0] * self.ranks if speeds is None else list(speeds)
        self._how = {"counts": counts, "micro_batches": micro_batches, "memory": memory, "padded": not packed, "fixed": fixed}
        self._try()
        self._start(dataset, others)

    def _try(self):
        """Reports at once what partition() refuses."""
        if len(self.speeds) != self.ranks:
            raise ScheduleError(f"speeds: {len(self.speeds)} of them for {self.ranks} ranks")
        if len(wrong := numpy.flatnonzero(~((self.costs >= 0) & (self.costs < math.inf) & (self.lengths >= 0)))):
            raise ScheduleError(f"sample {wrong[0]} has a length of {self.lengths[wrong[0]]} and a cost of {self.costs[wrong[0]]}: give numbers from 0")
        longest = int(numpy.argmax(self.lengths))
        try:
            partition([1.0], self.speeds, sizes=self.lengths[[longest]], **self._how)
        except ValueError as e:
            raise ScheduleError(str(e).replace("sample 0", f"sample {longest}")) from None

    def step_samples(self, step, epoch=None):
        """The samples of a step of an epoch, over all ranks."""
        order = shuffled(len(self.lengths), self.seed, self.epoch if epoch is None else epoch)
        return order[step * self.global_batch:(step + 1) * self.global_batch].numpy()

    def divide(self, samples):
        """The micro-batches of all ranks, of positions in the data set."""
        parts = partition(self.costs[samples], self.speeds, sizes=self.lengths[samples], **self._how)
        return [[samples[m].tolist() for m in own] or [[]] for own in parts]

    def _micro(self):
        order = shuffled(len(self.lengths), self.seed, self.epoch).numpy()
        means = self.lengths.mean() or 1.0, None if self.labels is None else self.labels.mean() or 1.0
        for step in range(self.step, self.steps):
            own = self.divide(order[step * self.global_batch:(step + 1) * self.global_batch])[self.rank]
            for i, m in enumerate(own):
                each = self.ranks / self.global_batch
                label = None if self.labels is None else each * float(self.labels[m].sum()) / means[1]
                yield MicroBatch(m or [int(numpy.argmin(self.lengths))], step, i == len(own) - 1, each * len(m), each * float(self.lengths[m].sum()) / means[0],
                                 label, idle=not m, equal=self._how["counts"] == "equal")

    def _go(self, epoch, step):
        self.epoch, self.step = epoch, step

    def state_dict(self):
        """The position after whole steps, for any number of ranks."""
        return {"version": 1, "samples": len(self.lengths), "global_batch": self.global_batch, "seed": self.seed, "epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state):
        now = self.state_dict()
        for k in ("version", "samples", "global_batch", "seed"):
            if not isinstance(state, dict) or state.get(k) != now[k]:
                raise ScheduleError(f"resume state: {k} is {state.get(k) if isinstance(state, dict) else state!r}; this loader's is {now[k]}: give the loader the same")
        if not 0 <= state["step"] <= self.steps:
            raise ScheduleError(f"resume state: step {state['step']} of {self.steps}")
        self._go(state["epoch"], state["step"])
