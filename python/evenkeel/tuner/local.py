"""Sizes without a service: shares in inverse proportion to the ranks' measured paces, limited by their memory. It stands in for the service's client
(client.Client) on each rank: all of them decide alike, by the numbers that they exchange, and the next round has the new sizes. What the service adds: deadlines, the belief by gradient noise and trust, limits that outlive the job, nodes left out, and a view
of it all.
"""

import collections
import statistics
from collections.abc import Sequence
from typing import Any

from .client import Plan

_ROUNDS = 8  # that a pace is the median of, while nothing changes
_JUMP = 1.25  # a pace has changed if the newest two rounds lie beyond this factor of the median, on the same side
_SPREADS = 6  # or if the newest one lies beyond that by so many median deviations
_WORTH = 0.02  # share of a round that new sizes must save


class LocalClient:
    """Decides by the reports of all ranks. most are the largest micro-batches of the ranks, 0: any. micro_steps: of each rank in each round, 0: as many
    as its share needs. Shares are multiples of unit, as global_batch and most are."""

    def __init__(self, global_batch: int, most: list[int], micro_steps: int = 0, unit: int = 1):
        self._batch, self._most, self._steps, self._unit = global_batch, list(most), micro_steps, unit
        self._paces: list[collections.deque[float]] = [collections.deque(maxlen=_ROUNDS) for _ in most]
        self._rounds = 0
        self.newest: Plan = self._plan(1, self._fill([1.0] * len(most)))

    def offer(self, report: dict[str, Any], ran: Plan) -> None:
        """Takes in a round. The first one warms up: its paces hold until there are others."""
        self._rounds += 1
        if self._rounds == 2:
            for p in self._paces:
                p.clear()
        ranks = report["ranks"]
        for r, own in enumerate(ranks):
            if own and own["out_of_memory"]:
                self._most[r] = max(own["out_of_memory"] // 2, 1)
            elif own and own["samples"] and own["seconds"] > 0:
                self._measured(self._paces[r], (own["seconds"] + own.get("input_seconds", 0.0)) / own["samples"])
        if not all(self._paces):
            return
        paces = [statistics.median(p) for p in self._paces]
        shares = self._fill(paces)
        before = self.newest.shares
        worth = max(p * s for p, s in zip(paces, before)) * (1 - _WORTH) > max(p * s for p, s in zip(paces, shares))
        if worth or any(own and own["out_of_memory"] for own in ranks):
            self.newest = self._plan(self.newest.number + 1, shares if worth else before)

    def close(self) -> None:
        """Nothing is left to do."""

    def _measured(self, paces: "collections.deque[float]", pace: float) -> None:
        if len(paces) > 2:
            middle, last = statistics.median(paces), paces[-1]
            alone = _JUMP + _SPREADS * statistics.median(abs(p - middle) for p in paces) / middle
            if pace > middle * alone or pace < middle / alone:
                paces.clear()
            elif min(pace, last) > middle * _JUMP or max(pace, last) < middle / _JUMP:
                paces.clear()
                paces.append(last)
        paces.append(pace)

    def _fill(self, paces: list[float]) -> list[int]:
        unit = self._unit
        return [unit * n for n in fill(self._batch // unit, paces, max(self._steps, 1), [self._steps * m // unit for m in self._most])]

    def _plan(self, number: int, shares: list[int]) -> Plan:
        return Plan(number, shares, [-(-s // self._steps) if self._steps else min(m, s) if m else s for m, s in zip(self._most, shares)])


def fill(batch: int, paces: list[float], least: int, most: list[int], late: Sequence[float] = ()) -> list[int]:
    """The shares of a batch by which the slowest rank ends first, in whole samples; each rank keeps the least where there are enough, so that it stays
    measured, and takes at most its most (0: any) where the others can take the rest. late are seconds by which ranks begin late."""
    ranks, late = range(len(paces)), late or [0.0] * len(paces)
    least = least if batch >= least * len(paces) else 0
    caps = [m or batch for m in most]

    def by(seconds: float) -> list[int]:
        return [min(max(int((seconds - d) / p), least), c) for p, c, d in zip(paces, caps, late)]

    low = (batch + sum(d / p for p, d in zip(paces, late))) / sum(1 / p for p in paces)  # without limits no division ends before that
    if not batch - len(paces) <= sum(by(low)) <= batch:  # by limits
        low, high = 0.0, batch * max(paces) + max(late)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(by(middle)) <= batch else (low, middle)
    shares = by(low)
    for _ in range(batch - sum(shares)):
        shares[min(ranks, key=lambda r: (shares[r] >= caps[r], late[r] + paces[r] * (shares[r] + 1), r))] += 1
    return shares
