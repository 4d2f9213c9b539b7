"""Checkpoints of a job's live objects: model, optimizer, schedulers, scalers, samplers, generators, on one rank or several.

    with job.Job("run.ckpt") as saved:
        state = saved.restore(model=model, optimizer=optimizer, scheduler=scheduler)    # None: provably a new run
        for step in range(state.step + 1 if state else 0, steps):
            loss(model, batch(step)).backward()
            saved.ready()                                   # the save of the step before has read the tensors
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            saved.save(step, model=model, optimizer=optimizer, scheduler=scheduler)     # returns at once

What is saved is looked up in save(): reloaded optimizers, moved models and reassigned buffers are saved as they are then. An
object is a module, an optimizer, a torch.Generator, or anything with state_dict() and load_state_dict(). The generators of
torch, numpy and random, and those of CUDA where it is in use, are saved too. Nothing is changed by saving, for any optimizer whose
state is tensors and plain values per parameter; LBFGS, which keeps lists of tensors, is refused.

With torch.distributed, every rank of the group calls the same methods. The ranks hold the same model (DDP), each writes its share
of the arrays into a file of its own, PATH.gG.RofN, and a checkpoint counts once all of them are durable. All ranks see all files. Buffers,
and tensors in other objects than modules and optimizers, are rank 0's; generators and plain values each rank's own.
A restore at another number of ranks takes reshard=True.

The file is made in the first save, when the optimizer's state exists. State that appears later (a parameter that had no
gradient before) makes a new file, which takes the old one's place once it holds the checkpoint.
"""

import base64
import collections
import glob
import json
import os
import random as python_random
import re
import time
import zlib

import numpy
import torch

from . import behind as behind_
from . import checkpoint
from .checkpoint import BUFFER, MOMENT, PARAMETER, Corrupt, Schema, State, Usage
from .interval import Interval

_MAGIC = b"EVKLJOB1"


def _encode(v, where, tensor):
    """A value as JSON that gives the same value back, to the bit; tensor(t, where) stores one and gives its name."""
    if v is None or isinstance(v, (bool, str)):
        return v
    if type(v) is int:
        return v
    if type(v) is float:
        return {"f": v.hex()}
    if type(v) is complex:
        return {"c": [v.real.hex(), v.imag.hex()]}
    if isinstance(v, (bytes, bytearray)):
        return {"b": base64.b64encode(v).decode()}
    if torch.is_tensor(v):
        return {"T": tensor(v, where), "where": v.device.type, **({"complex": True} if v.is_complex() else {})}
    if isinstance(v, numpy.ndarray) and v.dtype.kind in "biufc":
        return {"n": [v.dtype.str, list(v.shape), base64.b64encode(numpy.ascontiguousarray(v).tobytes()).decode()]}
    if isinstance(v, numpy.generic) and v.dtype.kind in "biufc":
        return {"g": [v.dtype.str, base64.b64encode(v.tobytes()).decode()]}
    if isinstance(v, torch.dtype):
        return {"dtype": str(v).split(".")[1]}
    if isinstance(v, torch.device):
        return {"device": str(v)}
    if type(v) in (list, tuple, set, frozenset, torch.Size):
        items = sorted(v) if type(v) in (set, frozenset) else v
        tag = {list: "l", tuple: "t", set: "s", frozenset: "z", torch.Size: "S"}[type(v)]
        return {tag: [_encode(x, f"{where}.{i}", tensor) for i, x in enumerate(items)]}
    if isinstance(v, collections.deque):
        return {"q": [_encode(x, f"{where}.{i}", tensor) for i, x in enumerate(v)], "most": v.maxlen}
    if type(v) in (dict, collections.OrderedDict, collections.Counter):
        tag = {dict: "d", collections.OrderedDict: "o", collections.Counter: "C"}[type(v)]
        return {tag: [[_encode(k, where, tensor), _encode(x, f"{where}.{k}", tensor)] for k, x in v.items()]}
    raise Usage(f"{where}: {type(v).__module__}.{type(v).__qualname__} cannot be stored; give the object a state_dict() of tensors and plain values")


def _decode(v, tensor):
    if not isinstance(v, dict):
        return v
    tag = next(iter(v))
    x = v[tag]
    if tag == "f":
        return float.fromhex(x)
    if tag == "c":
        return complex(float.fromhex(x[0]), float.fromhex(x[1]))
    if tag == "b":
        return base64.b64decode(x)
    if tag == "T":
        return tensor(x, v["where"], v.get("complex", False))
    if tag == "n":
        return numpy.frombuffer(base64.b64decode(x[2]), dtype=x[0]).reshape(x[1]).copy()
    if tag == "g":
        return numpy.frombuffer(base64.b64decode(x[1]), dtype=x[0])[0]
    if tag == "dtype":
        return getattr(torch, x)
    if tag == "device":
        return torch.device(x)
    if tag in "ltszS":
        return {"l": list, "t": tuple, "s": set, "z": frozenset, "S": torch.Size}[tag](_decode(i, tensor) for i in x)
    if tag == "q":
        return collections.deque((_decode(i, tensor) for i in x), v["most"])
    pairs = [(_decode(k, tensor), _decode(i, tensor)) for k, i in x]
    if tag == "C":
        return collections.Counter(dict(pairs))
    return (collections.OrderedDict if tag == "o" else dict)(pairs)


def _generators():
    out = {"torch": bytes(torch.get_rng_state().numpy()), "random": python_random.getstate(), "numpy": numpy.random.get_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        out["cuda"] = [bytes(s.cpu().numpy()) for s in torch.cuda.get_rng_state_all()]
    return out


def _set_generators(state):
    torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
    python_random.setstate(state["random"])
    numpy.random.set_state(state["numpy"])
    if "cuda" in state and torch.cuda.is_available():
        if len(state["cuda"]) != torch.cuda.device_count():
            raise Schema(f"generators of {len(state['cuda'])} CUDA devices were saved, there are {torch.cuda.device_count()}")
        torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(s), dtype=torch.uint8) for s in state["cuda"]])


def _inner(module):
    """The module that a DistributedDataParallel wraps, without importing torch.distributed where it is not built."""
    return module.module if type(module).__name__ == "DistributedDataParallel" else module


class _Plan:
    """What one save writes: tensors by name, and the rest as a tree. It is made anew for every save."""

    def __init__(self, objects):
        self.named, self.tree = {}, {}
        modules = {k: _inner(o) for k, o in objects.items() if isinstance(o, torch.nn.Module)}
        self.names = {}
        for key, module in modules.items():
            for m in module.modules():
                if type(m).__name__ == "FullyShardedDataParallel":
                    raise Usage(f"{key}: FullyShardedDataParallel is not supported: its ranks hold different tensors")
            for name, p in module.named_parameters():
                if p not in self.names:
                    self.names[p] = self._name(key, name)
                    self._add(self.names[p], p, PARAMETER)
            for name, b in module.named_buffers():
                self._add(self._name(key, name), b, BUFFER)
            extra = {n: m.get_extra_state() for n, m in module.named_modules() if type(m).get_extra_state is not torch.nn.Module.get_extra_state}
            self.tree[key] = {"module": True, "extra": _encode(extra, key, self._tensor)}
        for key, o in objects.items():
            if key in modules or o is None:
                continue
            if isinstance(o, torch.optim.Optimizer):
                self.tree[key] = self._optimizer(key, o)
            elif isinstance(o, torch.Generator):
                self.tree[key] = {"generator": base64.b64encode(bytes(o.get_state().numpy())).decode()}
            elif hasattr(o, "state_dict") and hasattr(o, "load_state_dict"):
                state = o.state_dict()
                if type(o).__module__ == "torch.optim.lr_scheduler":
                    state = {k: v for k, v in state.items() if not callable(v)}  # which load_state_dict leaves as they are
                self.tree[key] = {"state": _encode(state, key, self._tensor)}
            else:
                raise Usage(f"{key}: {type(o).__name__} has no state_dict() and load_state_dict()")

    @staticmethod
    def _name(key, name):
        return name if key == "model" else f"{key}/{name}"

    def _add(self, name, t, kind):
        if name in self.named:
            raise Usage(f"two tensors are named {name!r}; name one of the objects otherwise")
        self.named[name] = (t.detach(), kind)

    def _tensor(self, t, where):
        self._add(where, t, BUFFER)
        return where

    def _optimizer(self, key, o):
        if type(o).__name__ == "LBFGS":
            raise Usage(f"{key}: LBFGS keeps a history of tensors that grows; it is not supported")
        groups, state = [], []
        for i, g in enumerate(o.param_groups):
            for p in g["params"]:
                if p not in self.names:
                    raise Usage(f"{key}: group {i} has a parameter of shape {tuple(p.shape)} that is in no module given; pass the module too")
            options = {k: v for k, v in g.items() if k != "params"}
            groups.append({"params": [self.names[p] for p in g["params"]], "options": _encode(options, f"{key}.group{i}", self._tensor)})
            for p in g["params"]:
                if p in o.state:
                    state.append([self.names[p], {k: self._moment(key, p, k, v) for k, v in o.state[p].items()}])
        return {"optimizer": type(o).__name__, "groups": groups, "state": state}

    def _moment(self, key, p, k, v):
        name = f"{self.names[p]}.{k}" if key == "optimizer" else f"{self.names[p]}.{key}.{k}"
        if torch.is_tensor(v):
            self._add(name, v, MOMENT)
            where = "parameter" if v.device == p.device and v.device.type != "cpu" else v.device.type
            return {"T": name, "where": where, **({"complex": True} if v.is_complex() else {})}

        def refuse(t, where):
            raise Usage(f"{key}: state {where} is tensors within a list or dict; it is not supported")

        return _encode(v, name, refuse)

    def blob(self):
        tree = {"objects": self.tree, "generators": _encode(_generators(), "generators", self._tensor)}
        return _MAGIC + zlib.compress(json.dumps(tree).encode(), 1)


def stripe(entries, ranks):
    """Shares entries out: from the largest on, to the rank with the fewest bytes. Buffers are rank 0's, as in DDP."""
    loads, owner = [0] * ranks, {}
    for e in entries:
        if e.kind == BUFFER:
            owner[e.name] = 0
            loads[0] += e.length + 1
    for e in sorted((e for e in entries if e.kind != BUFFER), key=lambda e: -e.length):
        owner[e.name] = loads.index(min(loads))
        loads[owner[e.name]] += e.length + 1
    if len(set(owner.values())) < ranks:
        raise Usage(f"{ranks} ranks for {len(entries)} tensors: some would have none")
    return [[e.name for e in entries if owner[e.name] == r] for r in range(ranks)]


class Job:
    """Saves and restores a job's objects. group: a torch.distributed group, by default all ranks where it is in use."""

    def __init__(self, path, group=None, slots=3, cursor_per_step=0, refuse_unchanged=False, keep_every=0, keep_best=None, budget=0.01):
        """keep_every: the checkpoint of every step that it divides is kept in files PATH.stepN of its own. keep_best: "min" or "max",
        the checkpoint of the best metric that save() is given is kept in PATH.best. Both are restored as any: Job(PATH.best).restore().
        budget: the share of time that saving may add when due() says in which steps to save.
        """
        if keep_best not in (None, "min", "max") or not isinstance(keep_every, int) or keep_every < 0:
            raise Usage(f"keep_every is {keep_every!r}, must be a number of steps; keep_best is {keep_best!r}, must be min, max or None")
        self.path, self.slots = os.fspath(path), slots
        self.keep_every, self.keep_best, self._best, self.best = keep_every, keep_best, None, None
        self.cursor_per_step, self.refuse_unchanged = cursor_per_step, refuse_unchanged
        self.rank, self.ranks, self.group = 0, 1, None
        dist = getattr(torch, "distributed", None)
        if dist and dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1:
            # A group of its own, so that its operations never mix with the training's, on the processor.
            members = [dist.get_global_rank(group, i) for i in range(dist.get_world_size(group))] if group else None
            self.group = dist.new_group(members, backend="gloo")
            self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.faults = []  # what restore found damaged
        self.durable = None  # the newest step that is known to be durable on all ranks
        self._file = None
        self._generation = 0  # of the files that are written
        self._retired = []  # files of an older generation, removed once the new one counts
        self._old = None  # the file before, locked until the new one has taken its place
        self._pending = None  # step committed here and not yet known to be so everywhere
        self._restored = False
        self._objects = {}
        self._reader = self._gate = self._behind = None  # of a restore that is not complete
        self._interval, self.interval = Interval(budget), 1  # steps from a save to the next; all ranks take the longest
        self._since, self._stepped, self._begun, self._flying, self._took = 0, None, False, False, None

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close(wait=kind is None)

    # --- ranks agree

    def _agree(self, error, *values):
        """All ranks go on, or all raise; gives every rank's values."""
        if self.ranks == 1:
            if error:
                raise error
            return [values]
        out = [None] * self.ranks
        torch.distributed.all_gather_object(out, (str(error) if error else None, values), group=self.group)
        if error:
            raise error
        for rank, (said, _) in enumerate(out):
            if said is not None:
                raise checkpoint.CheckpointError(f"rank {rank}: {said}")
        return [v for _, v in out]

    def _everywhere(self, do):
        error = value = None
        try:
            value = do()
        except (checkpoint.CheckpointError, OSError) as e:
            error = e
        self._agree(error)
        return value

    # --- files

    def _names(self, generation):
        if self.ranks == 1 and generation == 0:
            return [self.path]
        return [f"{self.path}.g{generation}.{r}of{self.ranks}" for r in range(self.ranks)]

    def _sets(self):
        """The generations of files that are there, newest first: (generation, ranks, paths, those that are missing)."""
        found = {}
        for p in glob.glob(glob.escape(self.path) + ".g*"):
            m = re.fullmatch(r"\.g(\d+)\.(\d+)of(\d+)", p[len(self.path) :])
            if m:
                found.setdefault((int(m[1]), int(m[3])), set()).add(p)
        out = []
        for (generation, ranks), there in sorted(found.items(), reverse=True):
            paths = [f"{self.path}.g{generation}.{r}of{ranks}" for r in range(ranks)]
            out.append((generation, ranks, paths, [p for p in paths if p not in there]))
        if os.path.lexists(self.path):
            out.append((0, 1, [self.path], []))
        return out

    def _common(self, paths, missing):
        """The steps that all files of a set hold, newest first; none if provably no checkpoint of all ranks was made."""
        steps, faults, started, everywhere, never = None, [], False, 0, False
        for p in paths:
            if p in missing:
                continue
            with checkpoint.open_(p, read_only=True) as ck:
                here = {r.step for r in ck._found().values()}
                faults += [f"{p}: {f}" for f in ck.faults]
                everywhere = max(everywhere, ck._note.all_sequence)
                fault = ck._empty_fault() if not here else None
                if fault:
                    faults.append(f"{p}: {fault}")
                started = started or bool(here) or bool(fault)
                never = never or not here and not fault
                steps = here if steps is None else steps & here
        if missing:
            if started:
                raise Corrupt(f"{missing[0]} is missing, and others of its set hold checkpoints; bring it back")
            return [], []
        if not steps and (everywhere or not never):
            raise Corrupt(f"no step is on all {len(paths)} ranks: {'; '.join(faults) or 'the ranks hold different steps'}")
        return sorted(steps, reverse=True), faults

    # --- restoring

    def restore(self, reshard=False, behind=False, **objects):
        """Restores the objects from the newest checkpoint that verifies on all ranks. None: provably, nothing was saved.

        It gives a State of step and cursor. Corrupt: something was saved and nothing verifies. Schema: the objects are not those that
        were saved; the message names the first that differs. With reshard, at another number of ranks, generators and other
        objects of a rank are those of the saved rank of the same number, modulo their number.

        With behind, it returns before the arrays are read: a module waits for each parameter when it uses it, in the first forward
        pass, and the optimizer's state is read behind that. Everything is verified before it is used; ready(), or what saves, waits
        for the rest. What does not verify raises Corrupt there: then restore again without behind, which looks for an older
        checkpoint. It is for modules: references to parameters that are kept elsewhere are not waited for.
        """
        self._close_file()
        self.faults = []
        state = None
        sets = self._everywhere(self._sets)
        if any(s != sets for (s,) in self._agree(None, sets)):
            raise Usage(f"{self.path}: the ranks see different files; all must see the files of all")
        for generation, ranks, paths, missing in sets:
            steps, faults = self._everywhere(lambda paths=paths, missing=missing: self._common(paths, missing))
            self.faults += faults
            self._generation = max(self._generation, generation)
            if not steps:
                continue
            if ranks != self.ranks and not reshard:
                raise Schema(f"{paths[0]}: the checkpoint is of {ranks} ranks, this job has {self.ranks}; pass reshard=True to restore it here")
            state = self._newest(paths, steps, objects, behind)
            if ranks == self.ranks:
                if not behind:
                    self._everywhere(lambda paths=paths: self._take_up(paths[self.rank], state))
                else:
                    self._behind = (paths[self.rank], state)
                self._generation = generation
            else:
                self._retired = paths
            break
        self._restored, self._objects = True, objects
        if self.keep_best:
            self._best = self._beside(".best", 3)
            held = self._best._reopen()
            self.best = held.scalars["metric"] if held else None
        self.durable = state.step if state else None
        if not all(map(behind_.lazy, self._lazies(objects))):
            self._complete()
        return state

    def _beside(self, name, slots):
        """A Job of the same ranks for other files."""
        other = object.__new__(Job)
        other.__dict__.update(self.__dict__)
        other.path, other.slots, other.keep_every, other.keep_best, other._best = self.path + name, slots, 0, None, None
        other.faults, other.durable, other._file, other._old, other._pending, other._retired, other._generation = [], None, None, None, None, [], 0
        other._restored, other.cursor_per_step, other.refuse_unchanged = True, 0, False
        other._reader = other._gate = other._behind = None
        return other

    def _reopen(self):
        """Goes on with files that are there, without restoring objects; gives the State of the newest step, or None."""
        for generation, ranks, paths, missing in self._everywhere(self._sets):
            steps, _ = self._everywhere(lambda paths=paths, missing=missing: self._common(paths, missing))
            self._generation = max(self._generation, generation)
            if not steps:
                continue

            def head(path=paths[0], step=steps[0]):
                with checkpoint.open_(path, read_only=True) as ck:
                    return ck.load(None, step, ())

            state = self._everywhere(head)
            if ranks == self.ranks:
                self._everywhere(lambda paths=paths, state=state: self._take_up(paths[self.rank], state))
                self._generation = generation
            else:
                self._retired = paths
            return state
        return None

    def _keep(self, step, cursor, metric):
        """Keeps what was saved, beside it, if it is to be kept. It waits until that is durable."""
        if self.keep_every and step and step % self.keep_every == 0:
            other = self._beside(f".step{step}", 2)
            if other._reopen() is None:  # else it was kept before a restart
                other.save(step, cursor, **self._objects)
            other.close()
        if self._best is not None and metric is not None and (self.best is None or (metric < self.best if self.keep_best == "min" else metric > self.best)):
            self._best.save(step, cursor, _scalars={"metric": metric}, **self._objects)
            self._best.wait()
            self.best = metric

    def _newest(self, paths, steps, objects, behind):
        for step in steps:
            error = state = None
            try:
                state = self._load(paths, step, objects, behind)
            except Corrupt as e:
                error = e
            except (checkpoint.CheckpointError, OSError) as e:
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
                files.append(checkpoint.open_(p, read_only=True))
                state, found = files[-1].at(step)
                places.update({place[0].name: (files[-1], place) for place in found})
                if len(files) - 1 == self.rank % len(paths):
                    blob = state.random
            live = self._live(paths[0], {k: o for k, o in objects.items() if isinstance(o, torch.nn.Module)}, {n: p[0] for n, (_, p) in places.items()})
            into, loads = self._prepare(paths[0], blob, objects, live, {n: p[0] for n, (_, p) in places.items()})
            order = [n for n in live if live[n][1] == PARAMETER]
            first = [n for n in places if places[n][1][0].kind == BUFFER]
            reads = {n: (lambda n=n: places[n][0].read(places[n][1], into[n])) for n in first + order}
            moments = {n: (lambda n=n: places[n][0].read(places[n][1], into[n])) for n in places if n not in reads}
            reader = behind_.Reader(reads, moments)
            self._reader = (reader, files)
            if not behind:
                reader.wait()
            elif first:
                reader.wait(*first)  # DDP broadcasts buffers before a forward pass
            for load, v in loads:
                load(v)
            if behind:
                self._gate = behind_.Gate(reader)
                for module in self._lazies(objects):
                    self._gate.modules(module, {p: n for n, p in self._parameters(objects).items()})
                for o in objects.values():
                    if isinstance(o, torch.optim.Optimizer):
                        self._gate.before(o, "step", reader.wait)
                        self._gate.before(o, "state_dict", reader.wait)
                return State(state.step, state.cursor, b"", {})
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
        return [_inner(o) for o in objects.values() if isinstance(o, torch.nn.Module)]

    @staticmethod
    def _parameters(objects):
        return {name: p for k, o in objects.items() if isinstance(o, torch.nn.Module) for name, p in ((_Plan._name(k, n), p) for n, p in _inner(o).named_parameters())}

    def _give_up_reading(self):
        """Ends what reads in the background, and lets the modules go."""
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
        """Waits for what restore(behind=True) left to be read. All ranks call it, in ready() and in what saves."""
        if self._reader is None:
            return
        error, then = None, self._behind
        try:
            self._reader[0].wait()
        except (checkpoint.CheckpointError, OSError) as e:
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

    @staticmethod
    def _live(path, modules, entries):
        """The modules' tensors, each as it was saved."""
        live = _Plan(modules).named
        for name, (t, kind) in live.items():
            if name not in entries:
                raise Schema(f"{path}: tensor {name!r} was not saved; is it another model's?")
            want, was = checkpoint._describe({name: (t, kind)})[0][0], entries[name]
            if want[1:4] != was[1:4]:
                raise Schema(f"{path}: tensor {name!r} has shape {want.shape} and type {checkpoint._TORCH[want.dtype]}, saved were {was.shape} and {checkpoint._TORCH[was.dtype]}")
        for e in entries.values():
            if e.kind == PARAMETER and e.name not in live:
                raise Schema(f"{path}: parameter {e.name!r} was saved and is in no module given; load_parameters takes parts of a checkpoint")
        return live

    def _prepare(self, path, blob, objects, live, entries):
        """Where each array is read to, and what is to be called when it is there. It changes nothing."""
        if blob[:8] != _MAGIC:
            raise Schema(f"{path}: it was not saved by Job; open it with checkpoint.open_")
        tree = json.loads(zlib.decompress(blob[8:]))
        saved = tree["objects"]
        for key in saved:
            if key not in objects:
                raise Schema(f"{path}: {key!r} was saved and is not given: its state would be dropped. Give it, or take the parameters alone with load_parameters")
        for key, o in objects.items():
            if key not in saved and o is not None:
                raise Schema(f"{path}: {key!r} was not saved")
        into = {n: t for n, (t, _) in live.items()}
        used = set()

        def tensor(name, where, complex_=False, like=None):
            used.add(name)
            e = entries[name]
            dtype, shape = checkpoint._TORCH[e.dtype], e.shape
            if complex_:
                dtype, shape = (torch.complex64 if dtype == torch.float32 else torch.complex128), shape[:-1]
            if like is not None and tuple(like.shape) == tuple(shape):  # with the parameter's strides, as the optimizer makes it
                into[name] = torch.empty_like(like, dtype=dtype, device=where, requires_grad=False)
            else:
                into[name] = torch.empty(shape, dtype=dtype, device=where)
            return into[name]

        parameters = self._parameters(objects)
        loads = []
        for key, o in objects.items():
            s = saved.get(key)
            if s is None:
                continue
            if isinstance(o, torch.nn.Module):
                extra = _decode(s["extra"], tensor)
                modules = dict(_inner(o).named_modules())
                loads += [(modules[n].set_extra_state, v) for n, v in extra.items()]
            elif isinstance(o, torch.optim.Optimizer):
                loads.append((self._into_optimizer(path, key, o, s, parameters, tensor), None))
            elif isinstance(o, torch.Generator):
                loads.append((o.set_state, torch.frombuffer(bytearray(base64.b64decode(s["generator"])), dtype=torch.uint8)))
            else:
                state = _decode(s["state"], tensor)
                if state:
                    loads.append((o.load_state_dict, state))
        left = sorted(set(entries) - used - set(live))
        if left:
            raise Schema(f"{path}: {left[0]!r} was saved and belongs to nothing that is given: it would be dropped")
        loads.append((_set_generators, _decode(tree["generators"], tensor)))
        return into, loads

    @staticmethod
    def _into_optimizer(path, key, o, saved, parameters, tensor):
        if saved["optimizer"] != type(o).__name__:
            raise Schema(f"{path}: {key} is a {type(o).__name__}, saved was a {saved['optimizer']}")
        names = {p: n for n, p in parameters.items()}
        mine = [[names.get(p) for p in g["params"]] for g in o.param_groups]
        theirs = [g["params"] for g in saved["groups"]]
        if mine != theirs:
            for i in range(max(len(mine), len(theirs))):
                a, b = (x[i] if i < len(x) else None for x in (mine, theirs))
                if a != b:
                    raise Schema(f"{path}: {key}: group {i} has parameters {a}, saved were {b}")
        options = [_decode(g["options"], tensor) for g in saved["groups"]]
        state = {}
        for name, values in saved["state"]:
            p = parameters[name]
            state[p] = {}
            for k, v in values.items():
                if isinstance(v, dict) and "T" in v:
                    state[p][k] = tensor(v["T"], p.device if v["where"] == "parameter" else v["where"], v.get("complex", False), p)
                else:
                    state[p][k] = _decode(v, tensor)

        def load(_):  # not load_state_dict, which turns moments into the parameters' type
            for g, new in zip(o.param_groups, options):
                g.update(new)
            o.state.clear()
            o.state.update(state)

        return load

    def _take_up(self, path, state):
        """Opens this rank's file for writing, at the step that was restored."""
        step = state.step
        ck = checkpoint.open_(path)
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
        self._use(ck)

    # --- saving

    def due(self):
        """Whether this step is to be saved, so that saving takes the share of the time that budget says. Call it once in every step, in
        the same place: it measures what steps with and without a save take."""
        now, flying = time.monotonic(), self._file is not None and not self._file._idle.is_set()
        if self._stepped is not None:  # from call to call; save() comes at the beginning of that
            self._interval.step(now - self._stepped, self._begun, self._begun or self._flying or flying)
        if self._file is not None and self._file.took != self._took and not flying:
            self._took = self._file.took
            self._interval.saved(self._took)
        self._stepped, self._begun, self._flying = now, False, flying
        self._since += 1
        return self._since >= self.interval

    def _use(self, ck):
        ck.cursor_per_step, ck.refuse_unchanged = self.cursor_per_step, self.refuse_unchanged
        self._file = ck

    def save(self, step, cursor=0, metric=None, _scalars=None, **objects):
        """Saves the objects, by default those of the call before, and returns at once. ready() before you change tensors.

        All ranks call it with the same step. It waits where the save before is not durable on all ranks, and raises its error.
        metric: a number, the same on all ranks, for keep_best. A save that is kept beside is waited for.
        """
        if metric is not None and (not isinstance(metric, (int, float)) or metric != metric):
            raise Usage(f"metric is {metric!r}, must be a number")
        self._complete()
        if not self._restored:
            raise Usage("restore first: only then it is known what the files hold")
        self._objects = objects = {**self._objects, **objects}
        error = plan = blob = None
        new = False
        try:
            plan = _Plan(objects)
            blob = plan.blob()
            entries = checkpoint._describe(plan.named)[0]
            mine = set(stripe(entries, self.ranks)[self.rank])
            named = {n: t for n, t in plan.named.items() if n in mine}
            new = self._differs(named)
        except (checkpoint.CheckpointError, OSError) as e:
            error = e
        votes = self._agree(error, step, new, metric, self._interval.steps())
        if len({s for s, *_ in votes}) > 1:
            raise Usage(f"the ranks save different steps: {[s for s, *_ in votes]}")
        if len({m for _, _, m, _ in votes}) > 1:
            raise Usage(f"the ranks give different metrics: {[m for _, _, m, _ in votes]}; reduce it over the ranks first")
        self.interval, self._since, self._begun = max(k for *_, k in votes), 0, True
        self.wait()
        if any(v for _, v, _, _ in votes):
            self._new_files(named, blob)
        ck = self._file
        ck._named = named
        self._everywhere(lambda: ck.save(step, cursor, blob, _scalars))
        self._pending = step
        if self._retired:  # the old file goes only when the new one counts
            self.wait()
        self._keep(step, cursor, metric)

    def _layerwise(self, step, cursor, optimizer):
        """What LayerWise calls while it updates parameters."""
        self._complete()
        if not self._restored:
            raise Usage("restore first: only then it is known what the files hold")
        if self.ranks > 1 and self.slots < 3:
            raise Usage(f"slots is {self.slots}; layer by layer on several ranks takes 3 or more: the newest that all ranks have, one that becomes so, one to write")
        if optimizer not in self._objects.values():
            raise Usage("the optimizer of LayerWise is not the one that restore() or save() was given")
        return _LayerSave(self, step, cursor, optimizer)

    def _finish_layers(self, step, cursor, begun):
        """The end of a layer-wise save: the rest, and the commit. Only here do the ranks meet."""
        error = plan = blob = named = None
        new = not begun
        try:
            plan = _Plan(self._objects)
            blob = plan.blob()
            mine = set(stripe(checkpoint._describe(plan.named)[0], self.ranks)[self.rank])
            named = {n: t for n, t in plan.named.items() if n in mine}
            new = new or self._differs(named)
        except (checkpoint.CheckpointError, OSError) as e:
            error = e
        votes = self._agree(error, step, new, self._interval.steps())
        if len({s for s, *_ in votes}) > 1:
            raise Usage(f"the ranks save different steps: {[s for s, *_ in votes]}")
        self.interval, self._since, self._begun = max(k for *_, k in votes), 0, True
        if any(v for _, v, _ in votes):  # the first save, or one with more state: as a whole
            if begun:
                self._file.abort()
            return self.save(step, cursor)
        if self._pending is not None:  # begin() waited for it, on every rank
            self._counts()
        ck = self._file
        ck._named = named
        ck.write(*(n for n in named if n not in ck.written()))
        ck.commit(cursor, blob)
        self._pending = step

    def _counts(self):
        step, self._pending = self._pending, None
        if self.ranks > 1:
            self._file.acknowledge(step)
        self.durable = step
        if self._retired:
            self._retire()

    def _differs(self, named):
        """Whether another file is needed: there is none, or state appeared or went. A tensor that changed is an error."""
        if self._file is None:
            return True
        now = {e.name: e for e in checkpoint._describe(named)[0]}
        before = self._file._index
        for name, e in now.items():
            if name in before and before[name][1:4] != e[1:4]:
                was = before[name]
                raise Schema(f"tensor {name!r} changed since the file was made: shape {e.shape}, type {checkpoint._TORCH[e.dtype]}; it was {was.shape}, {checkpoint._TORCH[was.dtype]}")
        gone = [n for n in before if n not in now and before[n].kind == PARAMETER]
        if gone and self.ranks == 1:
            raise Schema(f"parameter {gone[0]!r} is in the file and no longer in the model")
        return set(now) != set(before)

    def _new_files(self, named, blob):
        self._old, self._file = self._file, None
        if self.ranks == 1 and self._generation == 0:
            path = self.path
            if os.path.lexists(path):
                self._old = self._old or checkpoint.open_(path)  # Locked, if another job writes it
                path += ".growing"
                if os.path.lexists(path):
                    os.unlink(path)
            self._use(checkpoint.create(path, named, self.slots, self._room(blob)))
            self._retired = [path] if path != self.path else self._retired
            return
        self._generation += 1
        retire = self._retired + [p for _, _, paths, _ in self._sets() for p in paths]
        ids = self._agree(None, os.urandom(16))
        paths = self._names(self._generation)

        def make():
            if os.path.lexists(paths[self.rank]):  # of a set that was never finished: restore saw that
                checkpoint.open_(paths[self.rank]).close()  # Locked, if another job writes it
                os.unlink(paths[self.rank])
            self._use(checkpoint.create(paths[self.rank], named, self.slots, self._room(blob), self.rank, self.ranks, ids[0][0]))

        self._everywhere(make)  # no rank saves before all files are there
        self._retired = sorted(set(retire) - set(paths))

    @staticmethod
    def _room(blob):
        return max(64 << 10, 4 * len(blob))

    def ready(self, *names):
        """Waits until the save has read the tensors, so that they may be changed; after restore(behind=True) for what is left of that, on
        all ranks."""
        self._complete()
        if self._file is not None:
            self._file.ready(*(n for n in names if n in self._file._index)) if names else self._file.ready()

    def wait(self):
        """Waits until the last save is durable on all ranks, and raises its error on all. All ranks call it."""
        self._complete()
        if self._file is None or self._pending is None:
            return
        try:
            self._everywhere(self._file.wait)
        except BaseException:
            self._pending = None
            raise
        self._counts()

    def _retire(self):
        """The new files count: the old ones go."""
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
        folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _close_file(self):
        self._give_up_reading()
        if self._best is not None:
            self._best._close_file()
        for ck in (self._file, self._old):
            if ck is not None:
                ck.close()
        self._file = self._old = self._pending = None

    def close(self, wait=True):
        """Waits for the save under way and closes the files; all ranks call it, unless wait is False."""
        try:
            if wait:
                self.wait()
        finally:
            self._close_file()


class _LayerSave:
    """One layer-wise save: begun with the first parameter that is updated, which is behind the forward pass."""

    def __init__(self, owner, step, cursor, optimizer):
        self._owner, self._step, self._cursor, self._optimizer = owner, step, cursor, optimizer
        self._key = next(k for k, o in owner._objects.items() if o is optimizer)
        self._names = {}
        for key, o in owner._objects.items():
            if isinstance(o, torch.nn.Module):
                for name, p in _inner(o).named_parameters():
                    self._names.setdefault(p, _Plan._name(key, name))
        self._begun = False

    def begin(self):
        if not self._begun and self._owner._file is not None and not self._owner._retired:
            self._owner._file._named = {}
            self._owner._file.begin(self._step)
            self._begun = True

    def _parts(self, params):
        """The tensors of these parameters that this rank's file has: (name, tensor, kind)."""
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
            if e is not None and checkpoint._describe({name: (t, kind)})[0][0][1:4] == e[1:4]:
                ck._named[name] = (t, kind)
                ck.write(name)

    def finish(self):
        self._owner._finish_layers(self._step, self._cursor, self._begun)

    def abort(self):
        if self._begun and self._owner._file is not None:
            self._owner._file.abort()


def newest(path):
    """The files of the newest checkpoint that a Job with this path saved, and its step. Corrupt, if there is none."""
    reader = object.__new__(Job)
    reader.path = os.fspath(path)
    for _, _, paths, missing in reader._sets():
        steps, _ = reader._common(paths, missing)
        if steps:
            return paths, steps[0]
    raise Corrupt(f"{path}: no checkpoint")


def load_parameters(path, module, rename=None, strict=True, buffers=True):
    """Loads a module's parameters and buffers alone from the newest checkpoint that verifies, and gives its step.

    path: a file, or a list of the files of all ranks. rename(name) gives the name in the file of a tensor of the module, None for one to leave as it
    is. With strict, a tensor that is not in the file is an error. Moments are not read.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    wanted = {}
    for name, t, kind in [(n, p.detach(), PARAMETER) for n, p in module.named_parameters()] + [(n, b, BUFFER) for n, b in module.named_buffers() if buffers]:
        there = rename(name) if rename else name
        if there is not None:
            wanted[there] = (t, kind)
    files = [checkpoint.open_(p, read_only=True) for p in paths]
    try:
        entries = {e.name: e for ck in files for e in ck.entries}
        for name, (t, kind) in list(wanted.items()):
            if name not in entries:
                if strict:
                    raise Schema(f"{paths[0]}: tensor {name!r} is not in the file")
                del wanted[name]
                continue
            mine = checkpoint._describe({name: (t, kind)})[0][0]
            if (mine.dtype, mine.shape) != (entries[name].dtype, entries[name].shape):
                raise Schema(f"{paths[0]}: tensor {name!r} has shape {mine.shape}, in the file {entries[name].shape}, or another type")
        steps = set.intersection(*({r.step for r in ck._found().values()} for ck in files))
        fault = None
        for step in sorted(steps, reverse=True):
            try:
                for ck in files:
                    ck.load(lambda e: wanted[e.name][0], step, wanted)
                return step
            except Corrupt as e:
                fault = e
        raise fault or Corrupt(f"{paths[0]}: there is no checkpoint of all its files")
    finally:
        for ck in files:
            ck.close()
