"""Layer-wise updates and saves. Each parameter is updated and saved as soon as backward has its gradient, while backward goes on to the layers below.
With DistributedDataParallel this happens when the parameter's bucket was reduced over all ranks. docs/guides/checkpoint-pytorch.md#layer-by-layer shows a
job, and says what is refused.

Parameters that have their gradients are stepped as if the optimizer had no others. step() detects gradients that change after their update, as by clipping.
"""

import collections
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from .file import layout
from .file.errors import Usage
from .file.layout import MOMENT, PARAMETER
from .state.loading import parameters
from .state.plan import moment_name


def _part_of(optimizer, params):
    """A copy of an optimizer that steps only these parameters. params: a list for each group."""
    part = object.__new__(type(optimizer))
    part.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("param_groups", "step")})
    part.param_groups = [{**g, "params": list(ps)} for g, ps in zip(optimizer.param_groups, params)]
    return part


def _couples(optimizer, params):
    """Whether steps of copies of these parameters together differ from steps of each."""
    ends = []
    for together in (True, False):
        with torch.random.fork_rng(devices=[]):
            twins = {p: p.detach().clone().requires_grad_() for p in params}
            whole = _part_of(optimizer, [[twins[p] for p in g["params"] if p in twins] for g in optimizer.param_groups])
            whole.state = collections.defaultdict(dict, {twins[p]: copy.deepcopy(optimizer.state[p]) for p in params if p in optimizer.state})
            for step in range(2):
                for i, q in enumerate(twins.values()):
                    q.grad = torch.full_like(q, 0.3 * i + 0.1 * step - 0.2)
                for these in [set(twins.values())] if together else [{q} for q in twins.values()]:
                    type(optimizer).step(_part_of(whole, [[q for q in g["params"] if q in these] for g in whole.param_groups]))
            ends.append(list(twins.values()))
    return not all(map(torch.equal, *ends))


class _Save:
    """One layer-wise save of a Job. It begins when the first parameter is updated, after the forward pass."""

    def __init__(self, owner, step, cursor, optimizer):
        owner.check_restored()
        if owner.ranks > 1 and owner.slots < 3:
            raise Usage(f"slots is {owner.slots}; layer-wise saves on several ranks need at least 3")
        if optimizer not in owner._objects.values():
            raise Usage("LayerWise has another optimizer than the Job's restore() or save()")
        self._owner, self._step, self._cursor, self._optimizer = owner, step, cursor, optimizer
        self._key = next(k for k, o in owner._objects.items() if o is optimizer)
        self._names = {}
        for name, p in parameters(owner._objects).items():
            self._names.setdefault(p, name)
        self._begun = False

    def begin(self):
        if not self._begun and self._owner._file is not None and not self._owner._retired:
            self._owner._file._named = {}
            self._owner._file.begin(self._step)
            self._begun = True

    def _parts(self, params):
        """Yields the parameters and their moments as (name, tensor, kind)."""
        for p in params:
            name = self._names[p]
            yield name, p.detach(), PARAMETER
            for k, v in self._optimizer.state.get(p, {}).items():
                if torch.is_tensor(v):
                    yield moment_name(name, self._key, k), v.detach(), MOMENT

    def ready(self, params):
        if self._begun:
            index = self._owner._file._index
            names = [n for n, _, _ in self._parts(params) if n in index]
            if names:  # without names it would wait for all
                self._owner._file.ready(*names)

    def write(self, params):
        if not self._begun:
            return
        ck = self._owner._file
        for name, t, kind in self._parts(params):
            e = ck._index.get(name)
            if e is not None and layout.describe({name: (t, kind)})[0][0][1:4] == e[1:4]:
                ck._named[name] = (t, kind)
                ck.write(name)

    def finish(self):
        self._owner.finish_layers(self._step, self._cursor, self._begun)

    def abort(self):
        if self._begun and self._owner._file is not None:
            self._owner._file.abort()


class LayerWise:
    """Steps an optimizer parameter by parameter during backward."""

    def __init__(self, model, optimizer):
        self.model = model
        if isinstance(optimizer, torch.optim.LBFGS):
            raise Usage("LBFGS treats all parameters together and cannot be stepped layer by layer")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise Usage("LayerWise needs the model and one optimizer of all its parameters")
        if type(optimizer).state_dict is not torch.optim.Optimizer.state_dict:  # it may step others, too
            raise Usage(f"{type(optimizer).__name__} has a state_dict() of its own; it cannot be stepped layer by layer")
        self.optimizer = optimizer
        self._ddp = type(model).__name__ == "DistributedDataParallel"
        if any(type(m).__name__ == "FullyShardedDataParallel" for m in model.modules()):
            raise Usage("FullyShardedDataParallel is not supported: its ranks hold parts of parameters")
        dist = getattr(torch, "distributed", None)
        if not self._ddp and dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise Usage("several processes train, and the model is not DistributedDataParallel: each would use its own gradients; pass the wrapped model")
        inner = model.module if self._ddp else model
        self._names = {p: n for n, p in inner.named_parameters() if p.requires_grad}
        stepped = {p for g in optimizer.param_groups for p in g["params"]}
        for p, name in self._names.items():
            if p not in stepped:
                raise Usage(f"parameter {name!r} is not in the optimizer; freeze it, or add it")
        for p in stepped:
            if p.requires_grad and p not in self._names:
                raise Usage(f"the optimizer has a parameter of shape {tuple(p.shape)} that is not in the model")
        if _couples(optimizer, sorted(self._names, key=torch.Tensor.numel)[:2]):
            raise Usage(f"{type(optimizer).__name__} couples parameters: its step of two is not a step of each; save with Job after optimizer.step()")
        self._lock = threading.Lock()  # backward may run in several threads
        self._active = False
        self._done = set()  # parameters updated in this step
        self._versions = {}  # the versions of their gradients at the update
        self._save = None  # the _Save of this step
        self._schedulers = []  # schedulers with last_epoch as it was saved
        self._error = None  # of the update of a bucket
        if self._ddp:
            self._hook_ddp()
        else:
            for p in self._names:
                p.register_post_accumulate_grad_hook(lambda p: self._finished([p]))

    def _hook_ddp(self):
        if getattr(self.model, "find_unused_parameters", False):
            raise Usage("find_unused_parameters: a parameter that no rank has used would be stepped; save with Job after optimizer.step()")
        # Python waits for this thread at exit. The thread of the all-reduce would abort the process then.
        self._updates = ThreadPoolExecutor(1, "evenkeel-updates")
        dist, group = torch.distributed, self.model.process_group
        share = 1.0 / dist.get_world_size(group)

        def reduce(_, bucket):
            # DDP also multiplies before the sum. Dividing would round differently with three ranks.
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
                    except Exception as e:  # step() raises it
                        self._error = e

            def reduced():
                try:
                    work.wait()
                    update()
                    out.set_result(buffer)
                except Exception as e:  # a rank was lost
                    out.set_exception(e)

            self._updates.submit(reduced)
            if bucket.is_last():  # DDP writes to gradients in a callback that is queued after this one
                queue = torch.autograd.Variable._execution_engine.queue_callback
                queue(lambda: queue(self._settled))
            return out

        try:
            self.model.register_comm_hook(None, reduce)
        except RuntimeError as e:
            raise Usage(f"DistributedDataParallel already has a comm hook ({e}); LayerWise needs its own") from e

    def _settled(self):
        self._versions = {p: _mark(p.grad) for p in self._names if p.grad is not None}

    def _finished(self, params):
        """Updates and saves parameters that have their gradients."""
        if not self._active:
            return
        with self._lock, torch.no_grad():
            again = [p for p in params if p in self._done]
            if again:
                raise Usage(f"parameter {self._names[again[0]]!r} got a second gradient in one step; run all backward passes but the last before step(), or use Job")
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
            if not self._ddp:
                self._versions.update((p, _mark(p.grad)) for p in mine if p.grad is not None)
            if self._save:
                self._save.write(params)

    @contextmanager
    def step(self, saved=None, step=0, cursor=0):
        """A context in which backward is an optimizer step and, with a Job, a save. Gradients are None afterwards.

        Parameters without a gradient, buffers and other objects are saved at the end of the context. So step schedulers in it, after backward. If a
        scheduler was stepped outside, the next step raises Usage, because the checkpoint lacks that.
        """
        if self._active:
            raise Usage("step() was called within step()")
        for s, last in self._schedulers:
            if saved is not None and s.last_epoch != last:
                raise Usage(f"{type(s).__name__} was stepped after its step was saved; step it within step(), after backward")
        for o in saved._objects.values() if saved is not None else ():
            if hasattr(o, "unscale_") and o.is_enabled():
                raise Usage(f"{type(o).__name__} is enabled, and needs all gradients before the first update; call Job.save after scaler.step(optimizer)")
        self._schedulers = []
        self._done, self._active, self._error, self._versions = set(), True, None, {}
        if hasattr(self.optimizer, "_step_count"):
            self.optimizer._step_count += 1  # schedulers look at it
        self._save = _Save(saved, step, cursor, self.optimizer) if saved is not None else None
        try:
            yield
            self._active = False
            if self._error is not None:
                raise self._error
            for p, (version, sum_) in self._versions.items():
                if p.grad is None or p.grad._version != version or not torch.equal(_mark(p.grad)[1], sum_):
                    raise Usage(f"the gradient of {self._names[p]!r} was changed after its update: clipping or scaling within step() has no effect; use Job")
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


def _mark(grad):
    """What tells whether a gradient was changed: its version, and the sum of its first elements, since a GradScaler's unscale_ leaves the version as it is."""
    return grad._version, torch.nan_to_num(grad.detach().flatten()[:64].float().sum())
