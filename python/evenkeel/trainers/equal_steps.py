"""Equal micro-steps of unequal sizes: for ranks that meet in every micro-step (FSDP, HSDP, DeepSpeed), and for trainers that have a loop of their own.

    tuner = evenkeel.EqualSteps(model)                                      # after fully_shard, accelerator.prepare, ...
    loader = tuner.loader(data, global_batch=256, micro_steps=4)            # and arguments of DataLoader
    for x, y in tuner.steps(loader):
        (criterion(model(x), y) * tuner.scale).backward()                   # mean over its samples
        if tuner.synchronised:                                              # the last micro-step of a round
            optimizer.step(); optimizer.zero_grad()

It knows no library. The loss is scaled so that the mean over ranks, which all of them take, is the mean over all samples. A rank's time is that of its
forward passes without waits (forward_time.py). Once a round the ranks exchange what they did, in a gloo group of their own, which neither waits for
the device nor holds up the step: it is read a round later. Sizes come from the service, or from the ranks themselves (tuner/local.py).
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ..tuner import client, registration, round_vector
from ..tuner.by_cost import checked, mark
from ..tuner.errors import Usage
from ..tuner.input_time import InputTime
from ..tuner.local import LocalClient
from ..tuner.pauses import Pauses
from ..tuner.round_exchange import Past, report
from ..tuner.round_vector import Did
from .equal_order import EqualOrder
from .forward_time import ForwardTime, Stopwatch


class Loader(DataLoader):
    """A DataLoader that tells the tuner how long the loop waits for it. Its position is the tuner's."""

    def __init__(self, tuner: "EqualSteps", *args: Any, **kwargs: Any):
        self.tuner = tuner
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Any:
        self.tuner.begin(self.num_workers)
        return timed(super().__iter__(), self.tuner)

    def set_epoch(self, epoch: int) -> None:
        """Trainers call it before each epoch."""
        self.tuner.order.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return self.tuner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tuner.load_state_dict(state)


def timed(source: Iterator[Any], tuner: Any) -> Iterator[Any]:
    """The batches of a loader, for each of which tuner learns since when the loop has waited."""
    while True:
        since = tuner.clock()
        try:
            batch = next(source)
        except StopIteration:
            return
        tuner.loaded(since)
        yield batch


def _alone(model: torch.nn.Module) -> None:
    if any(hook.__module__ == "evenkeel.tuner.gradient_hook" for hook, _ in getattr(model, "_comm_hooks", ())):
        raise Usage("the model belongs to an evenkeel.Tuner, which weights its gradients: leave one of the two out")


class EqualSteps:
    """One rank's side. model may come later (watch). divided: the trainer divides each loss by the number of micro-steps. local: without EVENKEEL_URL the
    ranks find their sizes by themselves; else they stay equal."""

    _timer: type[Stopwatch] = ForwardTime

    def __init__(self, model: torch.nn.Module | None = None, divided: bool = False, local: bool = True, clock: Callable[[], float] = time.perf_counter):
        self.clock, self._divided, self._local = clock, divided, local
        self._model: torch.nn.Module | None = None
        self._time: Stopwatch | None = None
        self._group: Any = None
        self._client: client.Client | LocalClient | None = None
        self._pending: tuple[torch.Tensor, Any, Past | None] | None = None  # what the ranks exchange, its work, the round that its times are of
        self._sizes: list[int] = []  # of this rank's micro-steps in the round
        self._step = 0  # of the round
        self._fitted = 0  # the largest micro-step that has ended
        self._asked = False  # the loop read synchronised in the last micro-step
        self._weights: tuple[list[float], float] | None = None  # of this rank's micro-steps, and of all ranks together; None: samples
        self._input = InputTime(0)
        self._loaded, self._waited = 0, 0.0  # micro-batches handed out beyond those done; seconds for them in this round
        self._began: float | None = None
        self._pauses = Pauses()
        if model is not None:
            self.watch(model)

    def loader(self, data: Any, global_batch: int, micro_steps: int = 1, micro_batch: int = 0, seed: int = 0, shuffle: bool = True, drop_last: bool = False, costs: Any = None, **arguments: Any) -> Loader:
        """The loader of a map-style dataset. Every round takes global_batch samples of all ranks, in micro_steps micro-steps of each rank. micro_batch is
        the largest that fits on this rank (0: any). costs, one per sample, are what a sample takes, where that depends on its length: then the ranks
        share costs instead of samples, and micro-batches have unequal numbers. arguments are DataLoader's. All but micro_batch are the same on all ranks."""
        taken = [k for k in ("batch_size", "sampler", "batch_sampler") if k in arguments]
        if taken:
            raise Usage(f"{taken[0]}: the tuner decides which samples a rank takes; give global_batch and micro_steps instead")
        if self._group is not None:
            raise Usage("loader() after training began: make it once, and iterate the same one in every epoch; for other data make another tuner")
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise Usage(f"{type(data).__name__}: the tuner draws the samples; give a map-style dataset")
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (global_batch, micro_steps, micro_batch))
        if not whole or micro_steps < 1 or global_batch < 1 or micro_batch < 0 or len(data) < (global_batch if drop_last else 1):
            raise Usage(f"global_batch {global_batch!r}, micro_steps {micro_steps!r}, micro_batch {micro_batch!r}, {len(data)} samples: give whole numbers from 1, and data for a round")
        costs = checked(costs, len(data), bool(micro_batch))
        self._same = {"length": len(data), "global_batch": global_batch, "micro_steps": micro_steps, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
        self._most = micro_batch
        self.order = self._order(len(data), global_batch, micro_steps, seed, shuffle, drop_last, costs)
        return Loader(self, data, batch_sampler=self.order, **arguments)

    def _order(self, *arguments: Any) -> EqualOrder:
        return EqualOrder(*arguments)

    def watch(self, model: torch.nn.Module) -> None:
        """Takes the times of this model, which is wrapped already."""
        if hasattr(model, "is_gradient_accumulation_boundary") and not self._divided:
            raise Usage("DeepSpeed's engine counts and divides by itself: use evenkeel.trainers.deepspeed.Tune(engine)")
        if self._model is not model:
            _alone(model)
            if self._time is not None:
                self._time.close()
            self._model, self._time = model, self._timer(model, self.clock)

    def begin(self, workers: int = 0) -> None:
        """Before an epoch, or the rest of one, on all ranks; the first time it registers the job. workers are the loader's."""
        if self._group is None:
            self._register()
        self._learn()
        self._step, self._loaded, self._waited, self._began, self._input = 0, 0, 0.0, None, InputTime(workers)
        self._weights, self._sizes = None, self.order.sizes(self.order.round)

    def _register(self) -> None:
        if not dist.is_initialized():
            raise Usage("torch.distributed is not initialised: start the job with torchrun, and iterate the loader after init_process_group")
        o, ranks = self.order, dist.get_world_size()
        if self._model is not None:
            _alone(self._model)
        self._group = dist.new_group(backend="gloo")
        device = next(self._model.parameters()).device if self._model is not None else torch.device("cpu")
        found = self._found({**self._same, "deadline": "", "costs": mark(o.costs)}, device)
        self._client, self._serving, self._news = found.client, found.serving, client.News(found.client, found.first)
        self._alike = isinstance(found.client, LocalClient)
        o.begin(dist.get_rank(), found.first or client.uniform(o.global_batch, found.most), found.most)
        self._vector = round_vector.RoundVector(o.rank, ranks)
        before = sys.excepthook

        def explain(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            before(kind, error, trace)
            if issubclass(kind, torch.OutOfMemoryError) and self._time is not None and self._time.active:
                fits = self._fitted if 0 < self._fitted < self.size else max(self.size // 2, 1)
                print(f"evenkeel: rank {o.rank} has no memory for a micro-step of {self.size} samples: give loader(micro_batch={fits}), or tuned(Trainer, largest={fits}), on this rank", file=sys.stderr)

        sys.excepthook = explain

    def _found(self, same: dict[str, Any], device: torch.device) -> registration.Found:
        o, ranks = self.order, dist.get_world_size()
        if o.global_batch < ranks * o.micro_steps:
            raise Usage(f"global_batch {o.global_batch} is less than a sample for each of {o.micro_steps} micro-steps of {ranks} ranks: raise it, or lower micro_steps")
        return registration.register(same, {"least": 1, "most": self._most, "sizes": []}, device, self._group, self._local, o.micro_steps)

    # A micro-step.

    def steps(self, loader: Loader, weight: Callable[[Any], float] | None = None) -> Iterator[Any]:
        """The micro-steps of an epoch, or of what is left of it. weight(batch) is what the loss of a micro-step is a mean over, tokens for example: then the ranks
        draw a round before it begins, and the gradient is the mean over those of all."""
        if getattr(loader, "tuner", None) is not self:
            raise Usage("steps() takes the loader of tuner.loader() itself: no other wraps it, skips in it or deals its batches out")
        for batch in loader if weight is None else self._weighed(loader, weight):
            self.start()
            try:
                yield batch
            except GeneratorExit:  # the loop ends here: has the optimizer stepped?
                if self._over():
                    self.stop()
                raise
            self.stop()

    def _weighed(self, loader: Loader, weight: Callable[[Any], float]) -> Iterator[Any]:
        source = iter(loader)
        while batches := list(itertools.islice(source, len(self._sizes))):
            own = [float(weight(b)) if n else 0.0 for b, n in zip(batches, self._sizes)]
            if any(not 0 <= w < float("inf") for w in own):
                raise Usage(f"weight() of micro-batches is {own}: give numbers from 0")
            total = torch.tensor([sum(own)], dtype=torch.float64)
            self.add_up(total)
            self._weights = own, float(total)
            yield from batches

    def start(self) -> None:
        """A micro-step begins. Trainers whose loop is their own call it, and stop after its backward pass."""
        if self._group is None or self._time is None:
            raise Usage("iterate the loader of tuner.loader(), and give the tuner the model")
        if self._began is None:
            self._began = self.clock()
        self._asked, self._time.active = False, True

    def stop(self) -> None:
        if self._time is not None:
            self._time.active = False
        if not self._asked:
            self._pauses.ended(self.clock())
        self._fitted = max(self._fitted, self.size)
        self._step, self._loaded, self._asked = self._step + 1, self._loaded - 1, False
        if self._step == len(self._sizes):
            self._end()

    @property
    def size(self) -> int:
        """The samples of this micro-step that count. 0: there is one, and it does not."""
        return self._sizes[self._step]

    @property
    def scale(self) -> float:
        """What to multiply the mean loss of this micro-step by."""
        counts = self.order.counts(self.order.round)
        own, total = (self.size, sum(counts)) if self._weights is None else (self._weights[0][self._step], self._weights[1])
        return own * len(counts) * (self.order.micro_steps if self._divided else 1) / total if total else 0.0

    @property
    def last(self) -> bool:
        return self._step == len(self._sizes) - 1

    @property
    def synchronised(self) -> bool:
        """Whether this is the last micro-step of the round. Read it after backward."""
        self._asked = self.last
        self._pauses.ended(self.clock())
        return self._asked

    def _over(self) -> bool:
        """Within a micro-step: whether the optimizer has stepped, as far as the loop has said."""
        return self._asked

    def expect(self, what: str, after: int = 0, seconds: float = 0.0) -> None:
        """This rank pauses between the present round and the next, or so many rounds later; see Tuner.expect. It is heard two rounds after it was said, and
        if the loader draws ahead as many rounds more. Other ranks take more samples than usual only up to their micro_batch. Shard groups take no
        notice."""
        self._pauses.expect(what, self.order.round, after, seconds)

    def add_up(self, numbers: torch.Tensor) -> None:
        """Sums numbers over all ranks, on processors."""
        dist.all_reduce(numbers, group=self._group)

    # A round.

    def loaded(self, since: float) -> None:
        """The loader has handed out a batch, for which the loop waited since then."""
        now, o = self.clock(), self.order
        if self._began is None:
            self._began = since
            self._pauses.began(o.round, since)
        number, at = o.round, self._step + self._loaded
        while at >= len(sizes := o.sizes(number)):
            number, at = number + 1, at - len(sizes)
        self.handed = sizes[at]  # the samples of that batch that count
        self._input.handed(now, now - since, self.handed)
        self._loaded += 1
        self._waited += now - since

    def _end(self) -> None:
        assert self._time is not None and self._began is not None
        o, now = self.order, self.clock()
        did = Did(samples=o.worked(o.round), input=self._waited)
        did.micro_steps = min(len(self._sizes), did.samples)  # the service knows none without samples
        seconds, past = self._time.read(Past(o.round, o.plan(o.round), now - self._began, [did]))
        o.round, self._step, self._waited, self._began = o.round + 1, 0, 0.0, None
        if self._serving:
            self._exchange(seconds, past)
        self._sizes = o.sizes(o.round)

    def _exchange(self, seconds: float, past: Past | None) -> None:
        o = self.order
        self._learn()
        did = past.did[0] if past else Did()
        did.seconds, did.drawn = seconds, o.hold()
        did.pause, did.pause_before = self._pauses.next(o.round)
        did.input = self._input.beyond(did.samples, did.input, seconds)
        v = self._vector.pack(did, None if self._alike else self._news.take()).clone()
        self._pending = v, dist.all_reduce(v, group=self._group, async_op=True), past

    def _learn(self) -> None:
        """Reads what the ranks exchanged a round ago."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        v, work, past = pending
        work.wait()
        ranks, plan, _ = round_vector.unpack(v.tolist(), self._vector.ranks)
        did = self._nodes(ranks)
        if any(d.pause_before for d in did):
            self.order.delay(did)  # by numbers that all ranks have
        if past is not None and self._client is not None:
            past.did = did
            longest = max(d.seconds for d in did)
            if not self._alike and longest > past.wait:  # backward passes take less than is reckoned
                for d in did:
                    d.seconds *= past.wait / longest
            self._client.offer(report(past), past.plan)
        if self._alike:
            plan = self._news.take()
        if plan is not None:
            self.order.adopt(plan, max(d.drawn for d in ranks))
        self.order.release()

    def _nodes(self, ranks: list[Did]) -> list[Did]:
        """What each node of the plan did."""
        return ranks

    # Files.

    def state_dict(self) -> dict[str, Any]:
        """The job's position, after the newest complete round; for any number of ranks."""
        return {"version": 1, "round": self.order.round + self._over(), **self._same}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state_dict. Call it before the loader is iterated."""
        wrong = [f"{k} {state.get(k)}, this one has {v}" for k, v in {"version": 1, **self._same}.items() if state.get(k) != v]
        if wrong:
            raise Usage(f"the state is of a job with {'; '.join(wrong)}: pass loader() the same")
        self.order.round = state["round"]

    def close(self) -> None:
        """Hands in the last reports. The end of the program does so, too."""
        self._learn()
        if self._client is not None:
            self._client.close()
