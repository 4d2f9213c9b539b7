"""The tuner's hook on DistributedDataParallel, which makes the gradient of a round the mean over all its samples, however they are split: up to
rounding, that of one process with all of them.

Within a rank micro-steps are weighted where the gradient enters the model: a micro-step of b samples has the weight b over the samples of the rank's
first one, so that equal micro-steps need no weights. Between ranks a communication hook multiplies each bucket by the samples of the first micro-step
over those of the round (with one micro-step n_i / N) and adds up. With a deadline N is not known before: buckets are multiplied by the planned
weight, N is added up together with the first bucket, and then corrects the sums. Together with the last bucket an asynchronous all-reduce exchanges
the vector of the round: what each rank did, and rank 0's newest sizes.
"""

import contextlib
import copy
import dataclasses
import time
from typing import Any, Callable, Iterator, List, Optional

import torch
import torch.distributed as dist

from .errors import Usage


@dataclasses.dataclass
class Round:
    """What one rank does in a round, as far as it is done."""

    total: int = 0  # samples of all ranks; 0: added up in the hook
    expected: int = 1  # as planned
    measure: bool = True  # the norms of gradients, in this round
    first: int = 0  # samples of this rank's first micro-step; 0: it has none
    samples: int = 0  # of this rank, with the micro-step at work
    factor: float = 1.0  # weight of the micro-step at work: its samples over first
    buckets: int = 0  # that reached the hook
    over: bool = False  # the last bucket did
    vector: Optional[torch.Tensor] = None  # that went beside it
    working: Any = None  # its all-reduce
    norms: List[torch.Tensor] = dataclasses.field(default_factory=list)  # squared norms of this rank's gradients, as the hook scaled them
    sums: List[torch.Tensor] = dataclasses.field(default_factory=list)  # squared norms of the round's gradient, on rank 0
    count: Optional[torch.Tensor] = None
    counting: Any = None  # the work that adds it up
    adding: List[Any] = dataclasses.field(default_factory=list)  # buckets on their way, with their work


class _Nothing(torch.autograd.Function):
    """Depends on all parameters, and has no gradient for any."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.number = len(parameters)
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:  # type: ignore[override]
        return (None,) * ctx.number


class _Empty(torch.nn.Module):
    """Replaces the model if there is nothing to compute. output: what it returns; without it, 0."""

    def __init__(self, real: torch.nn.Module, parameters: List[torch.nn.Parameter], output: Any = None):
        super().__init__()
        self.real = real  # for its buffers, which DDP broadcasts
        self.of, self.output = tuple(parameters), output

    def forward(self, *_: Any, **__: Any) -> Any:
        nothing = _Nothing.apply(*self.of)
        return nothing if self.output is None else _map(self.output, lambda t: t + nothing if t.is_floating_point() else t)


class GradientHook:
    """The hook on one model. Set round before its first micro-step. fill(round, now) returns the vector that is all-reduced with the last bucket, if any."""

    def __init__(self, model: Any, fill: Any, clock: Any = time.perf_counter):
        if type(model).__name__ != "DistributedDataParallel":
            raise Usage(f"{type(model).__name__}: the tuner weights gradients where DistributedDataParallel adds them up; give it the wrapped model. FSDP and DeepSpeed work with fixed sizes alone: docs/guides/pytorch-job.md")
        if getattr(model, "static_graph", False):
            raise Usage("static_graph: ranks with unequal numbers of micro-steps do not run one graph; leave static_graph out")
        self.model, self._fill, self._clock = model, fill, clock
        self.group = model.process_group
        self.rank = dist.get_rank(self.group)
        self.parameters = [p for p in model.module.parameters() if p.requires_grad]
        self.round = Round()
        self.active = False  # a micro-step of the tuner is at work
        self.called = False  # the model was called in this micro-step
        self.spent = 0.0  # seconds of this hook's own work, in this round
        self._row: Any = None  # what the model returned for the first sample that it saw
        self._options = dist.AllreduceOptions()
        self._options.reduceOp = dist.ReduceOp.SUM
        try:
            model.register_comm_hook(None, self._reduce)
        except RuntimeError as e:
            raise Usage(f"DistributedDataParallel has a communication hook already ({e}); the tuner needs it") from e
        model.register_forward_hook(self._weigh)

    def _reduce(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        began, r, buffer = self._clock(), self.round, bucket.buffer()
        if not self.active:
            raise Usage("backward outside of tuner.steps(): the other ranks take no part in it; train within the loop, or under model.no_sync()")
        if r.buckets == 0 and not r.total:
            r.count = torch.tensor([float(r.samples)], dtype=torch.float64, device=buffer.device)
            r.counting = self._add_up(r.count)
        r.buckets += 1
        if r.first:
            buffer.mul_(r.first / (r.total or r.expected))  # half precision would not hold sums over samples
            if r.measure:
                r.norms.append(_square(buffer))
        else:
            buffer.zero_()  # not times 0: what was not counted may be anything
        self.spent += self._clock() - began
        work = self._add_up(buffer)
        since = self._clock()
        if not r.adding:
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self._added(r))
        r.adding.append((work, buffer))
        if bucket.is_last():
            r.over, r.vector = True, self._fill(r, began)
            if r.vector is not None:
                r.working = self._add_up(r.vector)
        out: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        out.set_result(buffer)
        self.spent += self._clock() - since
        return out

    def _add_up(self, tensor: torch.Tensor) -> Any:
        """dist.all_reduce without its checks, which take half of the time of a small one."""
        return self.group.allreduce([tensor], self._options)

    def _added(self, r: Round) -> None:
        """Runs at the end of a backward pass, when the sums are there. DDP reads them in a callback of its own, which it queues after its last bucket and
        so after this one. No Python callback hangs on the all-reduce itself: its thread would abort the process if the interpreter ends first."""
        for work, buffer in r.adding:
            work.wait()
            if not r.total:
                r.counting.wait()
            since = self._clock()
            if not r.total:
                buffer.mul_((r.expected / r.count.clamp(min=1)).to(buffer.dtype))
            if r.measure and self.rank == 0:
                r.sums.append(_square(buffer))
            self.spent += self._clock() - since
        r.adding = []

    def _weigh(self, _: Any, __: Any, output: Any) -> None:
        self.called = True
        if self.active and self._row is None and self.round.first:
            self._row = _map(output, lambda t: (t[:1] if t.dim() and len(t) == self.round.first else t).detach().clone())
        factor = self.round.factor
        if self.active and factor != 1 and torch.is_grad_enabled():
            found = _tensors(output)
            if not found:
                raise Usage(f"the model returns {type(output).__name__} without a tensor that needs a gradient: the tuner cannot weight its micro-steps")
            for t in found:
                t.register_hook(lambda g: g * factor)

    @property
    def knows(self) -> bool:
        """Whether there is an output for a rank without a share."""
        return self._row is not None

    def join(self) -> None:
        """A backward pass without gradients, which sends the accumulated gradients to the other ranks by the same collectives."""
        model, real = self.model, self.model.module
        model.module = _Empty(real, self.parameters)
        factor, self.round.factor = self.round.factor, 1.0
        before, model.require_backward_grad_sync = model.require_backward_grad_sync, True  # it may be within no_sync
        try:
            model(torch.zeros(1, device=self.parameters[0].device)).backward()
        finally:
            model.module = real
            self.round.factor, model.require_backward_grad_sync = factor, before

    @contextlib.contextmanager
    def absent(self) -> Iterator[None]:
        """A context in which a forward pass computes nothing, so that a rank without a share is not slower. It returns the model's first output for
        one sample, so that a loss can be computed; before the first output the model runs."""
        if self._row is None:
            yield
            return
        real, self.model.module = self.model.module, _Empty(self.model.module, self.parameters, self._row)
        try:
            yield
        finally:
            self.model.module = real

    def undo(self) -> None:
        """Forgets the gradients of the round. If buffers are broadcast, the round's first forward pass has already done that with the other ranks."""
        self.model.require_forward_param_sync = False
        for p in self.parameters:
            p.grad = None


def _square(t: torch.Tensor) -> torch.Tensor:
    if t.dtype in (torch.float16, torch.bfloat16):
        t = t.float()
    return torch.dot(t, t)


def _map(x: Any, of: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure of other tensors."""
    if isinstance(x, torch.Tensor):
        return of(x)
    if isinstance(x, dict):
        out = copy.copy(x)
        for k, v in x.items():
            out[k] = _map(v, of)
        return out
    if isinstance(x, (list, tuple)):
        return type(x)(*(_map(v, of) for v in x)) if hasattr(x, "_fields") else type(x)(_map(v, of) for v in x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return dataclasses.replace(x, **{f.name: _map(getattr(x, f.name), of) for f in dataclasses.fields(x) if f.init})
    return x


def _tensors(x: Any) -> List[torch.Tensor]:
    """The tensors in x that need a gradient."""
    found: List[torch.Tensor] = []
    _map(x, lambda t: found.append(t) or t)  # type: ignore[func-returns-value]
    return [t for t in found if t.requires_grad]
