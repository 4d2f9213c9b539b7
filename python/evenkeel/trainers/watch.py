"""What holds a job up, in a loop that Evenkeel does not tune:

    for x, y in evenkeel.watch(model, loader):                              # on all ranks, after the model is wrapped; else the loop is as it was

It measures each rank's forward passes without waits (forward_time.py) and its waits for the loader, and changes nothing: neither batches nor gradients. A
step ends when an optimizer has stepped. Every so many steps a thread exchanges the times in a gloo group of its own, and rank 0 says in a line where time
goes, which rank is slow, and what tuned sizes would gain. The rules are the service's (serve/history/cause.go), for one interval instead of many rounds.
"""

import atexit
import queue
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median_low
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..tuner import link, registration
from ..tuner.errors import Usage
from ..tuner.local import fill
from ..tuner.round_vector import Did, RoundVector, unpack
from ..tuner.structure import tensors
from .equal_steps import timed
from .forward_time import ForwardTime

_SLOW, _LINK = 1.25, 3.0  # times what is normal; the same of a link, whose normal times are mostly latency
_EXCHANGING, _LONG = 0.2, 3600.0  # share of a step that exchange takes where a link matters; seconds after which a slow device is the machine's fault


class Watch:
    """One rank's side. Iterate it in place of the loader; without one, waits for data are not seen. Every so many steps rank 0 says a line."""

    def __init__(self, model: torch.nn.Module, loader: Any = None, every: int = 50, say: Callable[[str], Any] = print):
        if not dist.is_initialized() or every < 1:
            raise Usage(f"watch(every={every}): give the steps between two lines, from 1, and start the job with torchrun; call it after init_process_group")
        self.clock, self._loader, self._every, self._say = time.perf_counter, loader, every, say
        self._rank, self._ranks, self._group = dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo")
        described: list[Any] = [None] * self._ranks
        dist.all_gather_object(described, registration.describe(self._rank, {}, next(model.parameters()).device), group=self._group)
        self._blame = Blame([d["name"] for d in described], [d["device"] for d in described])
        self._time, self._optimizer, self._step = ForwardTime(model), None, 0
        self._began, self._samples, self._waited, self._time.active = 0.0, 0, 0.0, True
        self._handles = [register_optimizer_step_post_hook(self._stepped), model.register_forward_pre_hook(self._forward, with_kwargs=True)]
        self._told: queue.SimpleQueue[tuple[Did, float, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._exchange, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __iter__(self) -> Iterator[Any]:
        return timed(iter(self._loader), self)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the loader has."""
        return getattr(self.__dict__["_loader"], name)

    def loaded(self, since: float) -> None:
        self._waited += self.clock() - since

    def _forward(self, model: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._samples += next((len(t) for t in tensors((args, kwargs)) if t.dim()), 1)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None and self._samples:
            self._optimizer = optimizer  # of several, as in a GAN, the first one counts
        if optimizer is not self._optimizer:
            return
        self._step += 1
        if self._step % self._every != 1 % self._every:
            return
        now, own = self.clock(), Did(samples=self._samples, input=self._waited)
        seconds, past = self._time.read((own, now - self._began, self._step) if self._step > 1 else None)  # the first step warms up
        self._began, self._samples, self._waited = now, 0, 0.0
        if past is not None:
            past[0].seconds = seconds
            self._told.put(past)

    def _exchange(self) -> None:
        """The thread, in which alone ranks meet: the loop waits for nobody."""
        vector, probe, measured = RoundVector(self._rank, self._ranks), False, 0.0
        try:
            for own, wall, step in iter(self._told.get, None):
                own.link = measured
                v = vector.pack(own, None, probe)
                dist.all_reduce(v, group=self._group)
                did, _, measure = unpack(v.tolist(), self._ranks)
                measured = link.seconds(self._group, self._rank, self._ranks, torch.zeros(1 << 20, dtype=torch.uint8)) if measure else 0.0
                if self._rank == 0:
                    said, exchange = self._blame.line(did, wall, self._every)
                    probe = exchange > _EXCHANGING and self._ranks > 2
                    self._say(f"evenkeel: steps {step - self._every + 1} to {step}: {said}")
        except RuntimeError:
            return  # another rank has ended

    def close(self) -> None:
        for h in self._handles:
            h.remove()
        self._time.close()
        self._told.put(None)
        self._thread.join(2.0)


class Blame:
    """Names slow ranks and their causes, by the times of an interval and what is known of those before."""

    def __init__(self, names: list[str], devices: list[str]):
        self._names, self._devices = names, devices
        self._best = [float("inf")] * len(names)  # least seconds of compute for a sample
        self._long = [0.0] * len(names)  # seconds that compute has been slow, without a break

    def line(self, did: list[Did], wall: float, steps: int) -> tuple[str, float]:
        """What to say of so many steps, which took wall seconds; the share of them that the slowest rank neither computes nor waits for data."""
        compute, data = [d.seconds / max(d.samples, 1) for d in did], [d.input / max(d.samples, 1) for d in did]
        self._best = [min(b, c or b) for b, c in zip(self._best, compute)]
        most, slowest = max(((d.seconds + d.input, d) for d in did), key=lambda x: x[0])
        unit = max(wall, most)  # backward passes may be shorter than is reckoned
        exchange = 1 - most / unit
        causes = [c for r in range(len(did)) if (c := self._cause(r, [d.link for d in did], compute, data, exchange, wall))]
        said = f"{wall / steps:.3g} s a step: compute {slowest.seconds / unit:.0%}, input {slowest.input / unit:.0%}, exchange and the rest {exchange:.0%}"
        paces, batch = [c + i for c, i in zip(compute, data)], round(sum(d.samples for d in did) / steps)
        if min(paces) > 0 and batch >= len(did):
            then = steps * max(p * n for p, n in zip(paces, fill(batch, paces, 1, [0] * len(did))))
            after = 1 - max(most - then, 0.0) / unit
            said += f", {wall / steps * after:.3g} s with tuned sizes" if after < 0.97 else ""
        return f"{said}. {'. '.join(causes) or 'No rank is slow'}.", exchange

    def _cause(self, r: int, links: list[float], compute: list[float], data: list[float], exchange: float, wall: float) -> str:
        """What other ranks of its device take is normal; of a rank that is the only one, its own best, so far as the others are as they were."""
        peers = [k for k, d in enumerate(self._devices) if d == self._devices[r]]
        normal, usual = median_low([compute[k] for k in peers]), median_low([data[k] for k in peers])
        if len(peers) == 1:
            normal, usual = self._best[r] * median_low([c / b for c, b in zip(compute, self._best)]), 0.0
        c, i, message, slow = compute[r], data[r], median_low(links), compute[r] + data[r] > _SLOW * (normal + usual)
        by_data = i > c or slow and i - usual > c - normal
        self._long[r] = self._long[r] + wall if slow and not by_data else 0.0
        if by_data:
            return f"Input: rank {r} ({self._names[r]}) waits for its data in {i / (c + i):.0%} of its own time"
        if slow and normal > 0:
            long = f", for {self._long[r] / 3600:.1f} hours: drain this machine" if self._long[r] >= _LONG else ""
            return f"{'Machine' if long else 'Compute'}: rank {r} ({self._names[r]}) takes {c / normal:.1f} times as long as is normal for a sample{long}"
        if exchange > _EXCHANGING and links[r] > _LINK * message > 0:
            return f"Network: rank {r} ({self._names[r]}) takes {links[r] / message:.0f} times as long as is normal for a message"
        return ""
