"""Layer-wise updates and saves: each parameter is updated as soon as backward has its gradient, and saved at once, while backward goes on to the
layers below. Under DistributedDataParallel this happens after its bucket was reduced over all ranks.

    layers = LayerWise(model, optimizer)          # model: a module, or DistributedDataParallel of one
    with Job("run.ckpt") as saved:
        state = saved.restore(model=model, optimizer=optimizer, scheduler=scheduler)
        for step in range(state.step + 1 if state else 0, steps):
            with layers.step(saved, step):
                loss(model, batch(step)).backward()         # updates and saves
                scheduler.step()                            # and whatever else belongs to the step

The optimizer is an ordinary one, with groups and schedulers: the finished parameters are stepped as if it had no others, which is the same to the bit
for optimizers that treat each parameter separately. LBFGS is refused. To add up gradients of several backward passes, run only the last of them
within step(), and the others before it, under model.no_sync() in DDP. Refused, because results would be wrong: several processes without DDP around
the model (gradients would not be averaged), FSDP, find_unused_parameters (a parameter without a gradient on all ranks would be stepped), a comm hook
of your own, a gradient scaler, and clipping by the global norm. The last two need all gradients before the first update: with these save with Job
after optimizer.step(). step() detects an enabled scaler, torch's functions for clipping, and gradients that change after their update.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch

from .file.errors import Usage


def _scalers():
    """torch's classes of gradient scalers, whichever this version has."""
    found = [getattr(m, "GradScaler", None) for m in (getattr(torch, "amp", None), torch.cuda.amp)]
    return {base for c in found if c for base in c.__mro__ if "scale" in vars(base)}


@contextmanager
def _watched():
    """Refuses what needs all gradients before the first update."""

    def scale(real):
        def refuse(scaler, *args, **keywords):
            if scaler.is_enabled():
                raise Usage("GradScaler scales gradients that LayerWise has applied before they are unscaled; with a scaler call Job.save after scaler.step(optimizer), or train in bfloat16 without one")
            return real(scaler, *args, **keywords)

        return refuse

    def clip(*_, **__):
        raise Usage("clipping comes too late within step(): the parameters are updated already; clip before optimizer.step(), and save with Job after it")

    with ExitStack() as stack:
        for c in _scalers():
            stack.enter_context(mock.patch.object(c, "scale", scale(c.scale)))
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                stack.enter_context(mock.patch.object(module, name, clip))
        yield


def _part_of(optimizer, params):
    """An optimizer of the same kind, with the same options, that steps only these parameters; params: a list for each group."""
    part = object.__new__(type(optimizer))
    part.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("param_groups", "step")})
    part.param_groups = [{**g, "params": list(ps)} for g, ps in zip(optimizer.param_groups, params)]
    return part


class LayerWise:
    """Steps an optimizer parameter by parameter, during backward."""

    def __init__(self, model, optimizer):
        self.model = model
        if isinstance(optimizer, torch.optim.LBFGS):
            raise Usage("LBFGS treats all parameters together; it cannot be stepped layer by layer")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Usage("LayerWise takes the model and one optimizer of all its parameters")
        self.optimizer = optimizer
        self._ddp = type(model).__name__ == "DistributedDataParallel"
        if any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules()):
            raise Usage("FullyShardedDataParallel: its ranks hold parts of parameters; save with Job after optimizer.step()")
        dist = getattr(torch, "distributed", None)
        if not self._ddp and dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise Usage("several processes train and the model is not DistributedDataParallel: each would update with its own gradients; wrap the model, and give LayerWise what you wrapped")
        inner = model.module if self._ddp else model
        self._names = {p: n for n, p in inner.named_parameters() if p.requires_grad}
        stepped = {p for g in optimizer.param_groups for p in g["params"]}
        for p, name in self._names.items():
            if p not in stepped:
                raise Usage(f"parameter {name!r} is not in the optimizer; freeze it, or add it")
        for p in stepped:
            if p.requires_grad and p not in self._names:
                raise Usage(f"the optimizer has a parameter of shape {tuple(p.shape)} that is not the model's")
        self._lock = threading.Lock()  # backward may run in several threads
        self._active = False
        self._done = set()  # parameters updated in this step
        self._versions = {}  # of their gradients then
        self._save = None  # of this step: what begins it, its file, names
        self._schedulers = []  # with their epochs, as they were saved
        self._error = None  # of a bucket's update
        self._hooked = []  # keeps what the hooks hang on
        if self._ddp:
            self._hook_ddp()
        else:
            for p in self._names:
                self._hook(p)

    def _hook(self, p):
        if hasattr(p, "register_post_accumulate_grad_hook"):  # torch 2.1 and newer
            p.register_post_accumulate_grad_hook(lambda _: self._finished([p]))
            return
        node = p.expand_as(p).grad_fn.next_functions[0][0]  # what adds the gradient to p.grad
        node.register_hook(lambda *_: self._finished([p]))
        self._hooked.append(node)

    def _hook_ddp(self):
        if getattr(self.model, "find_unused_parameters", False):
            raise Usage("find_unused_parameters: a parameter that no rank used would be stepped; save with Job after optimizer.step()")
        # A thread of our own, which Python waits for at its end: that of the all-reduce may be at work then, and would abort the process.
        self._updates = ThreadPoolExecutor(1, "evenkeel-updates")
        dist, group = torch.distributed, self.model.process_group
        share = 1.0 / dist.get_world_size(group)

        def reduce(_, bucket):
            # As DDP does without a hook: multiply, then add up. Dividing would round otherwise for three ranks.
            buffer = bucket.buffer().mul_(share)
            work = dist.all_reduce(buffer, group=group, async_op=True)
            out = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)

            def update():
                if self._error is not None:
                    return
                params, grads = bucket.parameters(), bucket.gradients()
                if self._active:
                    try:
                        for p, g in zip(params, grads):
                            if p.grad is None:
                                raise Usage(f"parameter {self._names.get(p)!r} has no gradient")
                            if p.grad.data_ptr() != g.data_ptr():
                                p.grad.copy_(g)
                        self._finished(params)
                    except Exception as e:  # raised by step(), as it is
                        self._error = e

            def reduced():
                try:
                    work.wait()
                    update()
                    out.set_result(buffer)
                except Exception as e:  # of a lost rank
                    out.set_exception(e)

            self._updates.submit(reduced)
            return out

        try:
            self.model.register_comm_hook(None, reduce)
        except RuntimeError as e:
            raise Usage(f"DistributedDataParallel has a comm hook already ({e}); LayerWise needs it") from e

    def _finished(self, params):
        """These parameters have their gradients: update, and save."""
        if not self._active:
            return
        with self._lock, torch.no_grad():
            again = [p for p in params if p in self._done]
            if again:
                raise Usage(f"parameter {self._names[again[0]]!r} got a second gradient in one step; call all backward passes but the last before step(), or use Job")
            if self._save:
                self._save.begin()
                self._save.ready(params)
            mine = set(params)
            part = _part_of(self.optimizer, [[p for p in g["params"] if p in mine] for g in self.optimizer.param_groups])
            type(self.optimizer).step(part)
            for g, h in zip(self.optimizer.param_groups, part.param_groups):
                changed = [k for k in h if k != "params" and h[k] is not g.get(k)]
                if changed or len(h) != len(g):
                    raise Usage(f"{type(self.optimizer).__name__} keeps {changed or 'state'} in its groups; it cannot be stepped layer by layer")
            self._done |= mine
            if not self._ddp:  # DDP itself writes to gradients afterwards
                self._versions.update((p, p.grad._version) for p in mine if p.grad is not None)
            if self._save:
                self._save.write(params)

    @contextmanager
    def step(self, saved=None, step=0, cursor=0):
        """A context whose backward pass is an optimizer step, and with a Job a save. Gradients are None afterwards.

        Parameters that backward did not reach, buffers and the other objects are saved at its end, as they are then. So step schedulers within it,
        after backward; if one was stepped outside, the checkpoint would lack it, and Usage is raised.
        """
        if self._active:
            raise Usage("step within step")
        for s, last in self._schedulers:
            if saved is not None and s.last_epoch != last:
                raise Usage(f"{type(s).__name__} was stepped after the save of its step, which lacks it; step it within step(), after backward")
        for o in saved._objects.values() if saved is not None else ():
            if hasattr(o, "unscale_") and o.is_enabled():
                raise Usage(f"{type(o).__name__} is enabled: it looks at all gradients before the first update; with it call Job.save after scaler.step(optimizer)")
        self._schedulers = []
        self._done, self._active, self._error, self._versions = set(), True, None, {}
        if hasattr(self.optimizer, "_step_count"):
            self.optimizer._step_count += 1  # the schedulers look at it
        self._save = saved._layerwise(step, cursor, self.optimizer) if saved is not None else None
        try:
            with _watched():
                yield
            self._active = False
            if self._error is not None:
                raise self._error
            for p, version in self._versions.items():
                if p.grad is None or p.grad._version != version:
                    raise Usage(f"the gradient of {self._names[p]!r} was changed after its update: clipping or scaling within step() has no effect. Save with Job after optimizer.step() instead")
            if self._save:
                self._save.finish()
                self._schedulers = [(o, o.last_epoch) for o in saved._objects.values() if hasattr(o, "last_epoch")]
        except BaseException:
            if self._save:
                self._save.abort()
            raise
        finally:
            self._active, self._save = False, None
        self.optimizer.zero_grad(set_to_none=True)
