"""What the ranks exchange once a round, and rank 0 with the service: times, samples and norms one way, sizes the other. All of it is in one vector
that is all-reduced with the last bucket (round_vector.py). On CUDA this does not wait for the device, unless rounds have a deadline: compute time is
measured by two events that are read a round later, like the vector. These paths have not been run on a device yet.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from . import client, link, round_vector
from .gradient_hook import Round
from .local import LocalClient
from .sample_order import Batches
from .round_vector import Did
from .micro_steps import MicroSteps
from .pauses import Pauses


@dataclasses.dataclass
class Past:
    """A round whose report is not complete yet."""

    number: int
    plan: client.Plan
    wait: float  # seconds
    did: list[Did] = dataclasses.field(default_factory=list)


_EXCHANGING = 0.2  # share of a round's time that the exchange of gradients takes where it matters whose link is slow
_USUAL = 0.1  # rate of the moving average of the time that is lost to the slowest rank
_WORTH = 0.1  # share of what a round lost beyond that, which waiting for new sizes may take
_PATIENCE = 0.2  # share of it for which rank 0 waits for the decision, at most
_FORGOTTEN = 0.02  # share by which what waiting took counts less after each round without
_PROBING = 0.02  # share of the time in which links are measured, at most


class RoundExchange:
    """One rank's side. begin once, round and finish for each round, start and took for each micro-step."""

    def __init__(self, model: Any, clock: Any):
        self._clock = clock
        self.group = model.process_group
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self._parameters = [p for p in model.module.parameters() if p.requires_grad]
        self.device = self._parameters[0].device
        self.shared = False  # whether the ranks have anything to exchange
        self.late = False  # a round's vector is read a round later (CUDA)
        self.spent = 0.0  # seconds of this object's own work, in this round
        self._client: client.Client | LocalClient | None = None
        self._alike = False  # all ranks decide, by the same numbers
        self._arriving: tuple[Any, Any, Past] | None = None  # the vector of the round before, its event, its round
        self._timed: tuple[Any, Any] | None = None  # events at begin and end of the round before
        self._untimed: Past | None = None  # the round whose times come with the next vector
        self._waited = self._gap = 0.0  # seconds for the loader in the round before, and in which the device had nothing to do before this one
        self._usual = self._lost = 0.0  # seconds that rounds lose to the slowest rank; those that the one before lost beyond
        self._price, self._told = 0.005, 0.0  # seconds that waiting for sizes took last, before that a guess; of these for telling the other ranks
        self._norm: torch.Tensor | None = None  # of the gradient of the round before, where vectors are read late
        self._probe, self._probe_after, self._link = False, 0.0, 0.0  # links are to be measured, not before then; seconds for a message
        self.pauses = Pauses()
        self._vector = round_vector.RoundVector(self.rank, self.ranks)

    def begin(self, batches: Batches, own: "client.Client | LocalClient | None", first: client.Plan | None, serving: bool) -> None:
        """Begins a job. own is the client of the service, on rank 0 alone, or each rank's LocalClient; first is the plan that all ranks have; serving says
        whether somebody decides."""
        self._batches, self._client, self._news = batches, own, client.News(own, first)
        self._alike = isinstance(own, LocalClient)
        self.shared = serving or batches.dealing
        self._events = self.device.type == "cuda" and not batches.dealing
        self.late = self._events

    def round(self, work: MicroSteps) -> None:
        self.did, self.spent, self._work = Did(), 0.0, work
        self.pauses.began(work.number, work.began)
        if self._events:
            self._began = torch.cuda.Event(enable_timing=True)
            self._began.record()

    def start(self, size: int) -> None:
        """A micro-step is handed out."""
        self._size, self._took = size, None
        self._at = self._clock()

    def took(self, now: float | None = None) -> float:
        """Seconds of the micro-step until now, or until the first call."""
        if self._took is None:
            if self.device.type == "cuda" and not self._events:
                torch.cuda.current_stream(self.device).synchronize()
                now = None
            self._took = (self._clock() if now is None else now) - self._at
            if self._size:
                self.did.samples += self._size
                self.did.micro_steps += 1
                self.did.seconds += self._took
        return self._took

    def again(self, size: int) -> None:
        """A micro-step of this size did not fit: the round begins anew."""
        self.did = Did(out_of_memory=size)

    def fill(self, r: Round, now: float) -> torch.Tensor | None:
        """The vector that is all-reduced with the last bucket."""
        self.took(now)
        if not self.shared:
            return None
        did, b, norm = self.did, self._batches, self._norm
        did.drawn = b.hold(int(self.late))
        did.link, self._link = self._link, 0.0
        work = self._work
        did.pause, did.pause_before = self.pauses.next(work.number)
        did.input = work.input.beyond(did.samples, work.waited, did.seconds)
        if work.work is not None:
            did.samples = work.work
            did.micro_steps = min(did.micro_steps, did.samples)  # the service knows none without samples
        if self.late:
            did = dataclasses.replace(did, seconds=self._seconds(), input=self._waited)
            self._waited = min(self._work.waited, self._gap)
        base = (r.total or r.expected) / r.weight if r.weight else 0.0  # the hook scales by unit / (total or expected); the rank's mean needs unit / weight
        on_device = self.device.type != "cpu"
        if not on_device:
            did.norm_squared = _sum(r.norms) * base**2
        v, self._probe = self._vector.pack(did, None if self._alike else self._news.take(), self._probe), False
        if on_device:
            v = v.to(self.device)
        if on_device and r.norms and base:
            v[round_vector.norm_of(self.rank)] = torch.stack(r.norms).sum() * base**2  # stays on the device
        if self.late and self.rank == 0 and norm is not None:
            v[round_vector.norm_before(self.ranks)] = norm
        return v

    def _seconds(self) -> float:
        """Seconds of the round before, by its events, which have passed by now."""
        ended = torch.cuda.Event(enable_timing=True)
        ended.record()
        before, self._timed = self._timed, (self._began, ended)
        if before is None:
            return 0.0
        before[1].synchronize()
        self._began.synchronize()
        self._gap = before[1].elapsed_time(self._began) / 1e3
        return before[0].elapsed_time(before[1]) / 1e3

    def finish(self, r: Round) -> None:
        """The round is over: its results hold for all ranks from now on."""
        began, work = self._clock(), self._work
        past = Past(work.number, work.plan, began - work.began)
        if not self.shared:
            self._batches.completed(work.total)
            return
        v, working = r.vector, r.working
        waited = self._clock()
        working.wait()
        if not self.late:
            waited = self._clock() - waited
            self._learn(self._vector.values if self.device.type == "cpu" else v.tolist(), past, _sum(r.sums))
        else:
            self._norm = torch.stack(r.sums).sum() if r.sums else None
            host = torch.empty(v.shape, dtype=v.dtype, pin_memory=v.is_cuda)
            host.copy_(v, non_blocking=True)
            passed = torch.cuda.Event() if v.is_cuda else None
            if passed:
                passed.record()
            waited = self._clock() - waited
            self.settle()
            self._arriving = host, passed, past
            self._batches.completed(work.total)
        now = self._clock()
        self.pauses.ended(now)
        self.spent += now - began - waited

    def settle(self) -> None:
        """Reads the vector of the round before, if that was left for later; call it while no batch is drawn."""
        if self._arriving is not None:
            (host, passed, past), self._arriving = self._arriving, None
            if passed:
                passed.synchronize()
            self._learn(host.tolist(), past)

    def _learn(self, v: Sequence[float], past: Past, norm: float = 0.0) -> None:
        past.did, plan, probe = round_vector.unpack(v, self.ranks)
        b, timed = self._batches, past
        if self.late:
            timed, self._untimed, norm = self._untimed, past, v[round_vector.norm_before(self.ranks)]
            if timed is not None:
                for d, now in zip(timed.did, past.did):
                    d.seconds, d.input = now.seconds, now.input
        if timed is not None:
            self._report(timed, norm)
        if self._alike:
            plan = self._news.take()
        elif not self.late and self.device.type == "cpu" and not b.dealing:
            plan = self._awaited(past) or plan
        if plan is not None:
            b.adopt(plan, past.number if b.dealing else max(d.drawn for d in past.did))
            if b.dealing:
                b.chunk = max(1, plan.micro_batches[self.rank])
        if not b.dealing:
            b.delay(past.did)
        if not self.late:
            b.release()
            if b.dealing:
                b.used([d.samples for d in past.did])
            else:
                b.completed(self._work.total)
            if probe:
                self._measure_link()

    def _awaited(self, past: Past) -> client.Plan | None:
        """The sizes by this round, where it or the one before lost so much more than others that they are worth waiting for, and no loader has drawn the
        next one. Otherwise they come with the next vector, and one more round is as uneven. All ranks judge alike, by the same numbers."""
        times = [d.seconds + d.input for d in past.did if d.samples]
        lost = max(times, default=0.0) - sum(times) / max(len(times), 1)
        before, self._lost = self._lost, lost - self._usual
        self._usual += _USUAL * (lost - self._usual)
        lost = max(before, self._lost)
        if lost <= 0 or _WORTH * lost < self._price or max(d.drawn for d in past.did) > past.number:
            self._price *= 1 - _FORGOTTEN
            return None
        began = self._clock()
        if isinstance(self._client, client.Client):  # on rank 0
            self._client.decided(_PATIENCE * lost)
        decided = self._clock()
        price = Did(seconds=decided - began + self._told) if self.rank == 0 else Did()
        dist.broadcast(self._vector.pack(price, self._news.take()), dist.get_global_rank(self.group, 0), self.group)
        now = self._clock()
        self._told = now - decided
        self.spent -= now - began
        did, plan, _ = round_vector.unpack(self._vector.values, self.ranks)
        self._price = did[0].seconds
        return plan

    def _measure_link(self) -> None:
        began = self._clock()
        self._link = link.seconds(self.group, self.rank, self.ranks, link.message(self._parameters))
        now = self._clock()
        self._probe_after = now + (now - began) / _PROBING

    def _report(self, past: Past, norm: float) -> None:
        if self._client is None:
            return
        self._client.offer(report(past, norm), past.plan)
        if not self._alike and self.device.type == "cpu" and self.ranks > 2 and self._clock() >= self._probe_after:
            self._probe = past.wait - max(d.seconds + d.input for d in past.did) > _EXCHANGING * past.wait

    def close(self) -> None:
        if self._arriving is not None:
            self.settle()
        if self._client is not None:
            self._client.close()


def report(past: Past, norm: float = 0.0) -> dict[str, Any]:
    """What the service learns of a round. norm is the squared norm of its gradient, 0: not measured."""
    ranks: list[Any] = []
    for d, share in zip(past.did, past.plan.shares):
        own = {"seconds": d.seconds, "samples": d.samples, "micro_steps": d.micro_steps, "out_of_memory": d.out_of_memory}
        if d.input > 0:
            own["input_seconds"] = d.input
        if d.link > 0:
            own["link_seconds"] = d.link
        if d.norm_squared > 0:
            own["norm_squared"] = d.norm_squared
        ranks.append(own if d.samples or share else None)  # with a share and no samples, at an epoch's end: it is not silent
    body = {"round": past.number, "plan": past.plan.number, "wait_seconds": past.wait, "ranks": ranks}
    if norm > 0:
        body["norm_squared"] = norm
    return body


def _sum(squares: list[torch.Tensor]) -> float:
    if squares and squares[0].device.type != "cpu":
        return float(torch.stack(squares).sum())  # waits once
    return sum(map(float, squares))
