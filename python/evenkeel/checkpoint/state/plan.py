"""Decides what a save of live objects writes, and which rank writes it."""

import base64
import json
import zlib

import torch

from ..file.errors import Usage
from ..file.layout import BUFFER, MOMENT, PARAMETER
from .values import encode, generators


MAGIC = b"EVKLJOB1"


def inner(module):
    """The module in a DistributedDataParallel. It does not import torch.distributed, which some builds of torch lack."""
    return module.module if type(module).__name__ == "DistributedDataParallel" else module


def moment_name(name, key, k):
    """The name of a moment of a parameter. key: the optimizer's name; k: the moment's name in the optimizer."""
    return f"{name}.{k}" if key == "optimizer" else f"{name}.{key}.{k}"


class Plan:
    """The contents of one save: tensors by name, and all other state as a tree."""

    def __init__(self, objects):
        self.named, self.tree = {}, {}
        modules = {k: inner(o) for k, o in objects.items() if isinstance(o, torch.nn.Module)}
        self.names = {}
        for key, module in modules.items():
            for m in module.modules():
                if type(m).__name__ == "FullyShardedDataParallel":
                    raise Usage(f"{key}: FullyShardedDataParallel is not supported: its ranks hold different tensors")
            for name, p in module.named_parameters():
                if p not in self.names:
                    self.names[p] = self.name(key, name)
                    self._add(self.names[p], p, PARAMETER)
            for name, b in module.named_buffers():
                self._add(self.name(key, name), b, BUFFER)
            extra = {n: m.get_extra_state() for n, m in module.named_modules() if type(m).get_extra_state is not torch.nn.Module.get_extra_state}
            self.tree[key] = {"module": True, "extra": encode(extra, key, self._tensor)}
        for key, o in objects.items():
            if key in modules or o is None:
                continue
            if isinstance(o, torch.optim.Optimizer):
                self.tree[key] = self._optimizer(key, o)
            elif isinstance(o, torch.Generator):
                self.tree[key] = {"generator": base64.b64encode(bytes(o.get_state().numpy())).decode()}
            elif hasattr(o, "state_dict") and hasattr(o, "load_state_dict"):
                state = o.state_dict()
                if type(o).__module__ == "torch.optim.lr_scheduler":
                    state = {k: v for k, v in state.items() if not callable(v)}  # load_state_dict does not change these
                self.tree[key] = {"state": encode(state, key, self._tensor)}
            else:
                raise Usage(f"{key}: {type(o).__name__} has no state_dict() and load_state_dict()")

    @staticmethod
    def name(key, name):
        return name if key == "model" else f"{key}/{name}"

    def _add(self, name, t, kind):
        if name in self.named:
            raise Usage(f"two tensors are named {name!r}; give one of the objects another name")
        self.named[name] = (t.detach(), kind)

    def _tensor(self, t, where):
        self._add(where, t, BUFFER)
        return where

    def _optimizer(self, key, o):
        if type(o).__name__ == "LBFGS":
            raise Usage(f"{key}: LBFGS is not supported: it keeps a growing history of tensors")
        groups, state = [], []
        for i, g in enumerate(o.param_groups):
            for p in g["params"]:
                if p not in self.names:
                    raise Usage(f"{key}: group {i} has a parameter of shape {tuple(p.shape)} that is in no module given; pass the module too")
            options = {k: v for k, v in g.items() if k != "params"}
            groups.append({"params": [self.names[p] for p in g["params"]], "options": encode(options, f"{key}.group{i}", self._tensor)})
            for p in g["params"]:
                if p in o.state:
                    state.append([self.names[p], {k: self._moment(key, p, k, v) for k, v in o.state[p].items()}])
        return {"optimizer": type(o).__name__, "groups": groups, "state": state}

    def _moment(self, key, p, k, v):
        name = moment_name(self.names[p], key, k)
        if torch.is_tensor(v):
            self._add(name, v, MOMENT)
            where = "parameter" if v.device == p.device and v.device.type != "cpu" else v.device.type
            return {"T": name, "where": where, **({"complex": True} if v.is_complex() else {})}

        def refuse(t, where):
            raise Usage(f"{key}: state {where} has tensors in a list or dict, which is not supported")

        return encode(v, name, refuse)

    def blob(self):
        tree = {"objects": self.tree, "generators": encode(generators(), "generators", self._tensor)}
        return MAGIC + zlib.compress(json.dumps(tree).encode(), 1)


def stripe(entries, ranks):
    """Distributes entries over the ranks, the largest first, each to the rank with the fewest bytes. Rank 0 gets the buffers."""
    loads, owner = [0] * ranks, {}
    for e in entries:
        if e.kind == BUFFER:
            owner[e.name] = 0
            loads[0] += e.length + 1
    for e in sorted((e for e in entries if e.kind != BUFFER), key=lambda e: -e.length):
        owner[e.name] = loads.index(min(loads))
        loads[owner[e.name]] += e.length + 1
    if len(set(owner.values())) < ranks:
        raise Usage(f"{ranks} ranks for {len(entries)} tensors: some would have none")
    return [[e.name for e in entries if owner[e.name] == r] for r in range(ranks)]
