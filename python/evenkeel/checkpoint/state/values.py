"""Encodes plain values exactly as JSON, and reads and sets the random number generators."""

import base64
import collections
import random as python_random

import numpy
import torch

from ..file.errors import Schema, Usage


def encode(v, where, tensor):
    """Encodes a value as JSON, from which decode() makes the same value. tensor(t, where) stores a tensor and returns its name."""
    if v is None or isinstance(v, (bool, str)) or type(v) is int:
        return v
    if type(v) is float:
        return {"f": v.hex()}
    if type(v) is complex:
        return {"c": [v.real.hex(), v.imag.hex()]}
    if isinstance(v, (bytes, bytearray)):
        return {"b": base64.b64encode(v).decode()}
    if torch.is_tensor(v):
        return {"T": tensor(v, where), "where": v.device.type, **({"complex": True} if v.is_complex() else {})}
    if isinstance(v, numpy.ndarray) and v.dtype.kind in "biufc":
        return {"n": [v.dtype.str, list(v.shape), base64.b64encode(numpy.ascontiguousarray(v).tobytes()).decode()]}
    if isinstance(v, numpy.generic) and v.dtype.kind in "biufc":
        return {"g": [v.dtype.str, base64.b64encode(v.tobytes()).decode()]}
    if isinstance(v, torch.dtype):
        return {"dtype": str(v).split(".")[1]}
    if isinstance(v, torch.device):
        return {"device": str(v)}
    if type(v) in (list, tuple, set, frozenset, torch.Size):
        items = sorted(v) if type(v) in (set, frozenset) else v
        tag = {list: "l", tuple: "t", set: "s", frozenset: "z", torch.Size: "S"}[type(v)]
        return {tag: [encode(x, f"{where}.{i}", tensor) for i, x in enumerate(items)]}
    if isinstance(v, collections.deque):
        return {"q": [encode(x, f"{where}.{i}", tensor) for i, x in enumerate(v)], "most": v.maxlen}
    if type(v) in (dict, collections.OrderedDict, collections.Counter):
        tag = {dict: "d", collections.OrderedDict: "o", collections.Counter: "C"}[type(v)]
        return {tag: [[encode(k, where, tensor), encode(x, f"{where}.{k}", tensor)] for k, x in v.items()]}
    raise Usage(f"{where}: {type(v).__module__}.{type(v).__qualname__} cannot be stored; an object needs a state_dict() of tensors and plain values")


def decode(v, tensor):
    """Makes a value from encode()'s JSON. tensor(name, device, is_complex) returns a tensor."""
    if not isinstance(v, dict):
        return v
    tag = next(iter(v))
    x = v[tag]
    if tag == "f":
        return float.fromhex(x)
    if tag == "c":
        return complex(float.fromhex(x[0]), float.fromhex(x[1]))
    if tag == "b":
        return base64.b64decode(x)
    if tag == "T":
        return tensor(x, v["where"], v.get("complex", False))
    if tag == "n":
        return numpy.frombuffer(base64.b64decode(x[2]), dtype=x[0]).reshape(x[1]).copy()
    if tag == "g":
        return numpy.frombuffer(base64.b64decode(x[1]), dtype=x[0])[0]
    if tag == "dtype":
        return getattr(torch, x)
    if tag == "device":
        return torch.device(x)
    if tag in "ltszS":
        return {"l": list, "t": tuple, "s": set, "z": frozenset, "S": torch.Size}[tag](decode(i, tensor) for i in x)
    if tag == "q":
        return collections.deque((decode(i, tensor) for i in x), v["most"])
    pairs = [(decode(k, tensor), decode(i, tensor)) for k, i in x]
    if tag == "C":
        return collections.Counter(dict(pairs))
    return (collections.OrderedDict if tag == "o" else dict)(pairs)


def generators():
    """The states of all random number generators."""
    out = {"torch": bytes(torch.get_rng_state().numpy()), "random": python_random.getstate(), "numpy": numpy.random.get_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        out["cuda"] = [bytes(s.cpu().numpy()) for s in torch.cuda.get_rng_state_all()]
    return out


def set_generators(state):
    """Sets the random number generators to states of generators()."""
    torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
    python_random.setstate(state["random"])
    numpy.random.set_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        if len(state["cuda"]) != torch.cuda.device_count():
            raise Schema(f"generators of {len(state['cuda'])} CUDA devices were saved, but there are {torch.cuda.device_count()} devices")
        torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(s), dtype=torch.uint8) for s in state["cuda"]])
