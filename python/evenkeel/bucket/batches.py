"""Global batches of a fixed number of random samples, divided among the ranks so that all finish together."""

import math

import numpy
from torch.utils.data import DataLoader, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from ..tuner.step_sampler import shuffled
from .late import Exchange, tokens
from .partition import partition
from .place import MicroBatch, Stream, check, place
from .schedule import ScheduleError


class BatchLoader(Stream):
    """The micro-batches of one rank, epoch by epoch.

    dataset, lengths  a map-style data set, and the tokens of each sample; None: they become known when dataset[i] has processed the sample
    global_batch      samples of a step, over all ranks, drawn at random; the last of an epoch may have fewer
    cost              seconds of a sample by its length, or in proportion to them: a function of an array of lengths; default: the length
    speeds            relative speeds of the ranks; default: equal
    counts            "equal": ranks have equally many micro-batches, as FSDP needs; "free": ranks wait for one another only at the end of a step, as under DDP
    micro_batches, memory, packed, fixed   the number of micro-batches of a rank in a step, more where memory needs them; the tokens that a micro-batch holds
                      on any rank, or one number per rank; whether samples lie end to end instead of being padded to the longest; and the cost of a
                      micro-batch beside its samples. As in partition()
    exchange          cost of hearing of all of a sample, by its length as cost is: cuts long samples over several ranks, as context parallelism does. A
                      micro-batch says over which; all of them get the whole sample
    labels            label tokens per sample, for label_weight
    length            without lengths: the tokens of a processed sample, by default those of its input_ids, or len(); labels is then such a function, too
    rank, ranks       default: those of torch.distributed, else the variables RANK and WORLD_SIZE, else 0 of 1
    others            arguments of torch's DataLoader: num_workers, collate_fn, pin_memory, ...

    A step's samples follow from seed, epoch and step alone. So a job that resumes may have other ranks, speeds or micro-batches, and each sample still
    comes once an epoch. `steps` is an epoch's number of them; there is no len(), for which all would have to be divided. Between two steps, `speeds`
    may be changed: leave the loop at a batch with `last`, set the same numbers on every rank, and begin a loop again. Without lengths, each rank
    processes an equal part of a step's samples and sends them to the rank that trains on them, so all ranks iterate together. Errors are
    ScheduleError."""

    def __init__(self, dataset, lengths, global_batch, *, cost=None, speeds=None, counts="equal", micro_batches=1, memory=None, packed=False, fixed=0.0,
                 exchange=None, rank=None, ranks=None, seed=1, labels=None, length=tokens, **others):
        check(dataset, None if lengths is None else labels, others)
        self.rank, self.ranks = place(rank, ranks)
        self.dataset, self.size, self.global_batch, self.seed, self.labels = dataset, len(dataset), global_batch, seed, labels
        self.lengths = self._means = self._exchange = None
        if not isinstance(global_batch, int) or global_batch < 1:
            raise ScheduleError(f"global_batch {global_batch!r}: give the samples of a step, a whole number from 1")
        self.steps = math.ceil(self.size / global_batch)
        self.speeds = [1.0] * self.ranks if speeds is None else list(speeds)
        self._cost, self._heard, self._length, self._others = cost or (lambda n: n), exchange, length, others
        self._how = {"counts": counts, "micro_batches": micro_batches, "memory": memory, "padded": not packed, "fixed": fixed}
        if len(self.speeds) != self.ranks:
            raise ScheduleError(f"speeds: {len(self.speeds)} of them for {self.ranks} ranks")
        if lengths is None:
            if exchange:
                raise ScheduleError("exchange: samples are cut over ranks by lengths that are known before: give lengths")
            self._divide([0], numpy.zeros(1))  # reports at once what partition() refuses
            self._exchange = Exchange(self.rank, self.ranks)
            return
        self.lengths = numpy.asarray(lengths)
        if self.lengths.shape != (self.size,) or not self.size:
            raise ScheduleError(f"lengths: {self.lengths.shape} of them; the data set has {self.size} samples, and each needs one")
        self.labels = None if labels is None else numpy.asarray(labels, float)
        self._means = self._mean(self.lengths, self.labels)
        costs = numpy.asarray(self._cost(self.lengths), float)
        if len(wrong := numpy.flatnonzero(~((costs >= 0) & (costs < math.inf) & (self.lengths >= 0)))):
            raise ScheduleError(f"sample {wrong[0]} has a length of {self.lengths[wrong[0]]} and a cost of {costs[wrong[0]]}: give numbers from 0")
        longest = int(numpy.argmax(self.lengths))
        self._divide([longest], self.lengths[[longest]])
        least, limits = self.lengths.min(), numpy.broadcast_to(math.inf if memory is None else memory, self.ranks)
        if (limits < least).any():
            r = int(numpy.argmin(limits))
            raise ScheduleError(f"memory: rank {r} holds {limits[r]:g}, less than the shortest sample, {least:g}, which it takes where it has no work: raise it, "
                                "or leave the rank out")
        self._start(dataset, others)

    def step_samples(self, step, epoch=None):
        """The samples of a step of an epoch, over all ranks."""
        order = shuffled(self.size, self.seed, self.epoch if epoch is None else epoch)
        return order[step * self.global_batch:(step + 1) * self.global_batch].numpy()

    def _divide(self, samples, lengths):
        """The micro-batches of all ranks, as places among samples."""
        try:
            parts = partition(self._cost(lengths), self.speeds, sizes=lengths, exchange=self._heard and self._heard(lengths), **self._how)
        except ValueError as e:
            said = str(e)
            for k, i in enumerate(samples):
                said = said.replace(f"sample {k} ", f"sample  {i} ")
            raise ScheduleError(said.replace("sample  ", "sample ")) from None
        return [own or [[]] for own in parts]

    @staticmethod
    def _mean(lengths, labels):
        """The tokens and label tokens of a sample."""
        return [float(lengths.mean()) or 1.0, 1.0 if labels is None else float(labels.mean()) or 1.0]

    def _batches(self, step, parts, samples, lengths, labels, idle):
        """This rank's micro-batches of a step; idle: the sample of one without work."""
        each, own = self.ranks / self.global_batch, parts[self.rank]
        for i, m in enumerate(own):
            ranks = [r for r, p in enumerate(parts) if m in p] if self._heard and m else []
            label = None if labels is None else each * float(labels[m].sum()) / self._means[1]
            yield MicroBatch([int(samples[k]) for k in m] or [idle], step, i == len(own) - 1, each * len(m), each * float(lengths[m].sum()) / self._means[0],
                             label, idle=not m, equal=self._how["counts"] == "equal", ranks=ranks if len(ranks) > 1 else None)

    def _micro(self):
        order, idle = shuffled(self.size, self.seed, self.epoch).numpy(), int(numpy.argmin(self.lengths))
        for step in range(self.step, self.steps):
            samples = order[step * self.global_batch:(step + 1) * self.global_batch]
            lengths = self.lengths[samples]
            yield from self._batches(step, self._divide(samples, lengths), samples, lengths, None if self.labels is None else self.labels[samples], idle)

    def __iter__(self):
        return super().__iter__() if self._exchange is None else self._late()

    def _late(self):
        others = dict(self._others)
        collate, pin = others.pop("collate_fn", None) or default_collate, others.pop("pin_memory", False)
        order = shuffled(self.size, self.seed, self.epoch).tolist()
        rows = [order[step * self.global_batch:(step + 1) * self.global_batch] for step in range(self.step, self.steps)]
        processed, spare = iter(DataLoader(self.dataset, batch_sampler=[r[self.rank::self.ranks] for r in rows], collate_fn=_same, **others)), (math.inf, order[0], None)
        for step, samples in enumerate(rows, self.step):
            got = []

            def process():
                got.extend(next(processed))
                return [(self._length(s), self.labels(s) if self.labels else 0) for s in got]

            told = self._exchange.gather(process)
            told = numpy.array([told[k % self.ranks][k // self.ranks] for k in range(len(samples))], float)
            lengths, labels = told[:, 0], told[:, 1] if self.labels else None
            self._means = self._means or self._mean(lengths, labels)
            parts = self._divide(samples, lengths)
            own = self._exchange.swap({self.rank + k * self.ranks: s for k, s in enumerate(got)}, parts)
            spare = min([spare, *zip(lengths[self.rank::self.ranks], samples[self.rank::self.ranks], got)], key=lambda s: s[0])  # the shortest processed here
            for m, b in zip(parts[self.rank], self._batches(step, parts, samples, lengths, labels, spare[1])):
                if b.idle and spare[2] is None:
                    spare = *spare[:2], self.dataset[spare[1]]
                b.data = collate([own[k] for k in m] or [spare[2]])
                if pin:
                    b.data = pin_memory(b.data)
                self.step = b.step + b.last
                yield b
        self._go(self.epoch + 1, 0)

    def _go(self, epoch, step):
        self.epoch, self.step = epoch, step

    def state_dict(self):
        """The position after whole steps, for any number of ranks."""
        state = {"version": 1, "samples": self.size, "global_batch": self.global_batch, "seed": self.seed, "epoch": self.epoch, "step": self.step}
        return state if self._exchange is None else {**state, "means": self._means}

    def load_state_dict(self, state):
        now = self.state_dict()
        for k in ("version", "samples", "global_batch", "seed"):
            if not isinstance(state, dict) or state.get(k) != now[k]:
                raise ScheduleError(f"resume state: {k} is {state.get(k) if isinstance(state, dict) else state!r}; this loader's is {now[k]}: give the loader the same")
        if not 0 <= state["step"] <= self.steps:
            raise ScheduleError(f"resume state: step {state['step']} of {self.steps}")
        if self._exchange:
            self._means = state.get("means")  # so that all epochs weigh alike
        self._go(state["epoch"], state["step"])


def _same(samples):
    return samples
