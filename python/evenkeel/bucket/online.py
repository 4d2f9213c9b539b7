"""Loader(dataset, plan, online=True): batches of samples whose lengths are known only when they are processed.

It uses two threads. One loads samples through torch's DataLoader; the other exchanges lengths with the other ranks, round by round, and groups
samples into batches as grouping.py decides."""

import collections
import contextlib
import datetime
import itertools
import json
import queue
import threading
import zlib

import numpy
import torch.distributed as dist
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from .cost import Costs, read_plan
from .drawing import Drawing
from .grouping import Grouping, weights
from .place import Epochs, MicroBatch, check, place
from .pooled import Pool
from .record import Record
from .schedule import ScheduleError

_VERSION = 3  # of the messages
_FIRST = 60.0  # seconds; the least patience before the first step, while the windows fill


class OnlineLoader(Epochs):
    """The batches of one rank, epoch by epoch, as of Loader, but exactly one in every step.

    dataset   a map-style data set; dataset[i] processes sample i
    plan      plan file of `evenkeel bucket plan`; it may be made from the lengths of some of the samples
    rank, ranks   default: those of torch.distributed, which several ranks need, else 0 of 1
    window    samples that a rank holds or waits for. With pool it is the mean over ranks of samples that are in no batch yet; a rank also holds
              the samples of its batches that are ahead
    length    function that returns the length of a processed sample; default: len(sample["input_ids"]) of a dictionary, else len(sample)
    labels    function that counts the label tokens of a processed sample, for label_weight
    shard     positions that only this rank can load; default: all ranks draw from one queue
    pool      whether batches are made from the windows of all ranks together. A sample that goes to another rank is processed again there, so
              dataset[i] must return the same both times; another length or number of label tokens is an error
    record    file to which rank 0 writes the epoch as a schedule, with {epoch} in its name
    patience  seconds after which a rank whose loader stalls goes on with the samples that it holds; None: never
    ahead     batches made before they are asked for
    timeout   seconds of silence of a rank after which all ranks give up
    others    arguments of torch's DataLoader: num_workers, collate_fn, pin_memory, ...

    All ranks construct it together and iterate together. Errors are ScheduleError; an error on one rank is raised on all."""

    def __init__(self, dataset, plan, *, rank=None, ranks=None, seed=1, window=1024, length=None, labels=None, shard=None, pool=False, record=None,
                 patience=1.0, ahead=2, timeout=1800.0, **others):
        self.rank, self.ranks = place(rank, ranks)
        self.dataset, self.seed, self.window, self.pool = dataset, seed, window, bool(pool)
        self._length, self._labels, self._record, self._patience, self._ahead = length or _length, labels, record, patience, ahead
        self._collate, self._pin = others.pop("collate_fn", None) or default_collate, others.pop("pin_memory", False)
        self._others, self._state, self._run, self._plan, self._kind = others, None, None, {}, ""
        self._mean = None  # what a step has in the mean, as in weights(); the first step of the job estimates it
        fault = None
        try:
            self._prepare(str(plan), shard)
        except ScheduleError as e:
            fault = e
        self._group = self._meet(timeout)
        self._greet(fault)
        self._shards = self._gather_shards(shard)

    def _prepare(self, path, shard):
        check(self.dataset, None, self._others)
        self._plan = plan = read_plan(path)
        self._costs = Costs(plan, path)
        if plan["ranks"] != self.ranks:
            raise ScheduleError(f"{path}: made for {plan['ranks']} ranks, not {self.ranks}")
        if self.window < 1 or self._ahead < 1:
            raise ScheduleError(f"window {self.window}, ahead {self._ahead}: both must be at least 1")
        mean = plan["samples"] / max(1, plan["steps"] * plan["ranks"])
        if self.window < mean:
            raise ScheduleError(f"window {self.window}: smaller than one batch, which has {mean:.0f} samples on average; ten times as many make a good window")
        if shard is not None and len(shard) and not 0 <= min(shard) <= max(shard) < len(self.dataset):
            raise ScheduleError(f"shard: positions from {min(shard)} to {max(shard)}; the data set has {len(self.dataset)} samples")
        if self.pool and shard is not None:
            raise ScheduleError("pool: only one rank can load the samples of a shard; leave out pool= or shard=")
        self._kind = "shards" if shard is not None else "one pool" if self.pool else "one queue"

    # Messages between ranks.

    def _meet(self, timeout):
        if self.ranks == 1:
            return None
        if not (dist.is_available() and dist.is_initialized()):
            raise ScheduleError(f"online with {self.ranks} ranks needs torch.distributed: call init_process_group first")
        return dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=timeout))

    def _exchange(self, fault, **message):
        """Sends a message to all ranks and returns the messages of all. A fault of one rank is raised on all."""
        message["fault"] = None if fault is None else str(fault)
        heard = [message] * self.ranks
        if self._group is not None:
            try:
                dist.all_gather_object(heard, message, group=self._group)
            except RuntimeError as e:
                raise ScheduleError(f"exchange with the other ranks: {str(e).splitlines()[0]}: a rank ended or cannot be reached; see the other ranks' errors") from None
        if fault is not None:
            raise fault
        for r, h in enumerate(heard):
            if h["fault"] is not None:
                raise ScheduleError(f"rank {r}: {h['fault']}")
        return heard

    def _greet(self, fault, **more):
        """Compares what must be the same on all ranks."""
        # With a pool, all ranks hand out the same number of steps late.
        more = {**({"ahead": self._ahead} if self.pool else {}), **more}
        heard = self._exchange(fault, **{"message version": _VERSION}, plan=self._plan.get("checksum", ""), window=self.window, ranks=self.ranks, seed=self.seed,
                               samples=len(self.dataset) if hasattr(self.dataset, "__len__") else -1, data=self._kind, **more)
        for k in heard[0]:
            for r, h in enumerate(heard):
                if h.get(k) != heard[0][k]:
                    raise ScheduleError(f"{k}: {heard[0][k]!r} on rank 0, {h.get(k)!r} on rank {r}; it must be the same on every rank")

    def _gather_shards(self, shard):
        if shard is None:
            return None
        shards = [h["shard"] for h in self._exchange(None, shard=numpy.asarray(shard, numpy.int64))]
        whole = numpy.concatenate(shards)
        if len(numpy.unique(whole)) != len(whole):
            raise ScheduleError("shards: a position is in more than one shard, or twice in one")
        return shards

    # The epoch.

    def _queue(self):
        """The queues of positions to draw, and for each queue the number of positions from the state and of those drawn before."""
        random = numpy.random.RandomState([self.seed & 0xFFFFFFFF, self.seed >> 32 & 0xFFFFFFFF, self.epoch])
        state = self._stand()
        if self._shards is None:
            orders, fronts = [random.permutation(len(self.dataset))], [[i for p in state["pending"] for i in p]]
        else:
            orders, fronts = [s[random.permutation(len(s))] for s in self._shards], state["pending"]
        queues = [numpy.concatenate([numpy.asarray(f, numpy.int64), o[n:]]) for f, o, n in zip(fronts, orders, state["drawn"])]
        return (queues[0] if self._shards is None else queues), [(len(f), n) for f, n in zip(fronts, state["drawn"])]

    def __iter__(self):
        if self._run is not None and self._run.thread.is_alive():
            raise ScheduleError("another iteration over the loader is running; end it first")
        run = self._run = _Run(self)
        try:
            while True:
                item = run.out.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    break
                batch, state = item
                self.step, self._state, self._mean = batch.step + 1, state, state["mean"]
                yield batch
        finally:
            run.close()
        self._go(self.epoch + 1, 0)

    def _go(self, epoch, step, state=None):
        self.epoch, self.step, self._state = epoch, step, state

    def state_dict(self):
        """The position after whole steps, the same on every rank. It lists the samples that were drawn and not trained on."""
        return {"version": 1, "online": True, "samples": len(self.dataset), "plan": self._plan["checksum"], "ranks": self.ranks, "seed": self.seed,
                "epoch": self.epoch, "step": self.step, **self._stand()}

    def _stand(self):
        return self._state or {"drawn": [0] * (1 if self._shards is None else self.ranks), "pending": [[]] * self.ranks, "mean": self._mean}

    def load_state_dict(self, state):
        """Goes to the position of a state. With one queue, it may come from another number of ranks and their plan."""
        if not isinstance(state, dict) or not state.get("online"):
            raise ScheduleError("not a resume state of an online loader")
        now = self.state_dict()
        same = ["version", "samples", "seed"] + (["ranks", "plan"] if self._shards is not None or state.get("ranks") == self.ranks else [])
        for k in same:
            if state.get(k) != now[k]:
                raise ScheduleError(f"resume state: {k} is {state.get(k)!r}, the loader's {now[k]!r}")
        try:
            epoch, step, drawn, pending, mean = state["epoch"], state["step"], list(state["drawn"]), [list(p) for p in state["pending"]], state["mean"]
        except (KeyError, TypeError):
            raise ScheduleError("resume state: epoch, step, drawn, pending or mean is missing") from None
        if len(drawn) != len(now["drawn"]):
            raise ScheduleError("resume state: one of the two has shards, the other one queue")
        self._mean = mean
        self._go(epoch, step, {"drawn": drawn, "pending": pending, "mean": mean})


class _Run:
    """One iteration: its threads and their data."""

    def __init__(self, loader):
        self.loader = loader
        self.out = queue.Queue(loader._ahead)
        self.stop = threading.Event()
        self.digest = 0
        self.drawing = Drawing(loader, self.stop)
        self.thread = threading.Thread(target=self._group, name="evenkeel-grouping", daemon=True)
        self.thread.start()

    def close(self):
        """Ends the threads. The other ranks get an error, unless they are at the end too."""
        self.stop.set()
        self.drawing.end()
        with contextlib.suppress(queue.Empty):
            while True:
                self.out.get_nowait()
        self.thread.join(timeout=10)
        self.drawing.close()

    def _group(self):
        try:
            with contextlib.ExitStack() as files:
                self._rounds(files)
        except BaseException as e:
            self._hand(e)
        finally:
            self.drawing.end()

    def _hand(self, item):
        while not self.stop.is_set():
            with contextlib.suppress(queue.Full):
                return self.out.put(item, timeout=.1)

    def _rounds(self, files):
        me, plan, fault, record = self.loader, self.loader._plan, None, None
        order, before = me._queue()
        grouping = (Pool if me.pool else Grouping)(me._costs, plan["speeds"], me.window, order, plan["max_samples"], plan["max_tokens"],
                                                   me.seed + me.epoch, me._mean)
        begin = me.step
        state = json.dumps([me._stand(), me.epoch, me.step])
        me._greet(None, epoch=me.epoch, step=me.step, state=zlib.crc32(state.encode()))
        enough = max(64, me.window // 8)  # samples that are worth a message
        decided, deep = collections.deque(), me._ahead if me.pool else 0  # steps to hand out; how many may wait for samples
        for number in itertools.count():
            try:
                if fault is None and number == 0 and me.rank == 0 and me._record:
                    record = Record(me._record, me, begin)
                    files.callback(record.file.close)
                if fault is None and not self.stop.is_set():
                    self.drawing.draw(grouping.draw()[me.rank])
                    self.drawing.wait(max(_FIRST, me._patience) if me._patience is not None and not grouping.steps else me._patience, enough)
            except Exception as e:
                fault = e
            told = list(self.drawing.ready)
            self.drawing.ready.clear()
            heard = me._exchange(fault, round=number, batches=self.digest, told=told, stop=self.stop.is_set())
            own = heard[me.rank]
            for r, h in enumerate(heard):
                if (h["round"], h["batches"]) != (own["round"], own["batches"]):
                    raise ScheduleError(f"rank {r} makes other batches than rank {me.rank} in round {number}; use the same program on similar machines")
            stopped = [r for r, h in enumerate(heard) if h["stop"]]
            if me.rank in stopped:
                return
            if stopped:
                raise ScheduleError(f"rank {stopped[0]} ended its iteration before the epoch's end")
            for r, h in enumerate(heard):
                grouping.hear(r, h["told"])
            if grouping.finished() and not decided:
                if record:
                    record.end(grouping)
                return self._hand(None)
            parts = None if grouping.finished() else grouping.step()
            try:
                if parts is not None:
                    step, factors = begin + grouping.steps - 1, weights(parts, grouping.mean)
                    self.digest = zlib.crc32(repr([p.positions for p in parts]).encode(), self.digest)
                    if record:
                        record.add(step, parts, factors)
                    decided.append((step, parts[me.rank], factors[me.rank], self._state(grouping, before)))
                    if me.pool:
                        self._swap(parts)
                # All ranks come here in the same round. A rank that fails reports it in the next round.
                if len(decided) > deep or decided and grouping.finished():
                    self._emit(*decided.popleft())
            except Exception as e:
                fault = e

    def _swap(self, parts):
        """Asks for samples of this rank's batch that other ranks hold, and drops samples that other ranks take."""
        own, held = parts[self.loader.rank], self.drawing.samples
        self.drawing.drop(i for r, p in enumerate(parts) if r != self.loader.rank for i in p.positions)
        asked = [(i, told) for i, *told in zip(own.positions, own.lengths, own.counts) if i not in held]
        self.drawing.draw([i for i, _ in asked], [told for _, told in asked])

    def _emit(self, step, part, factors, state):
        me = self.loader
        self.drawing.fetch(part.positions)
        if self.stop.is_set():
            return
        positions, samples = self.drawing.take(part.positions)
        batch = MicroBatch(positions, step, True, factors[0], factors[1], factors[2] if me._labels else None, not part.positions, equal=True)
        batch.data = me._collate(samples)
        if me._pin:
            batch.data = pin_memory(batch.data)
        self._hand((batch, state))

    @staticmethod
    def _state(grouping, before):
        """The resume state: how much of each queue was drawn, and which of these positions are in no step yet."""
        pending, drawn = grouping.pending(), []
        for q, (front, base) in enumerate(before):
            taken = grouping.taken[q]
            drawn.append(base + max(0, taken - front))
            if taken < front:
                pending[q] += [int(i) for i in grouping.queues[q][taken:front]]
        return {"drawn": drawn, "pending": pending, "mean": grouping.mean}


def _length(sample):
    if isinstance(sample, dict):
        if "input_ids" not in sample:
            raise ScheduleError("a sample is a dictionary without input_ids; give length=, a function of a sample")
        sample = sample["input_ids"]
    return len(sample)
