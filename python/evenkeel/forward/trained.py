"""Selects what is trained: a model's parameters that require gradients, such as the adapters of peft.get_peft_model."""

from . import header
from .header import Refused
from .weights import Part


def trained(model, training=False):
    """The parts to train: the parameters that require gradients. Those of float32 are trained by their values, others as differences to their present
    values. training allows a model in training mode, or whose buffers change."""
    on = [(n or "the model", m) for n, m in model.named_modules() if m.training]
    if on and not training:
        name, m = min(on, key=lambda i: not (hasattr(i[1], "p") or hasattr(i[1], "running_mean")))  # dropout or normalization, if there is one
        raise Refused(f"{name} ({type(m).__name__}) is in training mode, so the same weights may be another model at the end: call model.eval(), or pass training=True")
    parts = [Part(n, p, model, not training) for n, p in model.named_parameters() if p.requires_grad]
    if not parts:
        raise Refused("no parameter of the model requires gradients: call requires_grad_() on those to train, or load adapters with is_trainable=True")
    return parts


def buffers(parts):
    """The buffers that a loss must not change, by name."""
    return dict(parts[0].model.named_buffers()) if parts[0].buffers else {}


def frozen(parts):
    """The hash of the tensors that the model uses and does not train, by which a model that differs in one bit is refused. Tensors that are trained
    as differences count with their first values. "" for parts without a model."""
    if parts[0].model is None:
        return ""
    first = {id(p.parameter): p.base for p in parts}
    every = {**dict(parts[0].model.named_parameters()), **buffers(parts)}
    return header.frozen_hash({n: t for n, p in every.items() if (t := first.get(id(p), p)) is not None})
