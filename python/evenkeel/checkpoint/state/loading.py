"""Loads saved data into live objects. If they differ from the saved objects, it raises an error before it changes anything."""

import base64
import functools
import json
import zlib

import torch

from ..file import layout
from ..file.errors import Schema
from ..file.layout import PARAMETER
from .plan import MAGIC, Plan, contents, inner
from .values import decode, set_generators


def parameters(objects):
    """The parameters of the modules, by name in the file."""
    return {name: p for k, o in objects.items() if isinstance(o, torch.nn.Module) for name, p in ((Plan.name(k, n), p) for n, p in inner(o).named_parameters())}


def live(path, modules, entries):
    """The tensors of the modules, by name in the file. Raises Schema if a tensor differs from the saved one."""
    plan = Plan(modules)
    live = {n: v for n, v in plan.named.items() if n not in plan.within}
    for name, (t, kind) in live.items():
        if name not in entries:
            raise Schema(f"{path}: tensor {name!r} was not saved; is this another model?")
        want, was = layout.describe({name: (t, kind)})[0][0], entries[name]
        if want[1:4] != was[1:4]:
            raise Schema(f"{path}: tensor {name!r} has shape {want.shape} and type {layout.TORCH[want.dtype]}, but {was.shape} and {layout.TORCH[was.dtype]} were saved")
    for e in entries.values():
        if e.kind == PARAMETER and e.name not in live:
            raise Schema(f"{path}: parameter {e.name!r} was saved, but is in no module given; load_parameters can load a part of a checkpoint")
    return live


def prepare(path, blob, objects, live, entries):
    """The tensor into which each array is read; the functions to call afterwards with their argument; and the arrays that must be read before that, None
    for all. It changes no object."""
    if blob[:8] != MAGIC:
        raise Schema(f"{path}: Job did not save this file; open it with checkpoint.open_")
    tree = json.loads(zlib.decompress(blob[8:]))
    saved = tree["objects"]
    for key in saved:
        if key not in objects:
            raise Schema(f"{path}: {key!r} was saved, but is not given: its state would be lost. Pass it, or load only the parameters with load_parameters")
    for key, o in objects.items():
        if key not in saved and o is not None:
            raise Schema(f"{path}: {key!r} was not saved")
    into = {n: t for n, (t, _) in live.items()}
    used, soon = set(), set()

    def tensor(name, where, complex_=False, like=None):
        used.add(name)
        if like is None:
            soon.add(name)
        e = entries[name]
        dtype, shape = layout.TORCH[e.dtype], e.shape
        if complex_:
            dtype, shape = (torch.complex64 if dtype == torch.float32 else torch.complex128), shape[:-1]
        if like is not None and tuple(like.shape) == tuple(shape):  # with the strides of the parameter, as optimizers create it
            into[name] = torch.empty_like(like, dtype=dtype, device=where, requires_grad=False)
        else:
            into[name] = torch.empty(shape, dtype=dtype, device=where)
        return into[name]

    by_name = parameters(objects)
    loads, whole = [], False
    for key, o in objects.items():
        s = saved.get(key)
        if s is None:
            continue
        if isinstance(o, torch.nn.Module):
            rest, whole = {n: decode(v, tensor) for n, v in s["rest"].items()}, whole or bool(s["rest"])
            for n in contents(inner(o))[1]:
                if n not in rest:
                    raise Schema(f"{path}: {n!r} of the state_dict() of {key!r} was not saved")
            if rest:
                loads.append((functools.partial(_into_module, inner(o)), rest))
        elif isinstance(o, torch.optim.Optimizer):
            loads.append(_into_optimizer(path, key, o, s, by_name, tensor))
        elif isinstance(o, torch.Generator):
            loads.append((o.set_state, torch.frombuffer(bytearray(base64.b64decode(s["generator"])), dtype=torch.uint8)))
        else:
            state = decode(s["state"], tensor)
            if state:
                loads.append((o.load_state_dict, state))
    left = sorted(set(entries) - used - set(live))
    if left:
        raise Schema(f"{path}: {left[0]!r} was saved, but belongs to no object given: it would be lost")
    loads.append((set_generators, decode(tree["generators"], tensor)))
    return into, loads, None if whole else soon


def _into_module(module, rest):
    state = module.state_dict()
    state.update(rest)
    module.load_state_dict(state)


def _into_optimizer(path, key, o, saved, parameters, tensor):
    if saved["optimizer"] != type(o).__name__:
        raise Schema(f"{path}: {key} is a {type(o).__name__}, but a {saved['optimizer']} was saved")
    names = {p: n for n, p in parameters.items()}
    for i, g in enumerate(o.param_groups):
        for p in g["params"]:
            if p not in names:
                raise Schema(f"{path}: {key}: group {i} has a parameter of shape {tuple(p.shape)} that is in no module given; pass the module too")
    mine = [[names[p] for p in g["params"]] for g in o.param_groups]
    theirs = [g["params"] for g in saved["groups"]]
    if mine != theirs:
        for i in range(max(len(mine), len(theirs))):
            a, b = (x[i] if i < len(x) else None for x in (mine, theirs))
            if a != b:
                raise Schema(f"{path}: {key}: group {i} has parameters {a}, but {b} were saved")
    if "own" in saved:
        return o.load_state_dict, decode(saved["own"], tensor)
    options = [decode(g["options"], tensor) for g in saved["groups"]]
    state = {}
    for name, values in saved["state"]:
        p = parameters[name]
        state[p] = {}
        for k, v in values.items():
            if isinstance(v, dict) and "T" in v:
                state[p][k] = tensor(v["T"], p.device if v["where"] == "parameter" else v["where"], v.get("complex", False), p)
            else:
                state[p][k] = decode(v, tensor)

    def load(_):  # load_state_dict would convert moments to the dtype of the parameters
        for g, new in zip(o.param_groups, options):
            g.update(new)
        o.state.clear()
        o.state.update(state)

    return load, None
