"""Which tensors of a model and its optimizer a checkpoint holds."""

import torch

from .errors import Usage
from .layout import BUFFER, MOMENT, PARAMETER


def tensors(model, optimizer=None):
    """All tensors that a job needs to go on, by name: parameters, buffers, and the optimizer's per parameter.

    Tied parameters come once. An optimizer that creates its state in its first step is made to do so here, if a check shows that this changes
    nothing; otherwise Usage is raised. Scalars that an optimizer keeps as Python numbers are not tensors: pass them to save(). job.Job saves
    everything and needs no such step.
    """
    out = {name: (p.detach(), PARAMETER) for name, p in model.named_parameters()}
    for name, b in model.named_buffers():
        if b is not None:
            out[name] = (b, BUFFER)
    if optimizer is None:
        return out
    names = {p: name for name, p in model.named_parameters()}
    kept = [p for g in optimizer.param_groups for p in g["params"]]
    for p in kept:
        if p not in names:
            raise Usage(f"the optimizer has a parameter of shape {tuple(p.shape)} that is not the model's")
    if not optimizer.state:
        _prime(optimizer)
    filled = {p for p in kept if any(map(torch.is_tensor, optimizer.state.get(p, {}).values()))}
    for p in kept:
        if filled and p not in filled and p.requires_grad:
            raise Usage(f"the optimizer has no state yet for {names[p]!r} and has for others; call tensors() when it has for all, or use job.Job")
    for p in kept:
        for key, value in sorted(optimizer.state.get(p, {}).items()):
            if torch.is_tensor(value):
                out[f"{names[p]}.{key}"] = (value, MOMENT)
    return out


def double(optimizer, params):
    """An optimizer of the same kind, with the same options, over other parameters; params: a list for each group."""
    twin = object.__new__(type(optimizer))
    twin.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("state", "param_groups", "step")})
    twin.state = type(optimizer.state)(dict)
    twin.param_groups = [{**g, "params": list(ps)} for g, ps in zip(optimizer.param_groups, params)]
    return twin


def _zero_step(optimizer):
    """Creates an optimizer's state by a step at rate 0 with gradients of 0, and undoes that as far as it can."""
    groups = optimizer.param_groups
    kept = {p: p.grad for g in groups for p in g["params"]}
    before = {p: p.detach().clone() for p in kept}
    options = [{k: v for k, v in g.items() if k != "params"} for g in groups]
    for g in groups:
        g["lr"] = 0.0
    for p in kept:
        p.grad = torch.zeros_like(p)
    type(optimizer).step(optimizer)
    with torch.no_grad():
        for p, grad in kept.items():
            p.grad = grad
            p.copy_(before[p])
            state = optimizer.state.get(p, {})
            for key, value in state.items():
                if torch.is_tensor(value):
                    value.zero_()
                elif type(value) is int:
                    state[key] = 0
    for g, kept_options in zip(groups, options):
        g.update(kept_options)


def _prime(optimizer):
    """Makes the optimizer's state, if three steps on stand-ins show that steps afterwards are the same to the bit."""
    kind = type(optimizer).__name__
    ends = []
    for primed in (False, True):
        draw = torch.Generator().manual_seed(1)
        params = [[torch.randn(2, 3, generator=draw).to(p.dtype).requires_grad_() for p in g["params"][:1]] for g in optimizer.param_groups]
        twin = double(optimizer, params)
        try:
            if primed:
                _zero_step(twin)
            for _ in range(3):
                for p in sum(params, []):
                    p.grad = torch.randn(2, 3, generator=draw).to(p.dtype)
                type(twin).step(twin)
        except Exception as e:
            raise Usage(f"{kind} cannot be made to create its state ({e}); call tensors() after its first step, or use job.Job") from e
        ends.append([p.detach() for p in sum(params, [])] + [v for p in sum(params, []) for _, v in sorted(twin.state[p].items())])
    same = len(ends[0]) == len(ends[1]) and all(
        torch.equal(a, b) if torch.is_tensor(a) and torch.is_tensor(b) else not torch.is_tensor(a) and not torch.is_tensor(b) and a == b for a, b in zip(*ends)
    )
    if not same:
        raise Usage(f"{kind} with these options trains otherwise once its state was created in advance; call tensors() after its first step, or use job.Job")
    _zero_step(optimizer)
