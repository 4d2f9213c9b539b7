"""Restoring during the first forward pass: a module's parameters are read and verified in layer order, and a module that uses a parameter that has
not been read yet waits for it. Job.restore(behind=True) uses this."""

import collections
import threading
import types

import torch

from .file.transfer import background


_PATIENCE = 1.0  # seconds for which the moments leave processor and disk to the forward pass, once its parameters are read


class Reader:
    """Reads arrays in the background, in order, but first those that a thread waits for."""

    def __init__(self, reads, later=(), threads=2):
        """reads, later: name -> function that reads and verifies the array, in order. One thread reads later after all of reads, with a low priority,
        until a thread waits for everything."""
        self._todo, self._later = collections.OrderedDict(reads), collections.OrderedDict(later)
        self._left = {*self._todo, *self._later}
        self._wanted = collections.deque()
        self._changed = threading.Condition()
        self._error, self._stopped = None, False
        self.go = threading.Event()  # later may begin: the forward pass is done
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(min(threads, len(self._todo)))]
        if self._later:
            self._threads.append(threading.Thread(target=self._run_later, daemon=True))
        for t in self._threads:
            t.start()

    def _next(self, later):
        with self._changed:
            if self._error or self._stopped:
                return None, None
            while self._wanted:
                name = self._wanted.popleft()
                for some in (self._todo, self._later):
                    if name in some:
                        return name, some.pop(name)
            some = self._later if later else self._todo
            return some.popitem(last=False) if some else (None, None)

    def _run_later(self):
        background()
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._stopped or self._left <= self._later.keys())
        self.go.wait(_PATIENCE)
        self._run(later=True)

    def _run(self, later=False):
        while True:
            name, read = self._next(later)
            if read is None:
                return
            error = None
            try:
                read()
            except BaseException as e:  # raised in wait()
                error = e
            read = None  # no reference to a tensor is kept
            with self._changed:
                if error is None:
                    self._left.discard(name)
                else:
                    self._error = self._error or error
                self._changed.notify_all()

    def wait(self, *names):
        """Waits until these arrays, or all, are read and verified; raises what went wrong with any."""
        if names and self._left.isdisjoint(names):  # reading a set needs no lock
            return
        if not names:
            self.go.set()
            self._run()  # the waiting thread helps
            self._run(later=True)
        with self._changed:
            self._wanted.extend(n for n in names if n in self._todo or n in self._later)
            self._changed.wait_for(lambda: self._error or self._stopped or (self._left.isdisjoint(names) if names else not self._left))
            if self._error:
                raise self._error
            if self._stopped:
                raise RuntimeError("the restore was given up")

    def stop(self):
        """Ends the threads; waiting threads get an error."""
        with self._changed:
            self._stopped = self._stopped or bool(self._left)
            self._changed.notify_all()
        self.go.set()
        for t in self._threads:
            t.join()


class _Waiting(collections.OrderedDict):
    """A module's parameters. Access to one waits until it is read, also from another module."""

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

    def __reduce__(self):  # of copies and pickles
        return collections.OrderedDict, (self.items(),)

    def copy(self):
        return collections.OrderedDict(self.items())


class Gate:
    """Makes modules wait for their parameters, and an optimizer for its state, until open() is called."""

    def __init__(self, reader):
        self._reader, self._modules, self._hooks, self._methods = reader, [], [], []

    def modules(self, root, names):
        """names: tensor -> the name of its array."""
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
            # Some modules keep references of their own (RNN's _flat_weights).
            self._hooks.append(m.register_forward_pre_hook(lambda _, args, own=own: self._reader.wait(*own.values())))

    def before(self, owner, method, do):
        """Calls do() before owner's method, once; afterwards the method is the class's again."""
        had = owner.__dict__.get(method)
        real = getattr(owner, method)

        def first(_, *args, **keywords):
            do()
            return real(*args, **keywords)

        first.__dict__.update(getattr(real, "__dict__", {}))  # schedulers leave a mark on step
        bound = types.MethodType(first, owner)  # and ask a method whose it is
        setattr(owner, method, bound)
        self._methods.append((owner, method, bound, had))

    def open(self):
        for m in self._modules:
            if isinstance(m.__dict__["_parameters"], _Waiting):
                m.__dict__["_parameters"] = m.__dict__["_parameters"].plain()
        for hook in self._hooks:
            hook.remove()
        for owner, method, first, had in self._methods:
            if owner.__dict__.get(method) is first:  # else somebody has wrapped it: then it is passed through
                if had is None:
                    delattr(owner, method)
                else:
                    setattr(owner, method, had)
        self._modules, self._hooks, self._methods = [], [], []


def lazy(module):
    """Whether a module's parameters can be waited for: not those of compiled graphs."""
    return not any(isinstance(m, torch.jit.ScriptModule) or type(m).__name__ == "OptimizedModule" for m in module.modules())
