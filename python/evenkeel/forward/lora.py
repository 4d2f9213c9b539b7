"""Selects what is trained: low-rank adapters (Hu and others, LoRA, ICLR 2022), differences to frozen weights, or whole parameters."""

import json
import math
import os
import re

import torch

from ..checkpoint import interchange
from . import header, philox
from .header import Refused
from .weights import Part


class Adapted(torch.nn.Module):
    """A frozen linear layer with an adapter: base(x) + alpha / rank * B A x. The adapter is float32."""

    def __init__(self, base, rank, alpha, a):
        super().__init__()
        self.base, self.scale, self.rank, self.alpha = base, alpha / rank, rank, alpha
        self.lora_A = torch.nn.Parameter(a.to(base.weight.device), requires_grad=False)
        self.lora_B = torch.nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device), requires_grad=False)

    def forward(self, x):
        y = self.base(x)
        return y + (x.float() @ self.lora_A.t() @ self.lora_B.t() * self.scale).to(y.dtype)


def _freeze(model, training):
    """Freezes the model. Returns it, for the check of its buffers, or None if it may be in training mode."""
    model.requires_grad_(False)
    on = [(n or "the model", m) for n, m in model.named_modules() if m.training]
    if on and not training:
        name, m = min(on, key=lambda i: not (hasattr(i[1], "p") or hasattr(i[1], "running_mean")))  # dropout or normalization, if there is one
        raise Refused(f"{name} ({type(m).__name__}) is in training mode, so the same weights may be another model at the end: call model.eval(), or pass training=True")
    return None if training else model


def lora(model, targets, rank=8, alpha=16, seed=1, training=False):
    """Adds adapters to the linear layers whose last name is in targets, freezes the model, and returns the parts to train. A starts with uniform
    numbers within 1 / sqrt(inputs), which are the same on every machine for a seed; B starts at zero. training allows a model in training mode, or whose buffers change."""
    checked = _freeze(model, training)
    found = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n.rsplit(".", 1)[-1] in targets]
    missing = sorted(set(targets) - {n.rsplit(".", 1)[-1] for n in found})
    if missing or not found:
        raise Refused(f"the model has no linear layer named {', '.join(missing) or 'in targets'}")
    parts = []
    for i, name in enumerate(found):
        above, leaf = model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        base = getattr(above, leaf)
        n = rank * base.in_features
        w = philox.words(torch.arange(-(-n // 4)), i, 0, 0, seed).t().reshape(-1)[:n]
        a = ((w >> 8).double() / 2**23 - 1) / math.sqrt(base.in_features)
        adapted = Adapted(base, rank, alpha, a.float().reshape(rank, -1))
        setattr(above, leaf, adapted.train(base.training))
        parts += [Part(f"{name}.lora_A.weight", adapted.lora_A, model=checked), Part(f"{name}.lora_B.weight", adapted.lora_B, model=checked)]
    return parts


def deltas(model, training=False):
    """Trains all parameters as differences to their present values. They may have any dtype. training: as of lora()."""
    checked = _freeze(model, training)
    return [Part(f"{n}.delta", p, delta=True, model=checked) for n, p in model.named_parameters()]


def whole(model, training=False):
    """Trains all parameters of a float32 model by their values. training: as of lora()."""
    checked = _freeze(model, training)
    return [Part(n, p, model=checked) for n, p in model.named_parameters()]


def frozen(model, parts):
    """The hash of the model's frozen tensors, so that a base model that differs in one bit is refused. Call it before training begins: tensors that
    are trained as differences count with their first values."""
    trained = {id(p.parameter) for p in parts if p.base is None}
    every = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    adapted = [n for n, m in model.named_modules() if isinstance(m, Adapted)]

    def name(n):  # the name before adapters were added
        return next((a + n[len(a) + 5 :] for a in adapted if n.startswith(f"{a}.base.")), n)

    return header.frozen_hash({name(n): t for n, t in every.items() if id(t) not in trained})


def export(model, folder, base=""):
    """Writes the adapters for PEFT: adapter_model.safetensors and adapter_config.json."""
    adapted = {n: m for n, m in model.named_modules() if isinstance(m, Adapted)}
    if not adapted:
        raise Refused("the model has no adapters; lora() adds them")
    tensors = {}
    for n, m in adapted.items():
        tensors[f"base_model.model.{n}.lora_A.weight"], tensors[f"base_model.model.{n}.lora_B.weight"] = m.lora_A, m.lora_B
    one, names = next(iter(adapted.values())), sorted(adapted, key=len, reverse=True)  # PEFT takes the first pattern that ends a module's name
    config = {"peft_type": "LORA", "r": one.rank, "lora_alpha": one.alpha, "rank_pattern": {re.escape(n): adapted[n].rank for n in names},
              "alpha_pattern": {re.escape(n): adapted[n].alpha for n in names}, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
              "target_modules": "|".join(map(re.escape, sorted(adapted))), "task_type": None, "base_model_name_or_path": base}  # fmt: skip
    os.makedirs(folder, exist_ok=True)
    with interchange.replacing(os.path.join(folder, "adapter_config.json")) as name:
        with open(name, "w", encoding="utf-8") as f:
            json.dump(config, f, indent=2)
        interchange.write_safetensors(tensors, os.path.join(folder, "adapter_model.safetensors"))
