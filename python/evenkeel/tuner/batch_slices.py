"""Batches cut and joined along their first dimension: tensors, tuples, lists and dicts of tensors, and other things with a length."""

from typing import Any, Callable

import torch


def count(batch: Any) -> int:
    """How many samples a batch holds: by its first tensor, else by the first thing in it that has a length."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 0
    if isinstance(batch, dict):
        return count(next(iter(batch.values()))) if batch else 0
    if isinstance(batch, (tuple, list)):
        return count(batch[0]) if batch and isinstance(batch[0], (torch.Tensor, dict, tuple, list)) else len(batch)
    return 0


def _map(of: Callable[[list], Any], parts: list, samples: int) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return of(parts) if first.dim() and len(first) == samples else first
    if isinstance(first, dict):
        return type(first)({k: _map(of, [p[k] for p in parts], samples) for k in first})
    if isinstance(first, (tuple, list)):
        if first and not isinstance(first[0], (torch.Tensor, dict, tuple, list)) and len(first) == samples:  # names, texts: a sample each
            return type(first)(of(parts))
        fields = [_map(of, list(f), samples) for f in zip(*parts)]
        return type(first)(*fields) if hasattr(first, "_fields") else type(first)(fields)
    return first


def cut(batch: Any, begin: int, end: int) -> Any:
    """Samples begin to end of a batch; tensors share its memory."""
    samples = count(batch)
    return batch if (begin, end) == (0, samples) else _map(lambda parts: parts[0][begin:end], [batch], samples)


def join(batches: list) -> Any:
    """One batch of several; ValueError if their samples have different shapes."""
    if len(batches) == 1:
        return batches[0]
    try:
        return _map(lambda parts: torch.cat(parts) if isinstance(parts[0], torch.Tensor) else [x for p in parts for x in p], batches, count(batches[0]))
    except RuntimeError as e:
        raise ValueError(f"samples of different shapes: {e}") from e
