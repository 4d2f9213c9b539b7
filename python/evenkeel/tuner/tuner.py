"""A PyTorch job whose ranks take as many samples as let all finish together. `evenkeel serve` tunes these shares round by round:

    tuner = evenkeel.Tuner(ddp)                             # EVENKEEL_URL, EVENKEEL_JOB, EVENKEEL_TOKEN, EVENKEEL_CA
    loader = DataLoader(data, batch_sampler=tuner.batches(len(data), global_batch=256))
    for x, y in tuner.steps(loader):                        # micro-steps
        criterion(ddp(x), y).backward()                     # mean over its samples; weighted by the tuner
        if tuner.synchronised:                              # the last micro-step of a round
            optimizer.step(); optimizer.zero_grad()

The gradient is the mean over the samples of all ranks, however they are split. Without EVENKEEL_URL shares are equal, and only the all-reduce goes
over the network. Steps do not wait for the service: rank 0 has a thread for it.
"""

import contextlib
import dataclasses
import time
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Union

import torch

from . import batch_slices, client, registration
from . import deadline as deadline_
from .errors import Usage
from .gradient_hook import GradientHook, Round
from .micro_steps import MicroSteps, chunk
from .round_exchange import RoundExchange
from .sample_order import Batches

_NORMS = 4  # Gradient norms are measured in one round of so many: the noise scale changes over hundreds of rounds.


@dataclasses.dataclass
class _MicroStep:
    size: int  # samples that count
    settled: bool = False
    over: bool = False  # the round ended with it
    joined: bool = False  # its gradients went to the other ranks after its backward pass, not within it
    asked: bool = False  # the loop read synchronised
    failed: bool = False  # out of memory


class Tuner:
    """The loop's side of the tuner. model is a DistributedDataParallel; clock returns rising seconds, and is another one in tests."""

    def __init__(self, model: Any, clock: Any = time.perf_counter):
        self._model, self._clock = model, clock
        self._hook = GradientHook(model, lambda r, now: self._exchange.fill(r, now), clock)
        self._exchange = RoundExchange(model, clock)
        self._work: Optional[MicroSteps] = None
        self._state: Optional[Dict[str, Any]] = None
        self._step: Optional[_MicroStep] = None
        self._following = 0  # size of the next micro-step
        self._largest = 0  # largest micro-batch that has run
        self._known: Any = None  # the sample whose output stands in for the model's on a rank without a share

    def batches(self, length: Union[int, Callable[[int], int]], global_batch: int, micro_batch: int = 0, least: int = 1, sizes: Sequence[int] = (), deadline: str = "", seed: int = 0, shuffle: bool = True) -> Batches:
        """The batch sampler for a DataLoader over length samples, or as many as a function of the epoch's number says (evenkeel.bucket.Pieces.begin). Call
        it once on all ranks. Arguments are the same on all ranks, except micro_batch (the largest that fits, 0: any), least (the smallest) and sizes
        (the only ones allowed, if shapes are fixed). deadline: "auto", a duration such as "1.5s", a share of the predicted time such as "110%", or "" to
        wait for all."""
        if self._work is not None:
            raise Usage("batches() was called already: one Tuner has one loader; evaluate with an ordinary one")
        if isinstance(global_batch, bool) or not isinstance(global_batch, int):
            raise Usage(f"global_batch {global_batch!r}: give a whole number; the tuner divides it among the ranks, and does not change it")
        first = length(0) if callable(length) else length
        if first < 1 or global_batch < 1 or micro_batch < 0 or least < 1:
            raise Usage(f"length {first}, global_batch {global_batch}, micro_batch {micro_batch}, least {least}: give 1 or more, and for micro_batch 0 or more")
        wrong = deadline != "" and deadline_.fault(deadline)  # else the service refuses it, and the job trains as if there were none
        if wrong:
            raise Usage(f"deadline {deadline!r}: {wrong}")
        x = self._exchange
        same = {"length": first, "global_batch": global_batch, "deadline": deadline, "seed": seed, "shuffle": shuffle}
        limits = {"least": least, "most": micro_batch, "sizes": sorted(sizes)}
        found = registration.register(same, limits, x.device, x.group)
        plan = found.first or client.uniform(global_batch, found.most)
        deal = bool(deadline) or found.timed
        batches = Batches(length, x.rank, plan, seed, shuffle, deal, chunk(plan, x.rank, micro_batch))
        if self._state is not None:
            batches.load_state_dict(self._state)
        x.begin(batches, found.client, found.first, found.serving)
        self._work = MicroSteps(batches, micro_batch, least, sizes, self._clock)
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
        if self._step is None:
            raise Usage("tuner.synchronised outside of tuner.steps()")
        self._step.asked = True
        self._settle(self._step)
        return self._step.over

    @contextlib.contextmanager
    def halving(self) -> Iterator[None]:
        """A context around forward and backward. If memory runs out, the round's samples come again in micro-steps half as large, and the service
        learns the limit. A size that runs for the first time has its all-reduce after backward, because gradients that other ranks have received
        cannot be taken back."""
        s, model = self._step, self._model
        if s is None:
            raise Usage("tuner.halving() outside of tuner.steps()")
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

    def state_dict(self) -> Dict[str, Any]:
        """The job's position in its data, after the newest complete round; the same on all ranks."""
        if self._step is not None and self._hook.round.over:
            self._settle(self._step)
        return self._begun().batches.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
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

    def _round(self, work: MicroSteps) -> Iterator[Any]:
        hook, x = self._hook, self._exchange
        work.begin()
        hook.round, hook.spent = Round(work.total, sum(work.plan.shares), x.shared and work.number % _NORMS == 0), 0.0
        x.round(work)
        size, first = work.size(), True
        while first or size:
            first = False
            piece, size = work.take(size)
            last, r = work.last(size), hook.round
            r.first, r.samples = r.first or size, work.done + size
            r.factor = size / r.first if size else 1.0
            hook.active, hook.called = True, False
            if size and not hook.knows:
                self._known = batch_slices.cut(piece, 0, 1)
            elif not size and hook.knows:
                piece = self._known  # its targets are as many as the output that stands in for the model's
            s = self._step = _MicroStep(size)
            x.start(size)
            with hook.absent() if not size else contextlib.nullcontext() if last else self._model.no_sync():
                yield piece
            self._settle(s)
            if not s.asked and (s.joined or not s.over):
                raise Usage("a round of several micro-steps: call optimizer.step() only if tuner.synchronised")
            size = self._following

    def _settle(self, s: _MicroStep) -> None:
        """Decides, after a micro-step's backward pass, what comes next. If nothing does, it sends the gradients to the other ranks."""
        if s.settled:
            return
        hook, work, x = self._hook, self._begun(), self._exchange
        r = hook.round
        if not (hook.called or s.failed):
            raise Usage("the model was not called in this micro-step: forward and backward belong into each, and tuner.synchronised after them")
        s.settled = True
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
        if s.over:
            x.finish(r)


def _out_of_memory(e: BaseException) -> bool:
    """Before 1.13, and on processors, torch has no type for this error."""
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or any(w in str(e) for w in ("out of memory", "can't allocate memory"))
