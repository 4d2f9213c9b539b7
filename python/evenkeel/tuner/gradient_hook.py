"""The tuner's hook on DistributedDataParallel, which makes the gradient of a round the weighted mean over its micro-steps, however they are split. With
weights that are samples it is, up to rounding, the gradient of one process that has all samples.

Within a rank p.grad adds up micro-steps. It is kept in units of the newest micro-step's weight: before a micro-step of another weight, p.grad is multiplied
by the old weight over the new one. So nothing touches the model, its outputs or the backward pass, and micro-steps of equal weight cost nothing. Between
ranks a communication hook multiplies each bucket by the unit over the weight of all ranks, and adds up. If that weight is not known before (a deadline, or
weights by the user), buckets are divided by the planned samples; the weight is added up beside the first bucket, and then corrects the sums. With the last
bucket an asynchronous all-reduce exchanges the vector of the round: what each rank did, and rank 0's newest sizes.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from . import structure
from .errors import Usage


_SECOND = "a second backward pass, or a forward pass for it, in the micro-step that ends a round: run all of its passes under model.no_sync(); tuner.synchronised sends their sum"


@dataclasses.dataclass
class Round:
    """What one rank does in a round, as far as it is done."""

    total: float = 0  # weight of all ranks; 0: added up in the hook
    expected: int = 1  # samples of all ranks, as planned
    measure: bool = True  # the norms of gradients, in this round
    unit: float = 0  # weight of the newest micro-step: p.grad is the weighted sum of gradients over it; 0: this rank has none
    weight: float = 0  # of this rank, with the micro-step at work
    buckets: int = 0  # that reached the hook
    over: bool = False  # the last bucket did
    vector: torch.Tensor | None = None  # that went beside it
    working: Any = None  # its all-reduce
    norms: list[torch.Tensor] = dataclasses.field(default_factory=list)  # squared norms of this rank's gradients, as the hook scaled them
    sums: list[torch.Tensor] = dataclasses.field(default_factory=list)  # squared norms of the round's gradient, on rank 0
    count: torch.Tensor | None = None
    counting: Any = None  # the work that adds it up
    adding: list[Any] = dataclasses.field(default_factory=list)  # buckets on their way, with their work


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
    """Replaces the model in one forward pass if there is nothing to compute. output: what it returns; without it, 0."""

    def __init__(self, real: torch.nn.Module, parameters: list[torch.nn.Parameter], output: Any = None):
        super().__init__()
        self.real = real  # for its buffers, which DDP broadcasts
        self.of, self.output = tuple(parameters), output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        nothing = _Nothing.apply(*self.of)
        for x in structure.tensors((args, kwargs)):
            if x.requires_grad:  # the loop may ask for gradients with respect to it, and for theirs
                nothing = nothing + 0 * x.square().sum()
        return nothing if self.output is None else structure.map_tensors(lambda t: t + nothing if t.is_floating_point() else t, self.output)


class GradientHook:
    """The hook on one model. Set round before its first micro-step. fill(round, now) returns the vector that is all-reduced with the last bucket, if any."""

    def __init__(self, model: Any, fill: Callable[[Round, float], torch.Tensor | None], clock: Callable[[], float] = time.perf_counter):
        if type(model).__name__ != "DistributedDataParallel":
            raise Usage(f"{type(model).__name__}: the tuner weights gradients where DistributedDataParallel adds them up; give it the wrapped model, or use evenkeel.EqualSteps for FSDP: docs/guides/equal-steps.md")
        if type(model.module).__name__ == "DistributedDataParallel":
            raise Usage("the model is wrapped in DistributedDataParallel twice, so gradients would be added up twice; wrap it once")
        if getattr(model, "static_graph", False):
            raise Usage("static_graph: ranks with unequal numbers of micro-steps do not run one graph; leave static_graph out")
        self.model, self._fill, self._clock = model, fill, clock
        self.group = model.process_group
        self.rank = dist.get_rank(self.group)
        self.parameters = [p for p in model.module.parameters() if p.requires_grad]
        self.round = Round()
        self.active = False  # a micro-step of the tuner is at work
        self.called = 0  # forward passes with gradients in this micro-step
        self.spent = 0.0  # seconds of this hook's own work, in this round
        self.outputs: list[Any] = []  # that stand in for the model's on a rank without a share, one for each forward pass of a micro-step
        self._absent: Any = None  # what to do with forward passes of a rank without a share: "record", "replay", or None
        self._standing: torch.nn.Module | None = None  # the model, while another one is in its place
        self._joining = False
        self._sealed = 0  # versions of the gradients when the round ended
        self._options = dist.AllreduceOptions()
        self._options.reduceOp = dist.ReduceOp.SUM
        try:
            model.register_comm_hook(None, self._reduce)
        except RuntimeError as e:
            raise Usage(f"DistributedDataParallel has a communication hook already ({e}); the tuner needs it") from e
        model.register_forward_pre_hook(self._enter)
        model.register_forward_hook(self._leave, always_call=True)

    # Within a rank.

    def weigh(self, weight: float) -> None:
        """The coming micro-step has this weight, in samples or whatever the user counts."""
        r = self.round
        if r.unit and weight != r.unit:
            self.scale(r.unit / weight)
        r.unit = weight
        r.weight += weight

    def scale(self, factor: float) -> None:
        """Multiplies what p.grad holds."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        dense = [g for g in grads if not g.is_sparse]
        if dense:
            torch._foreach_mul_(dense, factor)
        for g in grads:
            if g.is_sparse:
                g.mul_(factor)

    def take(self) -> list[torch.Tensor | None]:
        """Takes the gradients out of the parameters."""
        grads = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        return grads

    def give(self, grads: list[torch.Tensor | None]) -> None:
        """Replaces the gradients of the parameters."""
        for p, g in zip(self.parameters, grads):
            p.grad = g

    # Between ranks.

    def _reduce(self, _: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        began, r, buffer = self._clock(), self.round, bucket.buffer()
        if not self.active:
            raise Usage("backward outside of tuner.steps(): the other ranks take no part in it; train within the loop, or under model.no_sync()")
        if r.buckets == 0 and not r.total:
            r.count = torch.tensor([float(r.weight)], dtype=torch.float64, device=buffer.device)
            r.counting = self._add_up(r.count)
        r.buckets += 1
        if r.unit:
            buffer.mul_(r.unit / (r.total or r.expected))  # half precision would not hold sums over samples
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
            if not r.total and r.count is not None:
                buffer.mul_(torch.where(r.count > 0, r.expected / r.count, 0.0).to(buffer.dtype))
            if r.measure and self.rank == 0:
                r.sums.append(_square(buffer))
            self.spent += self._clock() - since
        r.adding = []
        torch.autograd.Variable._execution_engine.queue_callback(self._seal)  # after DDP's own

    def _seal(self) -> None:
        self._sealed = self._versions()

    def _versions(self) -> int:
        return sum(p.grad._version for p in self.parameters if p.grad is not None)

    def ended(self) -> None:
        """Usage if a backward pass followed the one whose gradients went to the other ranks. By the same forward pass it does not reach DDP."""
        if self._sealed != self._versions():
            raise Usage(f"p.grad has changed since the round ended. Either it was {_SECOND}; or clip and unscale gradients only after tuner.synchronised was read")

    def join(self) -> None:
        """A backward pass without gradients, which sends the accumulated gradients to the other ranks by the same collectives."""
        model = self.model
        before, model.require_backward_grad_sync = model.require_backward_grad_sync, True  # it may be within no_sync
        self._joining = True
        try:
            with torch.enable_grad():
                model(torch.zeros(1, device=self.parameters[0].device)).backward()
        finally:
            self._joining, model.require_backward_grad_sync = False, before

    # Forward passes.

    def settle(self) -> None:
        """Does at a round's begin what DDP's next forward pass would do in the midst of the rank's measured time, waiting for other ranks: it takes over
        rank 0's buffers, and after the first backward pass forms the buckets anew."""
        model = self.model
        if model.will_sync_module_buffers():
            model._sync_buffers()
        model.require_forward_param_sync = False
        model.reducer._rebuild_buckets()

    @contextlib.contextmanager
    def absent(self) -> Iterator[None]:
        """A context for a micro-step that does not count. The first one runs, and what the model returned is remembered. The later ones return that and
        compute nothing, so that a rank without a share is not slower."""
        self._absent = "replay" if self.outputs else "record"
        try:
            yield
        finally:
            self._absent = None

    def _enter(self, model: Any, _: Any) -> None:
        if not (self.active or self._joining):
            return
        model.require_forward_param_sync = False  # buffers were sent as the round began, and other ranks may have fewer forward passes
        if not torch.is_grad_enabled():
            return
        output = None
        if not self._joining:
            if self.round.over:  # before DDP, whose forward pass may wait for the other ranks
                raise Usage(_SECOND)
            self.called += 1
            if self._absent != "replay" or self.called > len(self.outputs):
                return
            output = self.outputs[self.called - 1]
        self._standing, model.module = model.module, _Empty(model.module, self.parameters, output)

    def _leave(self, model: Any, _: Any, output: Any) -> None:
        """Also runs if the forward pass raised."""
        if self._standing is not None:
            model.module, self._standing = self._standing, None
        elif self._absent == "record" and self.active and torch.is_grad_enabled():
            self.outputs.append(structure.map_tensors(lambda t: t.detach().clone(), output))

    def undo(self) -> None:
        """Forgets the gradients of the round. The other ranks have this one's buffers already."""
        self.model.require_forward_param_sync = False
        self.take()


def _square(t: torch.Tensor) -> torch.Tensor:
    if t.dtype in (torch.float16, torch.bfloat16):
        t = t.float()
    return torch.dot(t, t)
