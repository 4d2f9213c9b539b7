"""How long a rank's link takes for a message. Ranks leave an all-reduce together, whichever link is slow, so its time blames nobody. Here neighbours on a ring
of the ranks exchange messages both ways, pair by pair, as FALCON (Wu et al., arXiv 2410.12588) validates slow groups. A pair is slow if one of its links is;
a rank's time is that of its faster pair. With two ranks both have the same."""

import time
from typing import Any

import torch

_TAG = 4711


def message(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    """What is sent: small beside the gradients, large beside a packet."""
    size = sum(p.numel() * p.element_size() for p in parameters)
    return torch.zeros(max(size // 4, 1 << 16), dtype=torch.uint8)


def seconds(group: Any, rank: int, ranks: int, message: torch.Tensor) -> float:
    """All ranks call it at once."""
    least, signal = float("inf"), torch.zeros(1, dtype=torch.uint8)
    own = ((rank - 1) % ranks, rank)  # pair p is of ranks p and p + 1
    for pair in sorted(own, key=lambda p: (2 if p == ranks - 1 and ranks % 2 else p % 2)):
        other = (pair + 1) % ranks if pair == rank else pair
        _swap(group, other, signal)  # the other one is there
        began = time.perf_counter()
        _swap(group, other, message)
        _swap(group, other, signal)  # and has it
        least = min(least, time.perf_counter() - began)
    return least


def _swap(group: Any, other: int, message: torch.Tensor) -> None:
    works = group.send([message], other, _TAG), group.recv([torch.empty_like(message)], other, _TAG)
    for w in works:
        w.wait()
