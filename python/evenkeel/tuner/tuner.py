"""A PyTorch job whose ranks take as many samples as let all finish together. `evenkeel serve` tunes these shares round by round:

    tuner = evenkeel.Tuner(ddp)                             # EVENKEEL_URL, EVENKEEL_JOB, EVENKEEL_TOKEN, EVENKEEL_CA
    loader = DataLoader(data, batch_sampler=tuner.batches(len(data), global_batch=256))
    for x, y in tuner.steps(loader):                        # micro-steps
        criterion(ddp(x), y).backward()                     # mean over its samples; weighted by the tuner
        if tuner.synchronised:                              # the last micro-step of a round
            optimizer.step(); optimizer.zero_grad()

The gradient is the mean over the samples of all ranks, however they are split. Without EVENKEEL_URL the ranks find their sizes by themselves, in
proportion to their paces (local.py). Rank 0 has a thread for the service, and steps wait for it only where that saves time (round_exchange.py).
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import client, registration, structure
from . import deadline as deadline_
from .by_cost import checked, mark
from .errors import Usage
from .gradient_check import GradientCheck
from .gradient_hook import GradientHook, Round
from .micro_steps import MicroSteps, chunk
from .round_exchange import RoundExchange
from .sample_order import Batches

_NORMS = 4  # Gradient norms are measured in one round of so many: the noise scale changes over hundreds of rounds.


@dataclasses.dataclass
class _MicroStep:
    size: int  # samples that count
    checking: bool = False  # none counts: the gradient check asked for it
    settled: bool = False
    over: bool = False  # the round ended with it
    joined: bool = False  # its gradients went to the other ranks after its backward pass, not within it
    asked: bool = False  # the loop read synchronised
    failed: bool = False  # out of memory
    weight: float | None = None  # as the user says
    held: list[torch.Tensor | None] | None = None  # gradients of earlier micro-steps, if this one has no weight


class Tuner:
    """The loop's side of the tuner. model is a DistributedDataParallel. check: samples of the first micro-step are computed as a whole and in two parts, and the job ends
    with the reason if its gradient is not their weighted mean (gradient_check.py). local: without EVENKEEL_URL the ranks find their sizes by themselves
    (local.py); else shares stay equal. clock returns rising seconds, and is another one in tests."""

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel, check: bool = True, local: bool = True, clock: Callable[[], float] = time.perf_counter):
        self._model, self._local, self._clock = model, local, clock
        self._hook = GradientHook(model, lambda r, now: self._exchange.fill(r, now), clock)
        self._exchange = RoundExchange(model, clock)
        self._check = GradientCheck(self._hook) if check else None
        self._work: MicroSteps | None = None
        self._weighted = False
        self._state: dict[str, Any] | None = None
        self._step: _MicroStep | None = None
        self._following = 0  # size of the next micro-step
        self._largest = 0  # largest micro-batch that has run
        self._absent: Any = None  # the batch that a rank without a share ran, whose output stands in for the model's later

    def batches(
        self,
        length: int,
        global_batch: int,
        micro_batch: int = 0,
        least: int = 1,
        sizes: Sequence[int] = (),
        deadline: str = "",
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        weighted: bool = False,
        costs: Any = None,
        micro_steps: int = 8,
        cut: Callable[[Any, int, int], Any] | None = None,
    ) -> Batches:
        """The batch sampler for a DataLoader over length samples. Call it once on all ranks. Arguments are the same on all ranks, except micro_batch (the largest that fits, 0: any), least (the smallest) and sizes
        (the only ones allowed, if shapes are fixed). deadline: "auto", a duration such as "1.5s", a share of the predicted time such as "110%", or "" to
        wait for all. drop_last: leave out the end of an epoch that is less than a global batch. weighted: the loop calls weight in each micro-step.
        costs, one per sample, are what a sample takes, where that depends on its length: the ranks share costs instead of samples, and each takes its
        samples in up to micro_steps micro-steps of unequal numbers, padded to the longest.
        cut(batch, begin, end) returns samples begin to end of a batch, where the rule does not fit (structure.cut); batches are cut only in rounds with
        a deadline, and after memory ran out."""
        if self._work is not None:
            raise Usage("batches() was called already: one Tuner has one loader; evaluate with an ordinary one")
        if isinstance(global_batch, bool) or not isinstance(global_batch, int):
            raise Usage(f"global_batch {global_batch!r}: give a whole number; the tuner divides it among the ranks, and does not change it")
        if length < 1 or global_batch < 1 or micro_batch < 0 or least < 1 or micro_steps < 1:
            raise Usage(f"length {length}, global_batch {global_batch}, micro_batch {micro_batch}, least {least}, micro_steps {micro_steps}: give 1 or more, and for micro_batch 0 or more")
        if drop_last and length < global_batch:
            raise Usage(f"drop_last with {length} samples and a global_batch of {global_batch}: an epoch would have no round")
        wrong = deadline != "" and deadline_.fault(deadline)  # else the service refuses it, and the job trains as if there were none
        if wrong:
            raise Usage(f"deadline {deadline!r}: {wrong}")
        costs = checked(costs, length, bool(micro_batch or least > 1 or sizes or deadline))
        x = self._exchange
        same = {"length": length, "global_batch": global_batch, "deadline": deadline, "seed": seed, "shuffle": shuffle, "drop_last": drop_last, "weighted": weighted, "costs": mark(costs)}
        limits = {"least": least, "most": micro_batch, "sizes": sorted(sizes)}
        found = registration.register(same, limits, x.device, x.group, self._local)
        plan = found.first or client.uniform(global_batch, found.most)
        deal = bool(deadline) or found.timed
        if deal and costs is not None:
            raise Usage("costs: the service has a deadline for this job, and rounds with a deadline count samples: leave one of the two out")
        batches = Batches(length, x.rank, plan, seed, shuffle, deal, chunk(plan, x.rank, micro_batch), drop_last, costs, micro_steps)
        if self._state is not None:
            batches.load_state_dict(self._state)
        x.begin(batches, found.client, found.first, found.serving)
        self._weighted = weighted
        self._work = MicroSteps(batches, micro_batch, least, sizes, self._clock, cut)
        return batches

    def steps(self, loader: Any) -> Iterator[Any]:
        """The micro-steps of one epoch, or of what is left of it."""
        work = self._begun()
        self._exchange.settle()
        work.batches.release()
        work.batches.begin()
        work.epoch(iter(loader))
        try:
            while work.batches.left:
                yield from self._round(work)
        finally:
            self._hook.active, self._step = False, None

    @property
    def synchronised(self) -> bool:
        """Whether the round ended with this micro-step: p.grad is the mean over all its samples. Read it after backward. If backward has not sent the
        gradients to the other ranks, reading it does."""
        s = self._running("synchronised")
        s.asked = True
        if s.checking:
            return False
        self._settle(s)
        return s.over

    @property
    def counts(self) -> bool:
        """Whether this micro-step counts. It does not on a rank without a share, nor while the gradient is checked: leave its loss out of your statistics."""
        s = self._running("counts")
        return not s.checking and s.size > 0

    def weight(self, weight: float) -> None:
        """What this micro-step's loss is a mean over, tokens for example; 0 if there is nothing. The gradient of the round is then the mean over those of all
        ranks. Call it before the forward pass, in each micro-step, with batches(weighted=True)."""
        s = self._running("weight()")
        if not self._weighted:
            raise Usage("tuner.weight() needs batches(weighted=True), so that all ranks know of it")
        if s.weight is not None or self._hook.called:
            raise Usage("tuner.weight() is called once in a micro-step, before its forward pass")
        if not (weight >= 0 and weight < float("inf")):
            raise Usage(f"tuner.weight({weight!r}): give a number from 0")
        s.weight = float(weight)
        if not s.size:
            return
        if weight > 0:
            self._hook.weigh(s.weight)
        else:  # the loss may be a mean over nothing, which is not a number: its gradient must meet no other
            s.held = self._hook.take()
            self._model.require_backward_grad_sync = False

    def expect(self, what: str, after: int = 0, seconds: float = 0.0) -> None:
        """This rank pauses between two rounds, to save or evaluate: between the present round and the next, or so many rounds later. It begins the second
        one late, and the others take over samples of its share of that one. How long a pause called so takes is measured; seconds are those of the
        first. Call it before backward of the round's last micro-step; where the loader draws ahead (workers), as many rounds before, on CUDA one more, else
        it changes nothing. Rounds with a deadline take no notice."""
        self._running("expect()")
        self._exchange.pauses.expect(what, self._begun().number, after, seconds)

    @contextlib.contextmanager
    def halving(self) -> Iterator[None]:
        """A context around forward and backward. If memory runs out, the round's samples come again in micro-steps half as large, and the service
        learns the limit. A size that runs for the first time has its all-reduce after backward, because gradients that other ranks have received
        cannot be taken back."""
        s, model = self._running("halving()"), self._model
        before = model.require_backward_grad_sync
        if s.size > self._largest:
            model.require_backward_grad_sync = False
        try:
            yield
        except (RuntimeError, MemoryError) as e:
            if not _out_of_memory(e):
                raise
            if s.size < 2 or self._hook.round.buckets:
                why = "gradients of this step are with other ranks" if self._hook.round.buckets else "a single sample does not fit"
                raise Usage(f"out of memory with {s.size} samples, and {why}; begin again with batches(micro_batch={max(s.size // 2, 1)})") from e
            s.failed = True
        finally:
            model.require_backward_grad_sync = before
        if s.failed and self._exchange.device.type == "cuda":
            torch.cuda.empty_cache()

    def state_dict(self) -> dict[str, Any]:
        """The job's position in its data, after the newest complete round; the same on all ranks."""
        if self._step is not None and self._hook.round.over:
            self._settle(self._step)
        return self._begun().batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state_dict, with any number of ranks. Call it before steps()."""
        if self._step is not None:
            raise Usage("load_state_dict within tuner.steps(): call it before")
        self._state = state
        if self._work is not None:
            self._work.batches.load_state_dict(state)

    def close(self) -> None:
        """Hands in the last reports. The end of the program does so, too."""
        self._exchange.close()

    @property
    def own_seconds(self) -> float:
        """Seconds of the tuner's own work in the newest round, without waiting for other ranks."""
        return self._exchange.spent + self._hook.spent

    def _begun(self) -> MicroSteps:
        if self._work is None:
            raise Usage("call tuner.batches() first, and give what it returns to the DataLoader as batch_sampler")
        return self._work

    def _running(self, what: str) -> _MicroStep:
        if self._step is None:
            raise Usage(f"tuner.{what} outside of tuner.steps()")
        return self._step

    def _round(self, work: MicroSteps) -> Iterator[Any]:
        hook, x = self._hook, self._exchange
        work.begin()
        total = 0 if self._weighted else work.total
        hook.round, hook.spent = Round(total, sum(work.plan.shares), x.shared and work.number % _NORMS == 0), 0.0
        hook.settle()
        x.round(work)
        size, first, stale = work.size(), True, None
        while first or size:
            piece, size = work.take(size)
            if self._check is not None and size > 1 and (work.batches.dealing or work.own_cut or not structure.ambiguous(piece, size)):
                check, self._check = self._check, None
                yield from self._checked(check, work, piece, size)
            last = work.last(size)
            hook.active, hook.called = True, 0
            if first and not last:  # with one micro-step an earlier gradient would count as it should
                stale = next(((p, p.grad) for p in hook.parameters if p.grad is not None and p.grad.any()), None)
            if not first and stale and stale[0].grad is stale[1]:
                raise Usage("p.grad still holds the gradient of an earlier round: call optimizer.zero_grad() after optimizer.step(); instead of accumulating over rounds, give batches() a larger global_batch")
            if size and not self._weighted:
                hook.weigh(size)
            elif not size and hook.outputs:
                piece = self._absent
            elif not size:
                self._absent = piece
            s = self._step = _MicroStep(size)
            sync = self._model.require_backward_grad_sync
            self._model.require_backward_grad_sync = last
            x.start(size)
            try:
                with hook.absent() if not size else contextlib.nullcontext():
                    yield piece
            finally:
                self._model.require_backward_grad_sync = sync
            self._settle(s)
            if not s.asked and (not s.over or s.joined and not last):
                raise Usage("a round of several micro-steps: call optimizer.step() only if tuner.synchronised")
            if not s.asked and s.joined:
                raise Usage("a micro-step without a backward pass: read tuner.synchronised in each of them, also where backward is left out; its samples then count with a gradient of 0")
            size, first = self._following, False

    def _checked(self, check: GradientCheck, work: MicroSteps, piece: Any, size: int) -> Iterator[Any]:
        for part, n in check.parts(piece, size, work.cut, work.batches.dealing):
            self._hook.active, self._hook.called = True, 0
            s = self._step = _MicroStep(n, checking=True)
            if not self._weighted:
                self._hook.weigh(n)
            with self._model.no_sync():
                yield part
            if not s.asked:
                raise Usage("call optimizer.step() only if tuner.synchronised")
            if s.failed:
                check.abandon()
            if s.held is not None:
                self._hook.give(s.held)
        self._hook.active = False

    def _settle(self, s: _MicroStep) -> None:
        """Decides, after a micro-step's backward pass, what comes next. If nothing does, it sends the gradients to the other ranks."""
        if s.settled:
            return
        hook, work, x = self._hook, self._begun(), self._exchange
        r = hook.round
        if not (hook.called or s.failed):
            raise Usage("the model was not called in this micro-step: forward and backward belong into each, and tuner.synchronised after them")
        if self._weighted and s.weight is None:
            raise Usage("tuner.weight() was not called in this micro-step, and batches(weighted=True) says that it is")
        s.settled = True
        if s.held is not None:
            hook.give(s.held)
        if s.failed:
            hook.undo()
            hook.round = Round(r.total, r.expected, r.measure)
            x.again(s.size)
            work.again(s.size)
            self._following = work.size()
            return
        work.did(s.size, x.took())
        self._largest = max(self._largest, s.size)
        self._following = 0 if r.over else work.size()
        if not (r.over or self._following):
            s.joined = True
            hook.join()
        s.over, hook.active = r.over, False
        if s.over and s.asked:
            hook.ended()
        if s.over:
            x.finish(r)


def _out_of_memory(e: BaseException) -> bool:
    """On processors torch has no type for this error."""
    return isinstance(e, (MemoryError, torch.OutOfMemoryError)) or any(w in str(e) for w in ("out of memory", "can't allocate memory"))
