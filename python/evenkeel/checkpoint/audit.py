"""The proof that a save is right: it is restored into copies of the objects, and what they say of their state is compared."""

import collections.abc
import copy

import numpy
import torch

from .file.errors import Corrupt, Usage
from .file.layout import hash64, memory, stored
from .state.plan import by_parameter, inner
from .state.values import generators, set_generators


def facts(v, where, out):
    """Adds the parts of a state to out: place -> what is there."""
    if torch.is_tensor(v):
        out[where] = (v.dtype, tuple(v.shape), hash64(memory(stored(v))))
    elif isinstance(v, numpy.ndarray):
        out[where] = (v.dtype, v.shape, hash64(v.tobytes()))
    elif isinstance(v, collections.abc.Mapping):
        out[where] = (type(v), len(v))
        for k, x in v.items():
            facts(x, f"{where}[{k!r}]", out)
    elif isinstance(v, (list, tuple, collections.deque)):
        out[where] = (type(v), len(v))
        for i, x in enumerate(v):
            facts(x, f"{where}[{i}]", out)
    elif not callable(v):
        out[where] = repr(v)
    return out


def states(objects, rank):
    """The facts of the objects and of the generators that this rank restores: buffers, and tensors of other objects, are those of rank 0."""
    out = facts(generators(), "generators", {})
    for key, o in objects.items():
        if o is not None:
            state = o.get_state() if isinstance(o, torch.Generator) else inner(o).state_dict()
            here = facts(state, f"{key}.state_dict()", {})
            if rank and not isinstance(o, (torch.optim.Optimizer, torch.Generator)):
                own = {f"{key}.state_dict()[{n!r}]" for n, _ in inner(o).named_parameters()} if isinstance(o, torch.nn.Module) else set()
                here = {k: v for k, v in here.items() if k in own or not isinstance(v, tuple) or len(v) < 3}
            out.update(here)
    return out


def standins(objects):
    """Copies of the objects in another state."""
    memo, out = {}, {}
    for key, o in sorted(objects.items(), key=lambda kv: not isinstance(kv[1], torch.nn.Module)):  # modules first: optimizers refer to their parameters
        o = inner(o)
        try:
            if isinstance(o, torch.optim.Optimizer):  # its own way of being copied leaves out what a subclass adds
                out[key] = memo[id(o)] = object.__new__(type(o))
                out[key].__dict__.update({k: copy.deepcopy(v, memo) for k, v in vars(o).items()})
            else:
                out[key] = copy.deepcopy(o, memo)
            if isinstance(o, torch.jit.ScriptModule):  # its copy does not say which parameter is which
                memo.update({id(p): q for p, q in zip(o.parameters(), out[key].parameters())})
        except (TypeError, RuntimeError, AttributeError) as e:
            raise Usage(f"audit: {key}: a {type(o).__name__} cannot be copied: {e}") from e
    for o in out.values():
        if isinstance(o, torch.nn.Module):
            with torch.no_grad():
                for t in (*o.parameters(), *o.buffers()):
                    t.zero_()
        elif isinstance(o, torch.Generator):
            o.manual_seed(0)
        elif isinstance(o, torch.optim.Optimizer) and by_parameter(o):
            o.state.clear()
            for g in o.param_groups:
                _other_numbers(g)
        elif o is not None:
            _other_numbers(vars(o))
    return out


def _other_numbers(values):
    values.update({k: v + 1 for k, v in values.items() if type(v) in (int, float)})


def audit(objects, rank, load):
    """load(objects): restores them, and the generators. Raises Corrupt if their state is not that of the objects then."""
    now, copies, before = states(objects, rank), standins(objects), generators()
    try:
        set_generators({**before, "torch": bytes(torch.Generator().manual_seed(0).get_state().numpy())})
        load(copies)
        then = states(copies, rank)
    finally:
        set_generators(before)
    for place in (*now, *then):
        if now.get(place) != then.get(place):
            raise Corrupt(f"audit: {place}: the job has {now.get(place, 'nothing')}, restored is {then.get(place, 'nothing')}")
