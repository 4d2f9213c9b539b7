"""Layer-wise updates and saves: each parameter is updated as soon as backward has its gradient, and saved at once, while
the layers below it still compute theirs.

    layers = layerwise.LayerWise(model, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
    with checkpoint.open_or_create("run.ckpt", layers.tensors()) as ck:
        state = ck.restore()                                # None: nothing was saved yet
        for step in range(state.step + 1 if state else 0, steps):
            with layers.saving(ck, step, random=torch.get_rng_state().numpy().tobytes()):
                loss(model, batch(step)).backward()         # updates and saves, too

One backward pass per step; no clipping by the norm of all gradients, which is known only at the end: for that, and for
gradients that several backward passes add up, use checkpoint.save() after optimizer.step().
"""

from contextlib import contextmanager

from . import checkpoint


class LayerWise:
    """An optimizer per parameter, stepped by hooks. make_optimizer is given a list of one parameter."""

    def __init__(self, model, make_optimizer):
        self.model = model
        self.optimizers = {name: make_optimizer([p]) for name, p in model.named_parameters() if p.requires_grad}
        self._tensors = checkpoint.tensors(model)
        self._parts = {}  # of each parameter: the names that are saved with it
        self._ck = self._step = None
        self._hooked = []  # keeps what the hooks hang on
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            all_ = checkpoint.tensors(model, self.optimizers[name])
            moments = {n: t for n, t in all_.items() if n not in self._tensors and t[1] == checkpoint.MOMENT}
            self._parts[name] = [name, *moments]
            self._hook(name, p)
        for name in self._parts:
            for n, t in checkpoint.tensors(model, self.optimizers[name]).items():
                self._tensors.setdefault(n, t)

    def tensors(self):
        """All tensors that the job needs to go on, for checkpoint.create and open_."""
        return dict(self._tensors)

    def _hook(self, name, p):
        if hasattr(p, "register_post_accumulate_grad_hook"):  # torch 2.1 and newer
            p.register_post_accumulate_grad_hook(lambda _: self._finished(name, p))
            return
        node = p.expand_as(p).grad_fn.next_functions[0][0]  # what adds the gradient to p.grad
        node.register_hook(lambda *_: self._finished(name, p))
        self._hooked.append(node)

    def _finished(self, name, p):
        if self._ck is not None and self._step is not None:
            self._ck.begin(self._step)  # it waits, if at all, behind the whole forward pass
            self._step = None
        if self._ck is not None:
            self._ck.ready(*self._parts[name])
        self.optimizers[name].step()
        p.grad = None
        if self._ck is not None:
            self._ck.write(*self._parts[name])

    @contextmanager
    def saving(self, ck, step, cursor=0, random=b"", scalars=None):
        """The backward pass within saves its step. What it did not reach, and buffers, are saved at its end."""
        self._ck, self._step = ck, step
        try:
            yield
            if self._step is not None:
                ck.begin(step)
            ck.write(*(n for n in self._tensors if n not in ck.written()))
            ck.commit(cursor, random, scalars)
        except BaseException:
            ck.abort()
            raise
        finally:
            self._ck = self._step = None
