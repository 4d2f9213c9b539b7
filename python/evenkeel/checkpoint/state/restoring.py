"""Restores the newest step that verifies on all ranks."""

import functools

import torch

from .. import lazy_restore, tensor_file
from ..file.errors import CheckpointError, Corrupt
from ..file.layout import BUFFER, PARAMETER, State
from ..file.reads import Reads
from . import loading, sets
from .plan import by_parameter, inner


def text(error):
    """The text of an error, or None."""
    return str(error) if error else None


class Restoring:
    """Restores live objects from existing files, at once or during the first forward pass. All ranks of torch.distributed continue together or fail
    together."""

    def __init__(self, path):
        self.rank, self.ranks, self.group = 0, 1, None
        dist = getattr(torch, "distributed", None)
        if dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            # A separate group on the CPU keeps its operations apart from those of the training.
            self.group = dist.new_group(backend="gloo")
            self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.path = path
        self.faults = []  # the damage that restore found
        self._file = None
        self._restored = False
        self._reader = self._gate = self._behind = None  # of an incomplete restore

    def _gather(self, *values):
        """Returns the values of all ranks."""
        if self.ranks == 1:
            return [values]
        out = [None] * self.ranks
        torch.distributed.all_gather_object(out, values, group=self.group)
        return out

    @staticmethod
    def _raise(error, said):
        """Raises this rank's error, else the first error of another rank. said: the text of each rank's error, or None."""
        if error:
            raise error
        for rank, text in enumerate(said):
            if text is not None:
                raise CheckpointError(f"rank {rank}: {text}")

    def _agree(self, error, *values):
        """Raises on all ranks if one has an error, else returns the values of all ranks."""
        got = self._gather(text(error), *values)
        self._raise(error, [said for said, *_ in got])
        return [v for _, *v in got]

    def _everywhere(self, do):
        """Calls do() on all ranks. An error on one is raised on all."""
        error = value = None
        try:
            value = do()
        except (CheckpointError, OSError) as e:
            error = e
        if self.ranks > 1 and self._none(error):
            return value
        self._agree(error)
        return value

    def _none(self, error):
        """Whether no rank has an error: quicker than _agree, which says what they are."""
        some = torch.tensor(int(error is not None))
        torch.distributed.all_reduce(some, group=self.group)
        return not some

    def _newest(self, paths, steps, objects, behind):
        for step in steps:
            error = state = None
            try:
                state = self._load(paths, step, objects, behind)
            except Corrupt as e:
                error = e
            except (CheckpointError, OSError) as e:
                self._agree(e)
            bad = [why for (why,) in self._agree(None, text(error)) if why]
            if not bad:
                return state
            self._give_up_reading()
            self.faults.append(f"step {step}: {bad[0]}")
        raise Corrupt(f"{self.path}: no step verifies on all ranks: {'; '.join(self.faults)}")

    def _load(self, paths, step, objects, behind):
        """Reads a step of all files into the objects. With behind, it only begins to read."""
        files = []
        try:
            places = {}
            for p in paths:
                files.append(tensor_file.open_(p, read_only=True))
            saves = sets.at(files, step)
            for ck, (_, found) in zip(files, saves):
                places.update({place[0].name: (ck, place) for place in found})
            state = saves[self.rank % len(paths)][0]
            entries = {n: place[0] for n, (_, place) in places.items()}
            live = loading.live(paths[0], {k: o for k, o in objects.items() if isinstance(o, torch.nn.Module)}, entries)
            into, loads, soon = loading.prepare(paths[0], state.random, objects, live, entries)
            first = [n for n, e in entries.items() if e.kind == BUFFER or soon and n in soon]
            order = first + [n for n, (_, kind) in live.items() if kind == PARAMETER]
            reads = {n: functools.partial(places[n][0].read, places[n][1], into[n]) for n in dict.fromkeys((*order, *places))}
            reader = Reads({n: reads.pop(n) for n in order}, reads) if behind else Reads(reads)
            self._reader = (reader, files)
            if not behind or soon is None:
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
                    if isinstance(o, torch.optim.Optimizer) and by_parameter(o):
                        self._gate.optimizer(o)
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
        """Stops reading in the background, and releases the modules."""
        if self._reader is not None:
            (reader, files), self._reader = self._reader, None
            reader.close()
            for ck in files:
                ck.close()
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.open()
        self._behind = None

    def _complete(self):
        """Waits until restore(behind=True) has read everything. All ranks call it, in ready() and before saves."""
        if self._reader is None:
            return
        error, then = None, self._behind
        try:
            self._reader[0].wait()
        except (CheckpointError, OSError) as e:
            error = type(e)(f"{self.path}: {e}; restore again without behind, which looks for an older checkpoint")
        self._give_up_reading()
        restored, self._restored = self._restored, False
        self._agree(error)
        self._restored = restored
        if then is not None:
            self._everywhere(lambda: self._take_up(*then))

    def _take_up(self, path, state):
        """Opens this rank's file for writing after the restored step."""
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
