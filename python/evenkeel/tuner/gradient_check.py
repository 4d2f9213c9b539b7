"""A check of what the tuner rests on: that the gradient of a micro-step is the weighted mean of those of its parts. Some samples of the first micro-step are
computed as a whole and in two parts, by the loop's own code, and nothing of it counts. It finds losses that are sums or mix samples, batches that are cut along another
dimension, and gradients that are zeroed between micro-steps.

Meanwhile dropout is off, batch normalisation uses its running statistics, compiled code runs as written, and random numbers start anew for each run. If
two runs of the whole differ all the same, the loop draws noise of its own, and there is nothing to compare.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from .errors import Usage
from .gradient_hook import GradientHook, Round

_log = logging.getLogger("evenkeel")

_SAMPLES = 6  # that are enough to tell, so that large micro-batches lose no time
_MOST = {torch.float64: 1e-7, torch.float32: 5e-3}  # largest difference, as a share of the norm; TF32 rounds to 1e-3
_HALF = 0.1  # the same in half precision, under autocast too


class GradientCheck:
    """One check, over three or four runs of the loop's body, which parts asks for."""

    def __init__(self, hook: GradientHook):
        self._hook = hook
        self._runs: list[list[torch.Tensor | None]] = []  # gradients of the whole, of the parts together, of the whole once more
        self._abandoned = self._half = False

    def abandon(self) -> None:
        """The runs tell nothing, because memory ran out for example."""
        self._abandoned = True

    def parts(self, piece: Any, size: int, cut: Callable[[Any, int, int, int], Any], must: bool) -> Iterator[tuple[Any, int]]:
        """The runs: pieces and their samples. Usage if the parts do not make the whole, or there are none and there must be."""
        hook, model = self._hook, self._hook.model
        if any(isinstance(m, torch.nn.SyncBatchNorm) for m in model.module.modules()):
            return  # its forward pass is one with other ranks, who may have no part in this
        whole, size = size, min(size, _SAMPLES)
        first = (size + 1) // 3 or 1
        try:
            piece = cut(piece, whole, 0, size)
            two = [(cut(piece, size, 0, first), first), (cut(piece, size, first, size), size - first)]
        except Usage as e:
            if must:
                raise
            _log.info("evenkeel: gradients were not checked: %s", e)
            return
        held, before, kept = hook.round, model.require_forward_param_sync, hook.take()
        buffers = [b.clone() for b in model.module.buffers()]
        rng = _Random(hook.parameters[0].device)
        model.require_forward_param_sync = False  # else the first forward pass sends buffers, and other ranks may not check
        recurrent = [m for m in model.module.modules() if isinstance(m, torch.nn.RNNBase) and m.training]
        for m in recurrent:
            m.training = False
        seen = model.register_forward_pre_hook(lambda *_: self._see())
        try:
            with _Plain(), torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext():
                for run in ([(piece, size)], two):
                    yield from self._run(run, rng)
                if not self._abandoned and self._off(0, 1) > self._most():
                    yield from self._run([(piece, size)], rng, other=True)
                    self._judge(size, first)
        finally:
            seen.remove()
            for m in recurrent:
                m.training = True
            rng.restore()
            with torch.no_grad():
                for b, was in zip(model.module.buffers(), buffers):
                    b.copy_(was)
            hook.round, model.require_forward_param_sync = held, before
            hook.give(kept)

    def _run(self, pieces: list[tuple[Any, int]], rng: "_Random", other: bool = False) -> Iterator[tuple[Any, int]]:
        if self._abandoned:
            return
        self._hook.round = Round()
        rng.restore()
        if other:
            torch.manual_seed(1)
        yield from pieces
        r = self._hook.round
        if r.weight > 0:
            self._hook.scale(r.unit / r.weight)
        else:
            self._abandoned = True
        self._runs.append(self._hook.take())

    def _see(self) -> None:
        self._half = self._half or torch.is_autocast_enabled(self._hook.parameters[0].device.type)

    def _off(self, a: int, b: int) -> float:
        """How far the gradients of two runs are apart, as a share of the norm of the first."""
        difference = whole = 0.0
        for x, y in zip(self._runs[a], self._runs[b]):
            if x is None and y is None:
                continue
            x, y = (torch.zeros_like(p) if q is None else q.to_dense() if q.is_sparse else q for p, q in ((y, x), (x, y)))
            difference += float((x.double() - y.double()).square().sum())
            whole += float(x.double().square().sum())
        return (difference / whole) ** 0.5 if whole else 0.0

    def _most(self) -> float:
        kinds = {p.dtype for p in self._hook.parameters}
        if self._half or not kinds <= _MOST.keys():
            return _HALF
        return max(_MOST[k] for k in kinds)

    def _judge(self, size: int, first: int) -> None:
        off = self._off(0, 1)
        if self._abandoned or self._off(0, 2) > 0.1 * off:
            _log.warning("evenkeel: gradients were not checked: they depend on random numbers of the loop's own; the loss must be a mean over the samples of a micro-step")
            return
        raise Usage(
            f"the gradient of {size} samples is not the weighted mean of those of {first} and {size - first} of them: it is off by {off:.2g} of its norm, so sizes that change would change "
            "what is trained. The loss must be a mean over the samples of a micro-step (not a sum; a mean over tokens needs batches(weighted=True) and tuner.weight), it must not "
            "compare samples with one another, batches must have samples along their first dimension (else batches(cut=...)), and optimizer.zero_grad() belongs after optimizer.step(). "
            "If all of that is meant, Tuner(ddp, check=False) trains all the same"
        )


_DROPOUT = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
_DOT, _MULTI_HEAD, _BATCH_NORM = F.scaled_dot_product_attention, F.multi_head_attention_forward, F.batch_norm


class _Plain(torch.overrides.TorchFunctionMode):
    """No dropout, and no statistics of the batch. torch leaves modes out of backward passes, where checkpointed layers compute once more: so the functions
    of F are replaced as well."""

    def __enter__(self) -> Any:
        self._were = {f.__name__: getattr(F, f.__name__) for f in (*_DROPOUT, _DOT, _MULTI_HEAD, _BATCH_NORM)}
        for name, was in self._were.items():
            setattr(F, name, lambda *args, _was=was, **kwargs: self.__torch_function__(_was, (), args, kwargs))
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        for name, was in self._were.items():
            setattr(F, name, was)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUT:
            return args[0] if args else kwargs["input"]
        if func is torch.dropout:
            return args[0]
        if func is _DOT:
            args, kwargs["dropout_p"] = (*args[:4],), 0.0
        elif func is _MULTI_HEAD:
            kwargs["training"] = False
        elif func is _BATCH_NORM:
            return _batch_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _batch_norm(x: torch.Tensor, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> torch.Tensor:
    mean, var = x.new_zeros(x.shape[1]) if mean is None else mean, x.new_ones(x.shape[1]) if var is None else var
    return _BATCH_NORM(x, mean, var, weight, bias, False, momentum, eps)


class _Random:
    """The states of random number generators."""

    def __init__(self, device: torch.device):
        self._cpu = torch.get_rng_state()
        self._device = device if device.type == "cuda" else None
        self._cuda = torch.cuda.get_rng_state(device) if self._device is not None else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)
