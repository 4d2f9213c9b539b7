"""Evenkeel's checkpoint files as a storage of torch.distributed.checkpoint (DCP).

    dcp.save(state, storage_writer=evenkeel.dcp.Writer("run.ckpt"))
    dcp.load(state, storage_reader=evenkeel.dcp.Reader("run.ckpt"))

DCP's planners decide which rank writes and reads what, so a checkpoint of one mesh loads on any other. Each rank writes its part into a file of its own,
PATH.gG.RofN, and commits it. The coordinator, rank 0, commits last, when the files of all others are durable: its commit record, which covers DCP's
metadata too, is the commit of the whole checkpoint. Tensors smaller than a block, and what is no tensor, are stored with the record. If the plan changes,
new files replace the old ones once they have a checkpoint.
"""

import contextlib
import copy
import ctypes
import dataclasses
import functools
import glob
import io
import itertools
import math
import os
import pickle
import re
import secrets
import threading
import warnings
import weakref
from contextlib import ExitStack, closing

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_unflatten

from .checkpoint import tensor_file
from .checkpoint.file.errors import CheckpointError, Corrupt, Schema, Usage
from .checkpoint.file.layout import BLOCK, DCP, DTYPES, MAX_STATE, PARAMETER, TORCH, describe, encode_table, flush_folder, hash64, plain
from .checkpoint.file.reads import Reads
from .checkpoint.state import sets

__all__ = ["Reader", "Writer", "newest"]

_ROOM = 1 << 20  # bytes for what is stored with the record, beside twice what the first save needs


def _name(index):
    """The name of an item: a chunk's has its place in the tensor."""
    return index.fqn + ("@" + ",".join(map(str, index.offset)) if any(index.offset or ()) else "")


def _raw(t):
    """A tensor in a type that the file has, with the same memory if it is contiguous."""
    if t.dtype in DTYPES or t.dtype in (torch.complex64, torch.complex128):
        return t
    if t.is_meta:
        return torch.empty(t.nbytes, dtype=torch.uint8, device="meta")
    t = t.cpu().contiguous()
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage(), t.storage_offset() * t.element_size(), (t.nbytes,))


def _bytes(v):
    """A copy of the bytes of a tensor or of a BytesIO."""
    if isinstance(v, io.BytesIO):
        return v.getvalue()
    v = v.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(v.data_ptr(), v.nbytes) if v.nbytes else b""


def _small(item):
    return item.type == WriteItemType.BYTE_IO or math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize < BLOCK


def _arrays(plan):
    """The arrays of a rank's file: name -> (tensor without memory, kind)."""
    named = {}
    for item in plan.items:
        if item.tensor_data and item.tensor_data.properties.layout != torch.strided:
            raise Usage(f"{item.index.fqn}: a tensor of {item.tensor_data.properties.layout} cannot be stored")
        if not _small(item):
            like = torch.empty(item.tensor_data.chunk.sizes, dtype=item.tensor_data.properties.dtype, device="meta")
            named[_name(item.index)] = (_raw(like), PARAMETER)
    return named or {"-": (torch.empty(0, dtype=torch.uint8, device="meta"), PARAMETER)}  # a file has an array at least


def _starting(path, generation):
    """A file that is there until the files of a generation have a checkpoint."""
    return f"{path}.g{generation}.starting"


def _step(checkpoint_id):
    """The step in a checkpoint_id: the number at its end."""
    found = re.search(r"(\d+)/?$", os.fspath(checkpoint_id) if not isinstance(checkpoint_id, int) else str(checkpoint_id))
    if not found:
        raise Usage(f"checkpoint_id is {checkpoint_id!r}, must end in the step; the path is given to the Writer or Reader")
    return int(found[1])


def _at_step(e, path, step):
    """An error with path and step."""
    where = f"{path}: step {step}: "
    return OSError(e.errno, where + e.strerror) if isinstance(e, OSError) and e.strerror else type(e)(where + str(e))


class _Rank:
    """What this process has open for a path. Writers come and go."""

    def __init__(self):
        self.ck = None  # this rank's file
        self.lock = threading.Lock()
        self.shared = []  # lists of tensors that are to be saved from the memory of training, and that no file has begun to read
        self.reading = None  # the file that reads from the memory of training
        self.committed = None  # (step, nonce) of the newest checkpoint in it
        self.full = False  # what is stored with the record has outgrown the file
        self.spare = []  # copies of states, to be written over
        # The coordinator's:
        self.taken = False  # whether it has looked at the files
        self.generation, self.digest, self.whole, self.last = 0, None, None, None  # whole: (step, nonce) of the set's newest checkpoint; last: of any set
        self.retired, self.old = [], None

    def release(self):
        """Copies, or waits for, what async_save reads from the memory of training."""
        with self.lock, torch.no_grad():
            for t in (t for shared in self.shared for t in shared):
                t.data = t.clone()
            self.shared = []
            reading = self.reading
        if reading is not None:
            reading.ready()


_ranks = {}  # by path and process
_guard = threading.Lock()
_optimizers = weakref.WeakSet()  # those that have made a step since the first Writer


def _before_step(optimizer, args, kwargs):
    _optimizers.add(optimizer)
    for rank in list(_ranks.values()):
        rank.release()


@functools.cache
def _watch_optimizers():
    register_optimizer_step_pre_hook(_before_step)


def _held():
    """Where the memory begins that only the step of an optimizer changes: that of parameters and their state."""
    found = (t for o in list(_optimizers) for g in o.param_groups for p in g["params"] for t in (p, *o.state.get(p, {}).values()) if isinstance(t, torch.Tensor))
    return {_local(t).untyped_storage().data_ptr() for t in found}


def _local(t):
    return t.to_local() if isinstance(t, DTensor) else t


class _Stepped:
    """What DCP asks of both: a checkpoint_id is a step."""

    def reset(self, checkpoint_id=None):
        if checkpoint_id is not None:
            self.step = _step(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return isinstance(checkpoint_id, (str, os.PathLike))


class Writer(_Stepped, BlockingAsyncStager, StorageWriter):
    """The storage_writer for save and async_save. A Writer for each save, and one for all, do the same: the files stay open, and locked, until the process
    ends."""

    def __init__(self, path, step=None, slots=3, copy=False):
        """step: of training; by default one more than the last; with save(checkpoint_id=...) the number at its end. slots: the number of checkpoints
        for which new files have room, 2 to 16; the older ones are overwritten.

        async_save copies the state, except what only the step of a torch optimizer changes: that is written from its own memory, and the step waits. If
        something else changes it, the save fails, and says what; then pass copy=True."""
        BlockingAsyncStager.__init__(self)
        self.path, self.step, self.slots, self.copy = os.path.abspath(path), step, slots, copy
        self._coordinator, self._staged, self._shared = True, None, []
        _watch_optimizers()

    @property
    def _rank(self):
        with _guard:
            return _ranks.setdefault((self.path, os.getpid()), _Rank())

    def stage(self, state_dict):
        """Copies the state for async_save, into memory that is used again when that save has ended."""
        now, held = self._rank, set() if self.copy else _held()
        leaves, form = tree_flatten(state_dict)
        spare = now.spare.pop() if now.spare else []
        self._shared = []
        with torch.no_grad():
            staged = [self._copy(v, old, held) for v, old in itertools.zip_longest(leaves, spare[: len(leaves)])]
            self._staged = [v if isinstance(v, torch.Tensor) and _local(v).untyped_storage().data_ptr() not in held else None for v in staged]
        with now.lock:
            now.shared.append(self._shared)
        return tree_unflatten(staged, form)

    def _copy(self, v, old, held):
        """A copy of a leaf of the state, in the memory of an old copy if that is alike; or the leaf's own memory, if that is held."""
        if isinstance(v, DTensor):
            out = v.detach()
            out._local_tensor = self._copy(v.to_local(), old.to_local() if isinstance(old, DTensor) else None, held)
            return out
        if type(v) not in (torch.Tensor, torch.nn.Parameter) or v.layout != torch.strided:
            return super().stage({"": v})[""] if isinstance(v, torch.Tensor) else copy.deepcopy(v)
        if plain(v) and v.untyped_storage().data_ptr() in held:
            self._shared.append(v.detach())
            return self._shared[-1]
        if type(old) is not torch.Tensor or (old.shape, old.dtype) != (v.shape, v.dtype):
            old = torch.empty(v.shape, dtype=v.dtype, pin_memory=v.is_cuda)
        return old.copy_(v.detach())

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        if not kwargs.get("use_collectives", True):
            raise Usage(f"{self.path}: use_collectives=False is not supported: the files of all ranks are committed together")
        self._coordinator = is_coordinator

    def prepare_local_plan(self, plan):
        if not plan.usable:
            raise Usage(f"{self.path}: enable_plan_caching is not supported: a plan carries the number of its save")
        return dataclasses.replace(plan, storage_data=self._rank.full)

    def prepare_global_plan(self, plans):
        now = self._rank
        if not now.taken:
            self._take_up(now)
        digest = hash64(b"".join(encode_table(describe(_arrays(p))[0]) + b"\n" for p in plans))
        if now.ck is None or now.digest != digest or any(p.storage_data for p in plans):
            found = sets.sets(self.path)
            now.generation, now.digest, now.whole, id_ = max((g for g, *_ in found), default=0) + 1, digest, None, os.urandom(16)
            with open(_starting(self.path, now.generation), "w"):
                flush_folder(self.path)  # before a rank has a file
            now.retired = [p for _, _, paths, _ in found for p in paths]
            now.retired += [p for end in ("starting", "*.creating") for p in glob.glob(f"{glob.escape(self.path)}.g*.{end}")]
            if now.old is None:
                now.old = now.ck  # locked, until the new files have a checkpoint
            now.ck = None
        else:
            id_ = now.ck.id
        step = self.step if self.step is not None else now.last[0] + 1 if now.last else 1
        room = len(pickle.dumps(plans))  # DCP's metadata, which comes last, is smaller
        job = {"id": id_, "paths": sets.names(self.path, now.generation, len(plans)), "step": step, "nonce": secrets.randbits(31), "whole": now.whole}
        return [dataclasses.replace(p, storage_data={**job, "rank": r, "room": room if r == 0 else 0}) for r, p in enumerate(plans)]

    def _take_up(self, now):
        """Continues the newest files that have a checkpoint, as the coordinator."""
        found = _whole(self.path)
        if found:
            found.close()
            now.ck = tensor_file.open_(found.paths[0])  # Locked, if another job writes it
            now.generation, now.digest, now.whole = found.generation, found.head["digest"], (found.step, found.nonce)
            now.last, now.committed, now.retired = now.whole, None, [_starting(self.path, found.generation)]
        now.taken = True

    def _file(self, plan, job, planner):
        """This rank's file, ready for a save."""
        now, path = self._rank, job["paths"][job["rank"]]
        if now.ck is not None and now.ck.path == path:
            now.ck.abort()  # a save that another rank gave up
        else:
            if now.ck is not None:
                now.ck.close()
            now.ck = now.committed = None
            named = _arrays(plan)
            if job["whole"] is None:
                blob = sum(len(_bytes(planner.resolve_data(i))) + 100 for i in plan.items if _small(i))
                room = min(_ROOM + 2 * (blob + job["room"]), MAX_STATE)
                now.ck, now.full = tensor_file.create(path, named, self.slots, room, job["rank"], len(job["paths"]), job["id"]), False
            else:
                now.ck = tensor_file.open_(path, named)
        ck = now.ck
        if (ck.id, ck.rank, ck.ranks) != (job["id"], job["rank"], len(job["paths"])):
            now.ck = None
            ck.close()
            raise Schema(f"{path} is not of the same set as {job['paths'][0]}: another job has written it")
        if job["whole"] is None or now.committed != job["whole"]:  # newer saves were not completed by all ranks
            ck.give_up_after(*(job["whole"] or (-1,)))
        if job["whole"]:
            ck.acknowledge(job["whole"][0])
        ck._known = True
        return ck

    def write_data(self, plan, planner):
        if getattr(planner, "_enable_plan_caching", False):
            raise Usage(f"{self.path}: enable_plan_caching is not supported: a plan carries the number of its save")
        self._job, now = plan.storage_data, self._rank
        with self._errors():
            ck = self._file(plan, self._job, planner)
            ck.begin(self._job["step"])
            with now.lock:
                self._items = {_name(i.index): _bytes(planner.resolve_data(i)) for i in plan.items if _small(i)}
                copied = self._staged is not None and all(s is not self._shared for s in now.shared)
                view = (lambda t: t.data) if copied else torch.Tensor.detach  # a copy by release shares its version with what training changes
                ck._named = {_name(i.index): (_raw(view(planner.resolve_data(i))), PARAMETER) for i in plan.items if not _small(i)}
                ck._named = ck._named or {"-": (torch.empty(0, dtype=torch.uint8), PARAMETER)}
                ck.write(*ck._named)
                now.shared = [s for s in now.shared if s is not self._shared]
                now.reading, self._begun = ck, ck._open
            if not self._coordinator:
                self._commit()
        sizes = {**{n: e.length for n, e in ck._index.items()}, **{n: len(b) for n, b in self._items.items()}}
        out = Future()
        out.set_result([WriteResult(i.index, sizes[_name(i.index)], self._job["rank"]) for i in plan.items])
        return out

    def _commit(self, **more):
        now, ck, job = self._rank, self._rank.ck, self._job
        if ck._open is not self._begun:
            raise Usage("another save of this path began before this one ended: wait for async_save's future first")
        blob = DCP + pickle.dumps({"items": self._items, **more})
        if len(blob) > ck._manifest_size - 64 - 8 * len(ck.entries):
            now.full = True
            ck.abort()
            raise Usage(f"{len(blob)} bytes of small tensors and other values have outgrown the file; the next save makes larger files")
        ck.commit(0, blob, nonce=job["nonce"])
        if self._staged is not None:
            ck._idle.wait()  # not in a hurry
        ck.wait()
        now.committed, now.reading = (job["step"], job["nonce"]), None
        if self._staged is not None:
            now.spare, self._staged = [self._staged], None

    @contextlib.contextmanager
    def _errors(self):
        """Adds path and step to errors."""
        try:
            yield
        except (OSError, CheckpointError) as e:
            raise _at_step(e, self._job["paths"][self._job["rank"]], self._job["step"]) from e

    def finish(self, metadata, results):
        now = self._rank
        metadata.storage_data = {w.index: w.storage_data for rank in results for w in rank}
        with self._errors():
            self._commit(digest=now.digest, metadata=metadata)
        now.whole = now.last = now.committed
        if now.old is not None:
            now.old.close()
            now.old = None
        for p in set(now.retired) - set(self._job["paths"]):
            if os.path.lexists(p):
                os.unlink(p)
        if now.retired:
            flush_folder(self.path)
            now.retired = []


class _Whole:
    """A checkpoint that all files of a set have. The files are open."""

    def __init__(self, generation, paths, step, nonce, head, files):
        self.generation, self.paths, self.step, self.nonce, self.head, self._files = generation, paths, step, nonce, head, files
        self._parts = {}

    def part(self, rank):
        """A rank's open file, its arrays' places by name, and its other items."""
        if rank not in self._parts:
            ck = self._files[rank]
            state, places = ck.at(self.step, self.nonce)
            self._parts[rank] = ck, {e.name: (e, h, start) for e, h, start in places}, pickle.loads(state.random[len(DCP) :])["items"]
        return self._parts[rank]

    def steps(self):
        """The other steps that are there, newest first."""
        return [r.step for r in sorted(self._files[0]._found().values(), reverse=True) if r.step != self.step]

    def verify(self):
        for rank, ck in enumerate(self._files):
            for e, *place in self.part(rank)[1].values():
                ck.read((e, *place), torch.empty(e.shape, dtype=TORCH[e.dtype]))

    def close(self):
        for ck in self._files:
            ck.close()


def _whole(path, step=None):
    """The newest checkpoint that all files of a set have, or that of a step; None if nothing was saved. Raises Corrupt if something was, and nothing is
    whole."""
    faults = []
    for generation, _, paths, missing in sets.sets(path):
        if paths[0] in missing and os.path.lexists(_starting(path, generation)):
            continue  # the first save did not complete: rank 0 commits last
        with ExitStack() as stack:
            files = [stack.enter_context(tensor_file.open_(p, read_only=True)) for p in paths if p not in missing]
            if paths[0] not in missing and files[0]._empty_fault() is None:
                continue
            if missing:
                faults += [f"{p} is missing; bring it back, or move the others away to start anew" for p in missing]
                continue
            sets.of_one_set(files)
            found = files[0]._found()
            for ck in files:
                faults += [f"{ck.path}: {f}" for f in ck.faults]
            for slot, record in sorted(found.items(), key=lambda kv: -kv[1].sequence):
                if step not in (None, record.step):
                    continue
                try:
                    state = files[0]._manifest(slot, record)[0]
                    if not state.random.startswith(DCP):
                        raise Schema(f"{paths[0]} is a file of evenkeel.checkpoint.Job, not of torch.distributed.checkpoint: restore it with Job, or give another path")
                    for ck in files[1:]:
                        ck.at(record.step, state.nonce)
                except Corrupt as e:
                    faults.append(f"{paths[0]}: step {record.step}: {e}")
                    continue
                stack.pop_all()
                if faults and step is None:
                    warnings.warn(f"{path}: step {record.step} is whole, but there is damage: {'; '.join(faults)}", stacklevel=2)
                return _Whole(generation, paths, record.step, state.nonce, pickle.loads(state.random[len(DCP) :]), files)
            if not found and not files[0].faults:
                faults.append(f"{paths[0]}: {files[0]._empty_fault()}")
    if step is not None:
        raise Corrupt(f"{path}: no checkpoint of step {step} is whole: {'; '.join(faults) or 'it was not saved, or has been overwritten'}")
    if faults:
        raise Corrupt(f"{path}: no checkpoint is whole: {'; '.join(faults)}")
    return None


def newest(path):
    """The step of the newest checkpoint, or None if nothing was saved."""
    found = _whole(os.path.abspath(path))
    if found is None:
        return None
    found.close()
    return found.step


class Reader(_Stepped, StorageReader):
    """The storage_reader for load. All that is read is verified."""

    def __init__(self, path, step=None):
        """step: by default the newest."""
        self.path, self.step, self._found = os.path.abspath(path), step, None

    def read_metadata(self):
        self._found = _whole(self.path, self.step)
        if self._found is None:
            raise FileNotFoundError(2, "nothing was saved", self.path)
        return self._found.head["metadata"]

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self._metadata = metadata

    def prepare_local_plan(self, plan):
        plan.storage_data = self._found.generation, self._found.step, self._found.nonce
        return plan

    def prepare_global_plan(self, plans):
        steps = [p.storage_data for p in plans]
        if len(set(steps)) > 1:
            raise Usage(f"{self.path}: the ranks found different checkpoints, of steps {[s for _, s, _ in steps]}: another job is saving, or they see different files")
        return plans

    def read_data(self, plan, planner):
        with closing(self._found):
            try:
                self._read(plan, planner)
            except Corrupt as e:
                raise _at_step(Corrupt(f"{e}; {self._other()}"), self.path, self._found.step) from e
        out = Future()
        out.set_result(None)
        return out

    def _other(self):
        """What else can be loaded."""
        for step in self._found.steps():
            with contextlib.suppress(Corrupt), closing(_whole(self.path, step)) as other:
                other.verify()
                return f"step {step} is whole: load it with Reader({self.path!r}, step={step})"
        return "no other step verifies: load a copy"

    def _read(self, plan, planner):
        wanted, reads = {}, {}
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                rank = self._metadata.storage_data[item.storage_index]
                planner.load_bytes(item, io.BytesIO(self._found.part(rank)[2][_name(item.storage_index)]))
            else:
                wanted.setdefault(item.storage_index, []).append((item, planner.resolve_tensor(item).detach()))
        for index, targets in wanted.items():
            reads[index] = functools.partial(self._tensor, index, self._found.part(self._metadata.storage_data[index]), targets)
        with closing(Reads(reads)) as all_:
            all_.wait()
        for targets in wanted.values():
            for item, target in targets:
                planner.commit_tensor(item, target)

    def _tensor(self, index, part, targets):
        """Reads a stored chunk for its targets, (item, tensor) each."""
        ck, places, items = part
        about = self._metadata.state_dict_metadata[index.fqn]
        dtype, size = about.properties.dtype, next(c.sizes for c in about.chunks if c.offsets == (index.offset or c.offsets))
        item, target = targets[0]
        name = _name(index)
        if name in items:
            chunk = torch.frombuffer(bytearray(items[name]), dtype=dtype).reshape(size) if items[name] else torch.empty(size, dtype=dtype)
        else:
            whole = len(targets) == 1 and item.lengths == size and target.dtype == dtype and plain(target)
            chunk = target if whole else torch.empty(size, dtype=dtype)
            ck.read(places[name], _raw(chunk))
            if whole:
                return
        with torch.no_grad():
            for item, target in targets:
                target.copy_(narrow_tensor_by_index(chunk, item.storage_offsets, item.lengths))
