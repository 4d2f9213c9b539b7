"""The saves of LayerWise, which happen while it updates parameters."""

import torch

from ..file import layout
from ..file.layout import MOMENT, PARAMETER
from .plan import Plan, inner


class LayerSave:
    """One layer-wise save. It begins with the first parameter that is updated, which is after the forward pass."""

    def __init__(self, owner, step, cursor, optimizer):
        self._owner, self._step, self._cursor, self._optimizer = owner, step, cursor, optimizer
        self._key = next(k for k, o in owner._objects.items() if o is optimizer)
        self._names = {}
        for key, o in owner._objects.items():
            if isinstance(o, torch.nn.Module):
                for name, p in inner(o).named_parameters():
                    self._names.setdefault(p, Plan.name(key, name))
        self._begun = False

    def begin(self):
        if not self._begun and self._owner._file is not None and not self._owner._retired:
            self._owner._file._named = {}
            self._owner._file.begin(self._step)
            self._begun = True

    def _parts(self, params):
        """These parameters and their moments, as (name, tensor, kind)."""
        for p in params:
            name = self._names[p]
            yield name, p.detach(), PARAMETER
            for k, v in self._optimizer.state.get(p, {}).items():
                if torch.is_tensor(v):
                    yield (f"{name}.{k}" if self._key == "optimizer" else f"{name}.{self._key}.{k}"), v.detach(), MOMENT

    def ready(self, params):
        if self._begun:
            index = self._owner._file._index
            names = [n for n, _, _ in self._parts(params) if n in index]
            if names:
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
        self._owner._finish_layers(self._step, self._cursor, self._begun)

    def abort(self):
        if self._begun and self._owner._file is not None:
            self._owner._file.abort()
