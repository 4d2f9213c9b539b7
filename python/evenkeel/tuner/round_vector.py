"""What all ranks exchange once a round: one vector of float64 that is summed. Every rank fills its own places, and rank 0 the newest sizes."""

import array
import dataclasses
import struct
from collections.abc import Sequence

import torch

from .client import Plan


@dataclasses.dataclass
class Did:
    """What one rank did in a round."""

    seconds: float = 0.0  # of forward and backward
    samples: int = 0
    micro_steps: int = 0
    norm_squared: float = 0.0  # of its mean gradient; 0: not measured
    out_of_memory: int = 0  # the micro-batch that did not fit
    input: float = 0.0  # seconds beyond that, because of its data
    drawn: int = 0  # the newest round that its sampler has drawn, or will have when the vector is read
    link: float = 0.0  # seconds that its link takes for a message; 0: not measured
    pause: float = 0.0  # seconds by which it begins a coming round late
    pause_before: int = 0  # that round; 0: none


_OWN = len(dataclasses.fields(Did))
_ALL, _EACH = 8, 5  # for all ranks, the norm before, whether links are measured, and of a plan; for each, of a plan


def length(ranks: int) -> int:
    return _OWN * ranks + _ALL + _EACH * ranks


def norm_of(rank: int) -> int:
    """Where a rank's norm stands."""
    return _OWN * rank + [f.name for f in dataclasses.fields(Did)].index("norm_squared")


def norm_before(ranks: int) -> int:
    """The place of the norm of the gradient of the round before, which rank 0 fills if vectors are read late."""
    return _OWN * ranks


class RoundVector:
    """One rank's vector, filled anew each round: what pack returns is valid until the next call."""

    def __init__(self, rank: int, ranks: int):
        self.rank, self.ranks = rank, ranks
        self.values = array.array("d", [0.0] * length(ranks))
        self._bytes, self._zeros = memoryview(self.values).cast("B"), bytes(8 * length(ranks))
        self._tensor = torch.frombuffer(self.values, dtype=torch.float64)  # shares the memory

    def pack(self, did: Did, plan: Plan | None, probe: bool = False) -> torch.Tensor:
        """On rank 0 alone, plan: None if it is no news; probe: all ranks measure their links when they have the vector."""
        ranks, into = self.ranks, self.values
        self._bytes[:] = self._zeros
        struct.pack_into(f"{_OWN}d", into, 8 * _OWN * self.rank, *vars(did).values())
        if plan is not None:
            timed = plan.deadline > 0
            struct.pack_into(f"{_ALL}d", into, 8 * _OWN * ranks, 0.0, 0.0, plan.number, plan.era, plan.deadline, plan.reserve, plan.whole, plan.overtime)
            for k, of in enumerate((plan.shares, plan.micro_batches, plan.seconds, plan.micro_step, plan.least)[: _EACH if timed else 2]):
                struct.pack_into(f"{len(of)}d", into, 8 * (_OWN * ranks + _ALL + k * ranks), *of)
        into[_OWN * ranks + 1] = float(probe)
        return self._tensor


def unpack(v: Sequence[float], ranks: int) -> tuple[list[Did], Plan | None, bool]:
    did = []
    for r in range(ranks):
        seconds, samples, steps, norm, memory, waited, drawn, link, pause, before = v[_OWN * r : _OWN * (r + 1)]
        did.append(Did(seconds, int(samples), int(steps), norm, int(memory), waited, int(drawn), link, pause, int(before)))
    _, probe, number, era, deadline, reserve, whole, overtime = v[_OWN * ranks : _OWN * ranks + _ALL]
    if not number:
        return did, None, bool(probe)
    each = [v[_OWN * ranks + _ALL + k * ranks :][:ranks] for k in range(_EACH)]
    shares, micro, least = ([int(x) for x in each[k]] for k in (0, 1, 4))
    if not deadline:
        return did, Plan(int(number), shares, micro, era=int(era)), bool(probe)
    return did, Plan(int(number), shares, micro, deadline, reserve, bool(whole), overtime, list(each[2]), list(each[3]), least, int(era)), bool(probe)
