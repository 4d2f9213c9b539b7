"""Which samples a rank takes where all ranks make the same number of micro-steps a round. Every round takes a global batch from the epoch's seeded
order, whatever the sizes, so the number of a round alone says where it stands: a job that resumes needs no other position, and a loader may draw
ahead or skip. If samples have costs, it is these that are divided in proportion to the shares, in padded micro-batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..tuner.by_cost import division, worked
from ..tuner.round_vector import Did
from ..tuner.sample_order import Plans, split
from ..tuner.step_sampler import shuffled


class EqualOrder:
    """The batch sampler of one rank, for a DataLoader over length samples. Rounds are counted over all epochs. begin comes before it is iterated."""

    def __init__(self, length: int, global_batch: int, micro_steps: int, seed: int = 0, shuffle: bool = True, drop_last: bool = False, costs: Any = None):
        self.costs = costs  # an array
        self._divided: dict[int, list[list[list[int]]]] = {}  # rounds that are not over
        self._shuffled: tuple[int, torch.Tensor] = (-1, torch.empty(0))  # an epoch and its order
        self.length, self.global_batch, self.micro_steps = length, global_batch, micro_steps
        self._seed, self._shuffle = seed, shuffle
        self.rounds = length // global_batch if drop_last else -(-length // global_batch)  # of an epoch
        self.rank, self.round, self.drawn = 0, 0, -1  # the next round to be completed; the newest one drawn
        self._most: int | None = None  # the newest round that may be drawn
        self._epoch: int | None = None  # that the trainer begins next

    def begin(self, rank: int, plan: Any, most: Sequence[int] = ()) -> None:
        """most: the largest micro-batches of the nodes, 0: unknown."""
        self.rank, self._plans = rank, Plans(plan, [m * self.micro_steps for m in most])

    def __len__(self) -> int:
        """The micro-steps of an epoch."""
        return self.rounds * self.micro_steps

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins this epoch, at its beginning."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        epoch, first = divmod(self.round, self.rounds)
        if self._epoch is not None:
            epoch, first, self._epoch = self._epoch, 0, None
        order = self._order(epoch)
        self.drawn = epoch * self.rounds + first - 1
        for number in range(epoch * self.rounds + first, (epoch + 1) * self.rounds):
            if self._most is not None and number > self._most:
                raise RuntimeError("the loader draws more than one batch for each that it hands out: new sizes would not be the same on all ranks; use a plain DataLoader")
            self.drawn = number
            if self.costs is not None:
                yield from (m or order[:1].tolist() for m in self._division(number)[self.rank])
                continue
            at = (number % self.rounds) * self.global_batch
            counts = self.counts(number)
            at += sum(counts[: self.rank])
            for n in self.sizes(number):
                yield order[at : at + n].tolist() or order[:1].tolist()  # one that does not count
                at += n

    def _order(self, epoch: int) -> torch.Tensor:
        if self._shuffled[0] != epoch:
            self._shuffled = epoch, shuffled(self.length, self._seed, epoch) if self._shuffle else torch.arange(self.length)
        return self._shuffled[1]

    def _division(self, number: int) -> list[list[list[int]]]:
        """The micro-batches of all ranks in a round, by their samples' costs."""
        if number not in self._divided:
            assert self.costs is not None
            epoch, at = divmod(number, self.rounds)
            samples = self._order(epoch)[at * self.global_batch : (at + 1) * self.global_batch].numpy()
            parts = division(self.costs[samples], self.plan(number).shares, self.micro_steps, "equal")
            self._divided = {n: d for n, d in self._divided.items() if n >= self.round}
            self._divided[number] = [[samples[m].tolist() for m in own] or [[]] * self.micro_steps for own in parts]
        return self._divided[number]

    def worked(self, number: int) -> int:
        """The samples of this rank in a round or, with costs, what it has of the round's work, in samples; at most its share."""
        if self.costs is None:
            return sum(self.sizes(number))
        return worked(self.costs, self._division(number), self.rank, self.plan(number).shares[self.rank])

    def counts(self, number: int) -> list[int]:
        """The samples of all ranks in a round."""
        if self.costs is not None:
            return [sum(map(len, own)) for own in self._division(number)]
        shares, total = self.plan(number).shares, self._total(number)
        return list(shares) if sum(shares) == total else split(total, shares)

    def _total(self, number: int) -> int:
        return min(self.global_batch, self.length - (number % self.rounds) * self.global_batch)

    def sizes(self, number: int) -> list[int]:
        """The micro-batches of this rank in a round; 0: a sample is there, and does not count."""
        if self.costs is not None:
            return [len(m) for m in self._division(number)[self.rank]]
        return split(self.counts(number)[self.rank], [1] * self.micro_steps)

    def plan(self, number: int) -> Any:
        return self._plans.at(number)

    def adopt(self, plan: Any, drawn: int) -> None:
        """The sizes of plan hold from the round after drawn, the newest that any rank has drawn."""
        self._plans.adopt(plan, drawn, self.round)
        self._divided = {n: d for n, d in self._divided.items() if self.round <= n <= drawn}

    def delay(self, did: Sequence[Did]) -> None:
        """What the nodes announce."""
        self._plans.delay(did, self.round)
        drawn = max(d.drawn for d in did)
        self._divided = {n: d for n, d in self._divided.items() if n <= drawn}

    def hold(self) -> int:
        """The newest round that this rank draws until release: one more than now."""
        self._most = self.drawn + 1
        return self._most

    def release(self) -> None:
        """All ranks have what they told one another."""
        self._most = None
