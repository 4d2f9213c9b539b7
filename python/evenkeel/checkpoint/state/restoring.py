"""Restoring: the newest step that verifies on all ranks."""

import torch

from .. import lazy_restore, tensor_file
from ..file.errors import CheckpointError, Corrupt
from ..file.layout import BUFFER, PARAMETER, State
from . import loading
from .ranks import Ranks
from .plan import inner


class Restoring(Ranks):
    """Restores a checkpoint from existing files into live objects, at once or during the first forward pass."""

    def __init__(self, path, group):
        super().__init__(group)
        self.path = path
        self.faults = []  # what restore found damaged
        self._file = None
        self._restored = False
        self._reader = self._gate = self._behind = None  # of a restore that is not complete

    def _newest(self, paths, steps, objects, behind):
        for step in steps:
            error = state = None
            try:
                state = self._load(paths, step, objects, behind)
            except Corrupt as e:
                error = e
            except (CheckpointError, OSError) as e:
                self._agree(e)
            bad = [why for (why,) in self._agree(None, str(error) if error else None) if why]
            if not bad:
                return state
            self._give_up_reading()
            self.faults.append(f"step {step}: {bad[0]}")
        raise Corrupt(f"{self.path}: no step verifies on all ranks: {'; '.join(self.faults)}")

    def _load(self, paths, step, objects, behind):
        """Reads one step of all files into the objects; with behind, it begins to."""
        files = []
        try:
            places = {}
            for p in paths:
                files.append(tensor_file.open_(p, read_only=True))
                state, found = files[-1].at(step)
                places.update({place[0].name: (files[-1], place) for place in found})
                if len(files) - 1 == self.rank % len(paths):
                    blob = state.random
            live = loading.live(paths[0], {k: o for k, o in objects.items() if isinstance(o, torch.nn.Module)}, {n: p[0] for n, (_, p) in places.items()})
            into, loads = loading.prepare(paths[0], blob, objects, live, {n: p[0] for n, (_, p) in places.items()})
            order = [n for n in live if live[n][1] == PARAMETER]
            first = [n for n in places if places[n][1][0].kind == BUFFER]
            reads = {n: (lambda n=n: places[n][0].read(places[n][1], into[n])) for n in first + order}
            moments = {n: (lambda n=n: places[n][0].read(places[n][1], into[n])) for n in places if n not in reads}
            reader = lazy_restore.Reader(reads, moments)
            self._reader = (reader, files)
            if not behind:
                reader.wait()
            elif first:
                reader.wait(*first)  # DDP broadcasts buffers before a forward pass
            for load, v in loads:
                load(v)
            if behind:
                self._gate = lazy_restore.Gate(reader)
                for module in self._lazies(objects):
                    self._gate.modules(module, {p: n for n, p in loading.parameters(objects).items()})
                for o in objects.values():
                    if isinstance(o, torch.optim.Optimizer):
                        self._gate.before(o, "step", reader.wait)
                        self._gate.before(o, "state_dict", reader.wait)
            else:
                self._give_up_reading()
            return State(state.step, state.cursor, b"", {})
        except BaseException:
            if self._reader is None:
                for ck in files:
                    ck.close()
            self._give_up_reading()
            raise

    @staticmethod
    def _lazies(objects):
        return [inner(o) for o in objects.values() if isinstance(o, torch.nn.Module)]

    def _give_up_reading(self):
        """Ends the readers in the background, and releases the modules."""
        if self._reader is not None:
            (reader, files), self._reader = self._reader, None
            reader.stop()
            for ck in files:
                ck.close()
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.open()
        self._behind = None

    def _complete(self):
        """Waits until everything of restore(behind=True) is read. All ranks call it, in ready() and before saves."""
        if self._reader is None:
            return
        error, then = None, self._behind
        try:
            self._reader[0].wait()
        except (CheckpointError, OSError) as e:
            error = type(e)(f"{self.path}: {e}; restore again without behind, which looks for an older checkpoint")
        self._give_up_reading()
        if error is not None:
            self._restored = False
        try:
            self._agree(error)
        except BaseException:
            self._restored = False
            raise
        if then is not None:
            self._everywhere(lambda: self._take_up(*then))

    def _take_up(self, path, state):
        """Opens this rank's file for writing, at the step that was restored."""
        step = state.step
        ck = tensor_file.open_(path)
        try:
            found = [slot for slot, r in ck._found().items() if r.step == step]
            if not found:
                raise Corrupt(f"{path}: step {step} is gone")
            ck._known = True
            ck.give_up_after(step)
            ck._last = (step, state.cursor, None)
            if self.ranks > 1:
                ck.acknowledge(step)
        except BaseException:
            ck.close()
            raise
        self._file = ck
