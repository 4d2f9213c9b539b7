"""How long a rank's forward passes take, without its waits for other ranks. Under full sharding a rank meets the others in every unit, to gather
parameters, so no time between two points of the loop is its own. But within a unit, after its parameters are there, nothing waits. The clock stops
before a unit gathers, runs from when the unit's own forward begins, and stops when that ends. On CUDA these moments are events, read a round later.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

BOTH = 3.0  # seconds of forward and backward for one of forward: a backward pass computes two products for each of forward


class Stopwatch:
    """Adds up the spans of a round, on the device's clock. It runs while active."""

    def __init__(self, model: torch.nn.Module, clock: Callable[[], float] = time.perf_counter):
        self.active = False
        self._clock, self._cuda = clock, next(model.parameters()).is_cuda
        self._seconds, self._since = 0.0, None
        self._events: list[Any] = []  # begin, end, begin, end of this round
        self._before: tuple[list[Any], Any] = ([], None)  # those of the round before, and what belongs to it
        self._handles: list[Any] = []

    def read(self, of: Any) -> tuple[float, Any]:
        """Ends a round and returns the seconds of the newest round whose times are known, with what belongs to it: of this one or, on CUDA, of the one before."""
        self._since = None
        if not self._cuda:
            seconds, self._seconds = self._seconds, 0.0
            return seconds, of
        (events, before), self._before, self._events = self._before, (self._events, of), []
        if events:
            events[-1].synchronize()
        return sum(a.elapsed_time(b) for a, b in zip(events[::2], events[1::2])) / 1e3, before

    def close(self) -> None:
        for h in self._handles:
            h.remove()

    def _start(self) -> None:
        self._since = self._now()

    def _stop(self) -> None:
        since, self._since = self._since, None
        if since is None:
            return
        if self._cuda:
            self._events += [since, self._now()]
        else:
            self._seconds += self._now() - since

    def _now(self) -> Any:
        if not self._cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class ForwardTime(Stopwatch):
    """The time of one model, whatever wraps it."""

    def __init__(self, model: torch.nn.Module, clock: Callable[[], float] = time.perf_counter):
        super().__init__(model, clock)
        self._depth = 0
        for outer, inner in units(model):
            h = [outer.register_forward_pre_hook(self._gather, prepend=True), inner.register_forward_pre_hook(self._begin)]
            h += [inner.register_forward_hook(self._end, prepend=True, always_call=True), outer.register_forward_hook(self._leave, always_call=True)]
            self._handles += h

    def read(self, of: Any) -> tuple[float, Any]:
        """Of forward and backward passes."""
        self._depth = 0
        seconds, of = super().read(of)
        return BOTH * seconds, of

    # Hooks, in the order in which they run; the unit's own hooks, which gather and free parameters, are between the first two and the last two.

    def _gather(self, *_: Any) -> None:
        if self._running():
            self._stop()
            self._depth += 1

    def _begin(self, *_: Any) -> None:
        if self._running():
            self._start()

    def _end(self, *_: Any) -> None:
        if self._running():
            self._stop()

    def _leave(self, *_: Any) -> None:
        if self._running():
            self._depth = max(self._depth - 1, 0)
            if self._depth:
                self._start()

    def _running(self) -> bool:
        return self.active and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def units(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, torch.nn.Module]]:
    """The modules before whose forward pass ranks may wait for one another, each with the one whose forward pass waits for nobody."""
    found = False
    for m in model.modules():
        kinds = {c.__name__ for c in type(m).__mro__}
        if "FSDPModule" in kinds or any(hasattr(p, "ds_id") for p in m.parameters(recurse=False)):  # FSDP2; DeepSpeed's stage 3
            found = True
            yield m, m
        elif "FullyShardedDataParallel" in kinds:
            found = True
            yield m, m.module
    if not found:
        inner = getattr(model, "module", None)  # DistributedDataParallel sends buffers first
        yield model, inner if isinstance(inner, torch.nn.Module) else model
