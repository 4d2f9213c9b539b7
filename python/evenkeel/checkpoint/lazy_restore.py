"""Job.restore(behind=True): parameters are read and verified in layer order during the first forward pass. A module that uses a parameter waits until
it is read."""

import collections

import torch


class _Waiting(collections.OrderedDict):
    """A module's parameters. Access to a parameter waits until it is read."""

    def bind(self, wait):
        self.wait = wait
        return self

    def __getitem__(self, key):
        self.wait(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        return self[key] if key in self else default

    def pop(self, key, *default):
        self.wait(key)
        return super().pop(key, *default)

    def values(self):
        return [self[k] for k in self]

    def items(self):
        return [(k, self[k]) for k in self]

    def plain(self):
        return collections.OrderedDict((k, collections.OrderedDict.__getitem__(self, k)) for k in self)

    def __reduce__(self):  # copies and pickles are plain
        return collections.OrderedDict, (self.items(),)

    def copy(self):
        return collections.OrderedDict(self.items())


class Gate:
    """Makes modules wait for their parameters, and an optimizer for its state, until open()."""

    def __init__(self, reader):
        self._reader, self._modules, self._hooks = reader, [], []

    def modules(self, root, names):
        """Makes the modules below root wait. names: tensor -> name of its array."""
        self._hooks.append(root.register_forward_hook(lambda *_: self._reader.go.set()))
        for m in root.modules():
            own = {k: names[p] for k, p in m._parameters.items() if p in names}
            if not own:
                continue

            def wait(key, own=own):
                if key in own:
                    self._reader.wait(own[key])

            m.__dict__["_parameters"] = _Waiting(m._parameters).bind(wait)
            self._modules.append(m)
            # Some modules keep further references (_flat_weights of RNNs).
            self._hooks.append(m.register_forward_pre_hook(lambda _, args, own=own: self._reader.wait(*own.values())))

    def optimizer(self, o):
        """Makes an optimizer wait for everything."""
        self._hooks += [o.register_step_pre_hook(lambda *_: self._reader.wait()), o.register_state_dict_pre_hook(lambda *_: self._reader.wait())]

    def open(self):
        """Removes what the gate has installed."""
        for m in self._modules:
            if isinstance(m.__dict__["_parameters"], _Waiting):
                m.__dict__["_parameters"] = m.__dict__["_parameters"].plain()
        for hook in self._hooks:
            hook.remove()
        self._modules, self._hooks = [], []


def lazy(module):
    """Whether a module can wait for its parameters. Compiled graphs cannot."""
    return not any(isinstance(m, torch.jit.ScriptModule) or type(m).__name__ == "OptimizedModule" for m in module.modules())
