"""Batches and outputs of models, whatever they are made of: tensors and arrays in lists, tuples, mappings and dataclasses."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .errors import Usage


def map_tensors(of: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    """The same structure of other tensors."""
    if isinstance(x, torch.Tensor):
        return of(x)
    parts = _parts(x)
    return x if parts is None else _of_parts(x, [map_tensors(of, v) for v in parts])


def tensors(x: Any) -> list[torch.Tensor]:
    """Those that x is made of."""
    return [x] if isinstance(x, torch.Tensor) else [t for v in _parts(x) or () for t in tensors(v)]


def cut(batch: Any, samples: int, begin: int, end: int) -> Any:
    """Samples begin to end of a batch; tensors share its memory. By this rule: the first dimension of every tensor and array is the samples; a list or tuple
    has either fields, each of which is cut, or one item for each sample; numbers, None and tensors without a dimension belong to all samples. Usage for any
    other batch."""
    return batch if (begin, end) == (0, samples) else _cut(batch, samples, begin, end, "the batch")


def ambiguous(x: Any, samples: int) -> bool:
    """Whether another dimension of a tensor is as long as the first, so that the rule of cut may have taken the wrong one."""
    if hasattr(x, "shape"):
        return samples in tuple(x.shape)[1:]
    return any(ambiguous(v, samples) for v in _parts(x) or ())


def _cut(x: Any, samples: int, begin: int, end: int, what: str) -> Any:
    """What cut returns for x, a part of the batch called what: x itself if nothing in it is cut."""
    if hasattr(x, "shape") and hasattr(x, "__getitem__"):
        if len(x.shape) == 0:
            return x
        if x.shape[0] != samples:
            raise Usage(f"{what} has the shape {list(x.shape)}, and the sampler drew {samples} samples: its first dimension is not the samples. {_REMEDY}")
        return x[begin:end]
    if x is None or isinstance(x, _SHARED):
        return x
    items = _items(x, samples)
    if items is None:
        raise _Either(f"{what} has {samples} parts for {samples} samples: they may be fields, or a sample each. {_REMEDY}")
    if items:
        return type(x)(x[begin:end])
    parts = _parts(x)
    if parts:
        cuts = [_cut(v, samples, begin, end, f"{what}[{k!r}]") for k, v in zip(_keys(x), parts)]
        return x if all(c is v for c, v in zip(cuts, parts)) else _of_parts(x, cuts)
    raise Usage(f"{what} is a {type(x).__name__}, and it is not known how to cut it. {_REMEDY}")


class _Either(Usage):
    """A batch that can be cut in two ways."""


_SHARED = (bool, int, float, complex)
_REMEDY = "Give batches(cut=f), where f(batch, begin, end) returns samples begin to end of a batch"


def join(batches: list[Any], samples: list[int]) -> Any:
    """One batch of several that cut can cut; ValueError if their samples have different shapes."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, torch.Tensor):
        try:
            return torch.cat(batches) if first.dim() else first
        except RuntimeError as e:
            raise ValueError(f"samples of different shapes: {e}") from e
    if hasattr(first, "shape"):
        raise ValueError(f"{type(first).__name__}: only tensors are joined")
    kinds = {_items(b, n) for b, n in zip(batches, samples)} - {None}  # what one of them is, all are
    if not kinds:
        raise ValueError("fields, or an item for each sample")
    if True in kinds:
        return type(first)(v for b in batches for v in b)
    parts = [_parts(b) for b in batches]
    return first if parts[0] is None else _of_parts(first, [join(list(field), samples) for field in zip(*parts)])


def _items(x: Any, samples: int) -> bool | None:
    """Whether a list or tuple has an item for each sample, not fields; None if it may be either, as three images of three channels."""
    if not isinstance(x, (list, tuple)) or hasattr(x, "_fields") or len(x) != samples:
        return False
    fields, kinds = [_divides(v, samples) for v in x], {_kind(v) for v in x}
    if None in fields:
        return len(kinds) == 1
    return True if not any(fields) else False if len(kinds) > 1 or kinds == {1} else None


def _kind(x: Any) -> Any:
    """What is alike in all samples of a list, and seldom in all fields of a batch."""
    if hasattr(x, "shape"):
        return len(x.shape)
    return tuple(x) if isinstance(x, Mapping) else frozenset(map(_kind, x)) if isinstance(x, (list, tuple)) else type(x)


def _divides(x: Any, samples: int) -> bool | None:
    """Whether a part of a batch would be cut, not shared by all samples; None if it cannot be cut."""
    try:
        return _cut(x, samples, 0, 0, "") is not x
    except _Either:
        return True
    except Usage:
        return None


def _parts(x: Any) -> list[Any] | None:
    """What x is made of, None if it is no container."""
    if isinstance(x, Mapping):
        return list(x.values())
    if isinstance(x, (list, tuple)):
        return list(x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [getattr(x, f.name) for f in dataclasses.fields(x) if f.init]
    return None


def _keys(x: Any) -> list[Any]:
    if isinstance(x, Mapping):
        return list(x)
    if isinstance(x, (list, tuple)):
        return list(range(len(x)))
    return [f.name for f in dataclasses.fields(x) if f.init]


def _of_parts(x: Any, parts: list[Any]) -> Any:
    """A container like x of other parts."""
    if isinstance(x, Mapping):
        out = copy.copy(x)  # keeps what a subclass knows beside its items, as Hugging Face's BatchEncoding does
        data = getattr(out, "data", None)
        if isinstance(data, dict):  # UserDict: a copy shares it
            out.data = dict(data)
        for k, v in zip(_keys(x), parts):
            out[k] = v
        return out
    if isinstance(x, (list, tuple)):
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return dataclasses.replace(x, **dict(zip(_keys(x), parts)))
