"""Checkpoints of a job's live objects: model, optimizer, schedulers, scalers, samplers, generators, on one rank or several.
docs/guides/checkpoint-pytorch.md shows a job and has the rules.

With torch.distributed, each rank writes its share of the arrays into a file of its own, PATH.gG.RofN. Buffers, and tensors in objects other than modules
and optimizers, come from rank 0; generators and plain values come from each rank.

The first save creates the file, because the optimizer's state exists then. If more state appears later, as when a parameter gets its first gradient, a new
file replaces the old one once it has a checkpoint.
"""

import os
import secrets
import time

from . import audit, lazy_restore, tensor_file
from .file import layout
from .file.errors import CheckpointError, Schema, Usage
from .file.layout import PARAMETER
from .interval import Interval
from .state import sets
from .state.plan import Plan, stripe
from .state.restoring import Restoring, text


class Job(Restoring):
    """Saves and restores a job's objects, on all ranks of torch.distributed if it is in use."""

    def __init__(self, path, slots=3, keep_every=0, keep_best=None, budget=0.01):
        """slots: the number of checkpoints for which a file has room, 2 to 16. keep_every: also keep the checkpoint of every step that is a multiple of
        it, in files PATH.stepN. keep_best: "min" or "max"; also keep the checkpoint with the best metric of save(), in PATH.best. Restore both like any
        other: Job(PATH.best).restore(). budget: the share of time that saving may take if due() decides which steps to save.
        """
        if keep_best not in (None, "min", "max") or not isinstance(keep_every, int) or keep_every < 0:
            raise Usage(f"keep_every is {keep_every!r}, must be a number of steps; keep_best is {keep_best!r}, must be min, max or None")
        super().__init__(os.fspath(path))
        self.slots = slots
        self.keep_every, self.keep_best, self._best, self.best = keep_every, keep_best, None, None
        self.durable = None  # the newest step that is durable on all ranks
        self._generation = 0  # of the present files
        self._retired = []  # older files, to be removed once the new ones have a checkpoint
        self._old = None  # the file before, locked until it is replaced
        self._pending = None  # a step committed here that may not be durable on all ranks yet
        self._objects = {}
        self._forms = self._mine = self._same = self._table = None  # of the newest tensors: name, type and shape, entries of this rank's and of those that are alike
        self._interval, self.interval = Interval(budget), 1  # steps between saves: the longest of all ranks
        self._since, self._stepped, self._begun, self._flying, self._took = 0, None, False, False, None

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close(wait=kind is None)

    def restore(self, reshard=False, behind=False, **objects):
        """Restores the objects from the newest checkpoint that verifies on all ranks. Returns a State of step and cursor, or None if nothing was saved.

        Raises Corrupt if something was saved and nothing verifies, and Schema with the first difference if the objects differ from the saved ones.
        With reshard and another number of ranks, rank r takes the generators and other objects of saved rank r modulo the saved number of ranks.

        With behind, it returns before the arrays are read. In the first forward pass a module waits for each parameter when it uses it; the
        optimizer's state is read afterwards. Everything is verified before it is used. ready() or the next save waits for the rest. An array that
        does not verify raises Corrupt there; then restore again without behind, which looks for an older checkpoint. Only modules wait: references to
        parameters that are kept elsewhere do not.
        """
        self._close_file()
        self.faults = []
        behind = behind and all(map(lazy_restore.lazy, self._lazies(objects)))
        state, latest = None, self._latest()
        if latest:
            ranks, paths, steps, _ = latest
            if ranks != self.ranks and not reshard:
                raise Schema(f"{paths[0]}: the checkpoint is of {ranks} ranks, this job has {self.ranks}; pass reshard=True to restore it here")
            state = self._newest(paths, steps, objects, behind)
            self._continue(latest, state, behind)
        self._restored, self._objects = True, objects
        if self.keep_best:
            self._best = self._beside(".best", 3)
            held = self._best._reopen()
            self.best = held.scalars["metric"] if held else None
        self.durable = state.step if state else None
        return state

    def _latest(self):
        """The newest set of files with checkpoints that all of its files have: (ranks, paths, steps, generation), or None."""
        found = self._everywhere(lambda: sets.sets(self.path))
        if any(s != found for (s,) in self._agree(None, found)):
            raise Usage(f"{self.path}: the ranks see different files; all must see the files of all")
        for generation, ranks, paths, missing in found:
            steps, faults = self._everywhere(lambda paths=paths, missing=missing: sets.common(paths, missing))
            self.faults += faults
            self._generation = max(self._generation, generation)
            if steps:
                return ranks, paths, steps, generation
        return None

    def _continue(self, latest, state, behind=False):
        """Continues the files of a set, or replaces them if the number of ranks differs."""
        ranks, paths, _, generation = latest
        if ranks != self.ranks:
            self._retired = paths
            return
        if behind:
            self._behind = (paths[self.rank], state)
        else:
            self._everywhere(lambda: self._take_up(paths[self.rank], state))
        self._generation = generation

    def _beside(self, name, slots):
        """A Job of the same ranks with other files."""
        other = object.__new__(Job)
        other.__dict__.update(self.__dict__)
        other.path, other.slots, other.keep_every, other.keep_best, other._best = self.path + name, slots, 0, None, None
        other.faults, other.durable, other._file, other._old, other._pending, other._retired, other._generation = [], None, None, None, None, [], 0
        other._restored = True
        other._reader = other._gate = other._behind = None
        return other

    def _reopen(self):
        """Continues existing files without restoring objects. Returns the State of the newest step, or None."""
        latest = self._latest()
        if not latest:
            return None

        def head():
            with tensor_file.open_(latest[1][0], read_only=True) as ck:
                return ck.at(latest[2][0])[0]

        state = self._everywhere(head)
        self._continue(latest, state)
        return state

    def _keep(self, step, cursor, metric):
        """Saves the step again into the files of keep_every and keep_best if it belongs there, and waits until it is durable."""
        if self.keep_every and step and step % self.keep_every == 0:
            other = self._beside(f".step{step}", 2)
            if other._reopen() is None:  # else the step was kept before a restart
                other.save(step, cursor, **self._objects)
            other.close()
        if self._best is not None and metric is not None and (self.best is None or (metric < self.best if self.keep_best == "min" else metric > self.best)):
            self._best.save(step, cursor, _scalars={"metric": metric}, **self._objects)
            self._best.wait()
            self.best = metric

    def due(self):
        """Whether to save this step so that saving takes the share of time that budget allows. Call it once in every step, in the same place: it measures
        the steps."""
        now, flying = time.monotonic(), self._file is not None and not self._file._idle.is_set()
        if self._stepped is not None:  # the time from call to call; save() is at its beginning
            self._interval.step(now - self._stepped, self._begun, self._begun or self._flying or flying)
        if self._file is not None and self._file.took != self._took and not flying:
            self._took = self._file.took
            self._interval.saved(self._took)
        self._stepped, self._begun, self._flying = now, False, flying
        self._since += 1
        return self._since >= self.interval

    def save(self, step, cursor=0, metric=None, _scalars=None, **objects):
        """Saves the objects, by default those of the last call, and returns at once. Call ready() before you change tensors.

        All ranks call it with the same step. It waits until the last save is durable on all ranks, and raises that save's error. metric: a number for
        keep_best, the same on all ranks. It waits for saves of keep_every and keep_best.
        """
        if metric is not None and (not isinstance(metric, (int, float)) or metric != metric):
            raise Usage(f"metric is {metric!r}, must be a number")
        self.check_restored()
        self._objects = objects = {**self._objects, **objects}
        fault = error = blob = digest = None
        new = False
        try:
            named, blob, new, digest = self._plan(objects)
        except (CheckpointError, OSError) as e:
            error = e
        if self._pending is not None:
            try:
                self._file.wait()
            except (CheckpointError, OSError) as e:
                fault = e
        votes = self._gather(text(fault), text(error), step, new, metric, self._interval.steps(), secrets.randbits(31), digest)  # a single exchange, because the ranks wait for each other in it
        faults, errors, steps, news, metrics, intervals, nonces, digests = zip(*votes)
        if any(faults):
            self._pending = None
            self._raise(fault, faults)
        if self._pending is not None:
            self._counts()
        self._raise(error, errors)
        if len(set(steps)) > 1:
            raise Usage(f"the ranks save different steps: {list(steps)}")
        self._alike(digests)
        if len(set(metrics)) > 1:
            raise Usage(f"the ranks give different metrics: {list(metrics)}; reduce it over the ranks first")
        self.interval, self._since, self._begun = max(intervals), 0, True
        if any(news):
            self._new_files(named, blob)
        ck = self._file
        ck._named = named
        self._everywhere(lambda: ck.save(step, cursor, blob, _scalars, nonces[0]))
        self._pending = step
        if self._retired:  # the old files are removed once the new ones have a checkpoint
            self.wait()
        self._keep(step, cursor, metric)

    def check_restored(self):
        """Completes a restore. Raises Usage if there was none."""
        self._complete()
        if not self._restored:
            raise Usage("restore first: only restore() finds out what the files hold")

    def finish_layers(self, step, cursor, begun):
        """Ends a layer-wise save: saves the rest and commits. The ranks meet only here. begun: whether the save was begun."""
        error = blob = named = digest = None
        new = not begun
        try:
            named, blob, differs, digest = self._plan(self._objects)
            new = new or differs
        except (CheckpointError, OSError) as e:
            error = e
        votes = self._agree(error, step, new, self._interval.steps(), secrets.randbits(31), digest)
        if len({s for s, *_ in votes}) > 1:
            raise Usage(f"the ranks save different steps: {[s for s, *_ in votes]}")
        self._alike([v[4] for v in votes])
        self.interval, self._since, self._begun = max(v[2] for v in votes), 0, True
        if any(v[1] for v in votes):  # the first save, or one with more state, is not layer-wise
            if begun:
                self._file.abort()
            return self.save(step, cursor)
        if self._pending is not None:  # begin() has waited for it on every rank
            self._counts()
        ck = self._file
        ck._named = named
        ck.write(*(n for n in named if n not in ck.written()))
        ck.commit(cursor, blob, nonce=votes[0][3])
        self._pending = step

    def _counts(self):
        """The pending save is durable on all ranks."""
        step, self._pending = self._pending, None
        if self.ranks > 1:
            self._file.acknowledge(step)
        self.durable = step
        if self._retired:
            self._retire()

    @staticmethod
    def _alike(digests):
        if len(set(digests)) > 1:
            raise Usage(f"the parameters differ between ranks 0 and {[d != digests[0] for d in digests].index(True)}, in names, shapes or values: each rank saves a "
                        "part, so all must hold the same, as under DistributedDataParallel")

    def _plan(self, objects):
        """This rank's tensors by name, all other state as bytes, whether a new file is needed, and a digest of what all ranks must have alike."""
        plan = Plan(objects)
        forms = [(n, type(t), t.dtype, t.shape, t.layout, kind) for n, (t, kind) in plan.named.items()]
        if forms != self._forms:  # it seldom changes, and takes as long as the rest
            entries = layout.describe(plan.named)[0]
            mine = set(stripe(entries, self.ranks)[self.rank])
            self._mine = {e.name: e for e in entries if e.name in mine}
            self._same = [e for e in entries if e.kind != layout.BUFFER] if self.ranks > 1 else []
            self._table, self._forms = layout.encode_table(e._replace(offset=0) for e in self._same), forms
        digest = layout.hash64(self._table + b"".join(layout.sample(plan.named[e.name][0]) for e in self._same if e.kind == PARAMETER))
        return {n: t for n, t in plan.named.items() if n in self._mine}, plan.blob(), self._differs(self._mine), digest

    def _differs(self, now):
        """Whether a new file is needed, because there is none or because tensors appeared, disappeared or changed. A changed parameter is an error."""
        if self._file is None:
            return True
        before = self._file._index
        for name, e in now.items():
            if name in before and before[name][1:4] != e[1:4] and e.kind == PARAMETER:
                was = before[name]
                raise Schema(f"tensor {name!r} changed since the file was created: shape {e.shape}, type {layout.TORCH[e.dtype]}; it was {was.shape}, {layout.TORCH[was.dtype]}")
        gone = [n for n in before if n not in now and before[n].kind == PARAMETER]
        if gone and self.ranks == 1:
            raise Schema(f"parameter {gone[0]!r} is in the file but no longer in the model")
        return {n: e[1:4] for n, e in now.items()} != {n: e[1:4] for n, e in before.items()}

    def _new_files(self, named, blob):
        self._old, self._file = self._file, None
        if self.ranks == 1 and self._generation == 0:
            path = self.path
            if os.path.lexists(path):
                self._old = self._old or tensor_file.open_(path)  # Locked, if another job writes it
                path += ".growing"
                if os.path.lexists(path):
                    os.unlink(path)
            self._file = tensor_file.create(path, named, self.slots, self._room(blob))
            self._retired = [path] if path != self.path else self._retired
            return
        self._generation += 1
        retire = self._retired + [p for _, _, paths, _ in sets.sets(self.path) for p in paths]
        ids = self._agree(None, os.urandom(16))
        paths = sets.names(self.path, self._generation, self.ranks)

        def make():
            if os.path.lexists(paths[self.rank]):  # a set that was never finished, as restore() has seen
                tensor_file.open_(paths[self.rank]).close()  # Locked, if another job writes it
                os.unlink(paths[self.rank])
            self._file = tensor_file.create(paths[self.rank], named, self.slots, self._room(blob), self.rank, self.ranks, ids[0][0])

        self._everywhere(make)  # no rank saves before all files exist
        self._retired = sorted(set(retire) - set(paths))

    @staticmethod
    def _room(blob):
        return max(64 << 10, 4 * len(blob))

    def ready(self):
        """Waits until the save has read the tensors, so that you may change them. After restore(behind=True) it also completes the restore."""
        self._complete()
        if self._file is not None:
            self._file.ready()

    def wait(self):
        """Waits until the last save is durable on all ranks. All ranks call it, and an error is raised on all."""
        self._complete()
        if self._file is None or self._pending is None:
            return
        try:
            self._everywhere(self._file.wait)
        except BaseException:
            self._pending = None
            raise
        self._counts()

    def audit(self):
        """Proves the newest save: restores it into copies of the objects, and compares every state_dict() and the generators. Raises Corrupt with the
        first difference. All ranks call it right after a save, before anything changes; once a run is enough. It takes the memory of the objects again."""
        self.wait()
        if self.durable is None:
            raise Usage("nothing was saved that audit() could compare; call save() before it")
        paths = [self._file.path] if self.ranks == 1 else sets.names(self.path, self._generation, self.ranks)
        other = self._beside("", self.slots)
        self._everywhere(lambda: audit.audit(self._objects, self.rank, lambda copies: other._load(paths, self.durable, copies, False)))

    def _retire(self):
        """Removes the old files, because the new ones have a checkpoint."""
        retired, self._retired = self._retired, []
        if self._old is not None:
            old, self._old = self._old, None
            old.close()
        if self.ranks == 1 and retired == [self.path + ".growing"]:
            os.replace(self.path + ".growing", self.path)
            self._file.path = self.path
        elif self.rank == 0:
            for p in retired:
                if os.path.lexists(p):
                    os.unlink(p)
        layout.flush_folder(self.path)

    def _close_file(self):
        self._give_up_reading()
        if self._best is not None:
            self._best._close_file()
        for ck in (self._file, self._old):
            if ck is not None:
                ck.close()
        self._file = self._old = self._pending = None

    def close(self, wait=True):
        """Waits for the present save, unless wait is False, and closes the files. All ranks call it."""
        try:
            if wait:
                self.wait()
        finally:
            self._close_file()
