"""Which samples the ranks of a job take: each epoch has one seeded order, cut by sizes that all ranks agree on, with every sample once.

Batches is a batch sampler for torch's DataLoader. Rounds that wait for all cut the order into global batches, each global batch by the ranks'
shares, and each share into micro-steps, which are the sampler's batches. Rounds with a deadline cannot, since the work that a rank gets done is not known beforehand. There the rest of the epoch is dealt out to the
ranks by their shares, each rank works through its part, and samples that are left over are dealt out anew, before a rank runs out and at the epoch's
end. A DataLoader asks for batches long before they are used. So new sizes hold from a round that no rank has drawn yet (Batches.adopt), and a batch's
data (its round, how many of its samples count) waits in a queue until the batch comes out (Batches.arrived).
"""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .by_cost import division, worked
from .pauses import delayed
from .round_vector import Did
from .step_sampler import shuffled


def split(total: int, shares: Sequence[int]) -> list[int]:
    """total in proportion to shares, in whole numbers: by largest remainder; ties go to the lower rank."""
    whole = sum(shares)
    counts = [total * s // whole for s in shares]
    by_remainder = sorted(range(len(shares)), key=lambda r: (-(total * shares[r] % whole), r))
    for r in by_remainder[: total - sum(counts)]:
        counts[r] += 1
    return counts


class Plans:
    """Which plan holds in which round. All ranks make the same calls. most: the largest shares in rounds that begin late on other ranks (none: any)."""

    def __init__(self, first: Any, most: Sequence[int] = ()):
        self._from, self._most = [(0, first)], most
        self._late: dict[int, list[float]] = {}

    def at(self, number: int) -> Any:
        """The plan of a round; of one before those kept, the oldest."""
        plan = next((p for first, p in reversed(self._from) if first <= number), self._from[0][1])
        late = self._late.get(number)
        return dataclasses.replace(plan, number=0, shares=delayed(plan.shares, late, self._most)) if late else plan  # not the service's

    def delay(self, did: Sequence[Did], done: int) -> None:
        """Rounds before which ranks announce a pause have shares of their own, if no rank has drawn them yet; those before done are over."""
        drawn = max(d.drawn for d in did)
        self._late = {n: late for n, late in self._late.items() if done <= n <= drawn}
        for number in {d.pause_before for d in did if d.pause_before > drawn}:
            paces = [d.samples / (d.seconds + d.input) if d.samples and d.seconds > 0 else 0.0 for d in did]
            self._late[number] = [d.pause * p if d.pause_before == number else 0.0 for d, p in zip(did, paces)]

    def adopt(self, plan: Any, drawn: int, done: int) -> None:
        """plan holds from the round after drawn, the newest that any rank has drawn; those before done are over."""
        self._from = [p for p in self._from if p[0] <= drawn] + [(drawn + 1, plan)]
        while len(self._from) > 1 and self._from[1][0] <= done:
            self._from.pop(0)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a batch of the sampler is for. A rank without samples in a round draws one that does not count, because its loop must run, too."""

    samples: int  # of the batch that count
    own: int = 0  # of this rank in the round
    work: int | None = None  # those that its share of the round's work is worth, if samples cost unequally
    total: int = 0  # of all ranks in this round; with a deadline 0: known when it is over
    plan: Any = None  # whose sizes cut the round
    round: int = -1
    deal: int = -1


class Batches:
    """The batch sampler of one rank, over length samples. plan: the first one. chunk: samples of a batch if the order is dealt out. deal: rounds have
    deadlines. drop_last: an epoch ends where too few samples are left for a whole round. costs of samples, an array: the ranks share these, each in at
    most micro_steps micro-steps. All ranks make the same calls, except of __iter__ and arrived."""

    def __init__(
        self,
        length: int,
        rank: int,
        plan: Any,
        seed: int = 0,
        shuffle: bool = True,
        deal: bool = False,
        chunk: int = 0,
        drop_last: bool = False,
        costs: Any = None,
        micro_steps: int = 0,
    ):
        self.length, self.rank, self.seed, self.shuffle = length, rank, seed, shuffle
        self.costs, self._micro_steps = costs, micro_steps
        self.dealing, self.chunk, self._drop_last = deal, chunk, drop_last
        self.divide: Callable[[Any, int], list[int]] = lambda _, share: [share]  # the micro-steps of a share by a plan, in rounds that wait for all
        self.epoch = 0
        self.round = 0  # of the next round that is to be completed
        self.drawn = -1  # the newest round that the sampler has drawn
        self.deal = 0  # how often the order was dealt out
        self._events: list[list] = []  # of this epoch, for state_dict: what was taken from the order
        self._left, self._gone = self._order(), 0  # the first of them were used, in rounds that wait for all
        self._parts: list[torch.Tensor] = []  # by rank, where the order is dealt out
        self._used: list[int] = []
        self._plans = Plans(plan)
        self._queue: collections.deque = collections.deque()
        self._most: int | None = None  # the newest round that may be drawn, while the ranks agree on sizes
        self._ahead = 0
        self._main = threading.current_thread()

    def _order(self) -> torch.Tensor:
        return shuffled(self.length, self.seed, self.epoch) if self.shuffle else torch.arange(self.length)

    @property
    def left(self) -> int:
        """Samples of the epoch that no completed round has used, and one will."""
        if self._parts:
            left = sum(len(p) - u for p, u in zip(self._parts, self._used))
        else:
            left = len(self._left) - self._gone
        return left if left >= self._fewest(self.plan(self.round)) else 0

    def _fewest(self, plan: Any) -> int:
        """The samples below which an epoch ends."""
        return sum(plan.shares) if self._drop_last else 1

    @property
    def own(self) -> int:
        """Samples of this rank's part that are not used."""
        return len(self._parts[self.rank]) - self._used[self.rank]

    def plan(self, number: int) -> Any:
        """The plan of a round."""
        return self._plans.at(number)

    def adopt(self, plan: Any, drawn: int) -> None:
        """The sizes of plan hold from the round after drawn, the newest that any rank has drawn."""
        self._plans.adopt(plan, drawn, self.round)

    def delay(self, did: Sequence[Did]) -> None:
        """What the ranks announce."""
        self._plans.delay(did, self.round)

    def __len__(self) -> int:
        """Rounds until the epoch ends, as far as sizes stay and all shares are worked off."""
        total = sum(self.plan(self.round).shares)
        left = self.left or self.length
        return left // total if self._drop_last else -(-left // total)

    def begin(self) -> None:
        """Before the rank's loop: the next epoch, if this one is used up; what was drawn and not used is forgotten."""
        if self.left == 0:
            self.epoch += 1
            self._events, self._parts, self._left, self._gone = [], [], self._order(), 0
        self._queue.clear()
        self.drawn = self.round - 1
        if self.dealing:
            self._deal_out()

    def __iter__(self) -> Iterator[list[int]]:
        return self._dealt() if self.dealing else self._rounds()

    def arrived(self) -> Drawn:
        """What the next batch of the loader is for, in the order in which they were drawn."""
        return self._queue.popleft()

    # Rounds that wait for all.

    def _rounds(self) -> Iterator[list[int]]:
        left, number = self._left[self._gone :], self.round
        while len(left) >= self._fewest(self.plan(number)):
            plan = self.plan(number)
            total = sum(plan.shares)
            counts = plan.shares
            if total > len(left):
                total = len(left)
                counts = split(total, plan.shares)
            first = sum(counts[: self.rank])
            own = left[first : first + counts[self.rank]]
            if self._most is not None and number > self._most:
                self._wait()
                continue
            self.drawn, at = number, 0
            if self.costs is not None:
                yield from self._by_cost(left[:total], plan, number)
                left, number = left[total:], number + 1
                continue
            for n in self.divide(plan, len(own)) or [0]:
                self._queue.append(Drawn(n, len(own), None, total, plan, number))
                yield own[at : at + n].tolist() or left[: self._stand_in(plan)].tolist()
                at += n
            left, number = left[total:], number + 1

    def _by_cost(self, samples: torch.Tensor, plan: Any, number: int) -> Iterator[list[int]]:
        costs = self.costs[samples.numpy()]
        parts = division(costs, plan.shares, self._micro_steps, "free")
        own, work = [m for m in parts[self.rank] if m], worked(costs, parts, self.rank, plan.shares[self.rank])
        for m in own or [[]]:
            self._queue.append(Drawn(len(m), sum(map(len, own)), work, len(samples), plan, number))
            yield samples[m].tolist() or samples[:1].tolist()

    def _stand_in(self, plan: Any) -> int:
        """The samples of a batch that does not count: two where they fit, because batch normalisation takes no single one."""
        return self.divide(plan, 2)[0]

    def hold(self, ahead: int) -> int:
        """The newest round that this rank draws until release: ahead more than now."""
        self._ahead, self._most = ahead, self.drawn + ahead
        return self._most

    def release(self) -> None:
        """All ranks have what they told one another."""
        self._most = None

    def _wait(self) -> None:
        """Loaders that read in a thread of their own may ask while the ranks agree, which is over soon."""
        if threading.current_thread() is self._main or self._ahead:
            raise RuntimeError("the loader draws more than one batch for each that it hands out: new sizes would not be the same on all ranks; use a plain DataLoader")
        time.sleep(0.0005)

    def completed(self, total: int) -> None:
        """A round of total samples is over: it will not come again."""
        self._gone += total
        self.round += 1
        if self._events and self._events[-1][0] == "take":
            self._events[-1][1] += total
        else:
            self._events.append(["take", total])

    # Rounds with a deadline.

    def _deal_out(self) -> None:
        self._gather()
        shares = self.plan(self.round).shares
        counts = split(len(self._left), shares)
        self._parts = list(torch.split(self._left, counts))
        self._used = [0] * len(counts)
        self.deal += 1
        self._events.append(["deal", counts, self._used])

    def _gather(self) -> None:
        """What was dealt out and is left over is in the order again, first to last rank."""
        if self._parts:
            self._left = torch.cat([p[u:] for p, u in zip(self._parts, self._used)])
            self._parts = []

    def _dealt(self) -> Iterator[list[int]]:
        while self.left:
            deal, own = self.deal, self._parts[self.rank]
            at = self._used[self.rank]
            while deal == self.deal and at < len(own):
                some = own[at : at + self.chunk]
                at += len(some)
                self._queue.append(Drawn(len(some), deal=deal))
                yield some.tolist()
            while deal == self.deal and self.left:  # the loader asks ahead: nothing of this part is left
                self._queue.append(Drawn(0, deal=deal))
                yield list(range(min(self._stand_in(self.plan(self.round)), self.length)))

    def used(self, counts: Sequence[int]) -> None:
        """A round is over in which the ranks used so many samples of their parts."""
        for r, n in enumerate(counts):
            if not 0 <= n <= len(self._parts[r]) - self._used[r]:
                raise ValueError(f"rank {r} used {n} samples of {len(self._parts[r]) - self._used[r]}")
            self._used[r] += n
        self.round += 1
        if self._scarce():
            self._deal_out()

    def last(self) -> bool:
        """Whether the round takes all that is left of the epoch: it has no deadline then."""
        return self.left <= sum(self.plan(self.round).shares)

    def _scarce(self) -> bool:
        """A rank might run out of samples in the coming round."""
        shares = self.plan(self.round).shares
        return self.left > 0 and (self.last() or any(len(p) - u < 2 * s for p, u, s in zip(self._parts, self._used, shares)))

    # Files.

    def state_dict(self) -> dict[str, Any]:
        """The job's position in its data: plain numbers, the same on all ranks, for any number of ranks."""
        events = [[e[0], *(list(x) if isinstance(x, list) else x for x in e[1:])] for e in self._events]
        return {"version": 1, "length": self.length, "seed": self.seed, "shuffle": self.shuffle, "epoch": self.epoch, "events": events}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["version"] != 1:
            raise ValueError(f"state of version {state['version']}; this program reads 1")
        for k in ("length", "seed", "shuffle"):
            if state[k] != getattr(self, k):
                raise ValueError(f"the state is of a job with {k} {state[k]}, this one has {getattr(self, k)}: pass batches() the same")
        self.epoch = state["epoch"]
        self._events, self._parts, self._left, self._gone = [], [], self._order(), 0
        for event in state["events"]:
            if event[0] == "take":
                self._left = self._left[event[1] :]
                self._events.append(["take", event[1]])
                continue
            self._parts, self._used = list(torch.split(self._left, event[1])), list(event[2])
            self._events.append(["deal", list(event[1]), self._used])
            self._gather()
