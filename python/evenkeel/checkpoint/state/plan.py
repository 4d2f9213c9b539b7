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


def contents(module):
    """The buffers that a module's state_dict() has, by name; and the part of it that is not the module's parameters and buffers themselves, but extra
    state, or what hooks and overrides make."""
    try:
        state = module.state_dict(keep_vars=True)
    except TypeError:  # an override without arguments
        state = module.state_dict()
    buffers = list(module.named_buffers())
    there, own = {id(v) for v in state.values()}, {id(t) for t in (*module.parameters(), *(b for _, b in buffers))}
    return [(n, b) for n, b in buffers if id(b) in there], {n: v for n, v in state.items() if id(v) not in own}


def by_parameter(o):
    """Whether an optimizer's state_dict() has nothing but its groups and its parameters' state."""
    base, hooks = torch.optim.Optimizer, ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")
    overrides = type(o).state_dict is not base.state_dict or type(o).load_state_dict is not base.load_state_dict or "state_dict" in vars(o)
    return not overrides and not any(getattr(o, f"_optimizer_{h}_hooks", None) for h in hooks) and o.state.keys() <= {p for g in o.param_groups for p in g["params"]}


def moment_name(name, key, k):
    """The name of a moment of a parameter. key: the optimizer's name; k: the moment's name in the optimizer."""
    return f"{name}.{k}" if key == "optimizer" else f"{name}.{key}.{k}"


class Plan:
    """The contents of one save: tensors by name, and all other state as a tree."""

    def __init__(self, objects):
        self.named, self.tree = {}, {}
        self.within = set()  # names of tensors within the objects' other values
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
            buffers, rest = contents(module)
            for name, b in buffers:
                self._add(self.name(key, name), b, BUFFER)
            self.tree[key] = {"module": True, "rest": {n: encode(v, self.name(key, n), self._tensor) for n, v in rest.items()}}
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

    def _tensor(self, t, where, kind=BUFFER):
        self._add(where, t, kind)
        self.within.add(where)
        return where

    def _moment_tensor(self, t, where):
        return self._tensor(t, where, MOMENT)

    def _optimizer(self, key, o):
        if type(o).__name__ == "LBFGS":
            raise Usage(f"{key}: LBFGS is not supported: it keeps a growing history of tensors")
        groups, state, own = [], [], not by_parameter(o)
        for i, g in enumerate(o.param_groups):
            for p in g["params"]:
                if p not in self.names:
                    raise Usage(f"{key}: group {i} has a parameter of shape {tuple(p.shape)} that is in no module given; pass the module too")
            options = {} if own else {k: v for k, v in g.items() if k != "params"}
            groups.append({"params": [self.names[p] for p in g["params"]], "options": encode(options, f"{key}.group{i}", self._tensor)})
            for p in () if own else g["params"]:
                if p in o.state:
                    state.append([self.names[p], {k: self._moment(key, p, k, v) for k, v in o.state[p].items()}])
        saved = {"optimizer": type(o).__name__, "groups": groups, "state": state}
        if own:
            try:
                saved["own"] = encode(o.state_dict(), key, self._moment_tensor)
            except (KeyError, RuntimeError) as e:  # ZeroRedundancyOptimizer, whose ranks hold parts
                raise Usage(f"{key}: {type(o).__name__} does not give its state_dict() on this rank: {e}") from e
        return saved

    def _moment(self, key, p, k, v):
        name = moment_name(self.names[p], key, k)
        if torch.is_tensor(v):
            self._moment_tensor(v, name)
            where = "parameter" if v.device == p.device and v.device.type != "cpu" else v.device.type
            return {"T": name, "where": where, **({"complex": True} if v.is_complex() else {})}
        return encode(v, name, self._moment_tensor)

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
