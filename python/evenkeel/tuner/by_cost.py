"""A round whose samples cost unequally: ranks share costs instead of samples, in padded micro-batches."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy

from ..bucket.partition import partition
from .errors import Usage


def checked(costs: Any, length: int, limited: bool) -> Any:
    """What the user gave as costs, as an array; None: nothing. limited: something that counts samples was given, too."""
    if costs is None:
        return None
    try:
        costs = numpy.asarray(costs, float)
    except (TypeError, ValueError):  # words
        costs = numpy.zeros(0)
    if costs.shape != (length,) or not ((costs >= 0) & (costs < numpy.inf)).all():
        raise Usage(f"costs: give {length} numbers from 0, one per sample")
    if limited:
        raise Usage("costs: limits of micro-batches and deadlines count samples; leave them out beside costs")
    return costs


def mark(costs: Any) -> str:
    """By which ranks see that they have the same."""
    return "none" if costs is None else hex(zlib.crc32(costs.tobytes()))


def division(costs: Any, shares: Sequence[int], micro_steps: int, counts: str) -> list[list[list[int]]]:
    """For each rank its micro-batches, as positions in costs, an array; of a rank without a share none. micro_steps and counts are partition's."""
    parts = iter(partition(costs, [s for s in shares if s], counts, micro_batches=micro_steps, padded=True))
    return [next(parts) if s else [] for s in shares]


def worked(costs: Any, parts: list[list[list[int]]], rank: int, share: int) -> int:
    """What a rank has of a round's work, in samples: as many as its share at most."""
    work = [sum(len(m) * max(costs[m]) for m in own if m) for own in parts]
    own = round(sum(len(m) for part in parts for m in part) * work[rank] / (sum(work) or 1.0))
    return min(max(own, any(parts[rank])), share)
