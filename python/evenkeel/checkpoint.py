"""Checkpoints of a PyTorch job in Evenkeel's checkpoint file: one file of fixed size that always holds a whole checkpoint.

    tensors = checkpoint.tensors(model, optimizer)          # name -> (tensor, kind)
    with checkpoint.open_or_create("run.ckpt", tensors) as ck:
        state = ck.restore()                                # None: nothing was saved yet
        for step in range(state.step + 1 if state else 0, steps):
            loss(model, batch(step)).backward()
            ck.ready()                                      # the save of the step before has read the tensors
            optimizer.step()
            ck.save(step, random=torch.get_rng_state().numpy().tobytes())   # returns at once

Tensors on a processor are written from where they are; buffers, those of a device and those that are not contiguous are
copied in save(). job.Job saves a job's live objects, by several ranks too; layerwise each layer while the ones below it still
compute gradients. `evenkeel checkpoint`
inspects, verifies and exports the file. docs/reference/formats/checkpoint.md describes it; this is a writer and reader of its
own, tested against the Go package. Linux; one writer per file.
"""

import errno
import fcntl
import math
import os
import queue
import struct
import sys
import threading
import time
import warnings
import weakref
from collections import namedtuple

import torch

from . import transfer
from .staging import Staging
from .xxh3 import hash64

PARAMETER, MOMENT, BUFFER = 1, 2, 3
BLOCK, SLOT_ALIGN, VERSION = 4096, 2 << 20, 2
MAX_ARRAYS, MAX_NAME, MAX_DIMS, MAX_STATE = 1 << 16, 1024, 16, 1 << 30
_DTYPES = {
    torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4, torch.int8: 5, torch.int16: 6, torch.int32: 7,
    torch.int64: 8, torch.uint8: 9, torch.bool: 13,
}  # fmt: skip
_TORCH = {number: dtype for dtype, number in _DTYPES.items()}
_SIZES = (0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1)
_SUPER = "<8sII16sIIIIQQQQQQQQQ"  # 120 bytes, then their hash; the byte order mark is checked apart
_RECORD = "<8s16sQQQQQ"  # 64 bytes, then the commit word
_NOTE = "<8s16sQQQQQQ"  # 72 bytes, then their hash; two copies, 512 and 1024 bytes into a record page
_NOTE_AT = 512
_HINT_AT = 128  # behind a superblock

State = namedtuple("State", "step cursor random scalars")
Entry = namedtuple("Entry", "name dtype kind shape offset length")
Record = namedtuple("Record", "sequence step length hash")
Note = namedtuple("Note", "generation sequence step all_sequence all_step")


class CheckpointError(Exception):
    """The base of this module's errors."""


class Corrupt(CheckpointError):
    """Something should be there and does not verify."""


class Format(CheckpointError):
    """No checkpoint file, or one of another version or byte order."""


class Schema(CheckpointError):
    """The file has other tensors than the program; the message names the first."""


class Locked(CheckpointError):
    """Another process writes the file."""


class Usage(CheckpointError):
    """Calls out of order."""


def tensors(model, optimizer=None):
    """All tensors that a job needs to go on, by name: parameters, buffers, and the optimizer's per parameter.

    Tied parameters come once. An optimizer that makes its state in its first step is made to do so here, if that is seen to
    change nothing; else Usage says so. Scalars that an optimizer keeps as Python numbers are not tensors: hand them to
    save(). job.Job saves all of it and needs no such step.
    """
    out = {name: (p.detach(), PARAMETER) for name, p in model.named_parameters()}
    for name, b in model.named_buffers():
        if b is not None:
            out[name] = (b, BUFFER)
    if optimizer is None:
        return out
    names = {p: name for name, p in model.named_parameters()}
    kept = [p for g in optimizer.param_groups for p in g["params"]]
    for p in kept:
        if p not in names:
            raise Usage(f"the optimizer has a parameter of shape {tuple(p.shape)} that is not the model's")
    if not optimizer.state:
        _prime(optimizer)
    filled = {p for p in kept if any(map(torch.is_tensor, optimizer.state.get(p, {}).values()))}
    for p in kept:
        if filled and p not in filled and p.requires_grad:
            raise Usage(f"the optimizer has no state yet for {names[p]!r} and has for others; call tensors() when it has for all, or use job.Job")
    for p in kept:
        for key, value in sorted(optimizer.state.get(p, {}).items()):
            if torch.is_tensor(value):
                out[f"{names[p]}.{key}"] = (value, MOMENT)
    return out


def _double(optimizer, params):
    """An optimizer of the same kind, with the same options, over other parameters; params: a list for each group."""
    twin = object.__new__(type(optimizer))
    twin.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k not in ("state", "param_groups", "step")})
    twin.state = type(optimizer.state)(dict)
    twin.param_groups = [{**g, "params": list(ps)} for g, ps in zip(optimizer.param_groups, params)]
    return twin


def _zero_step(optimizer):
    """Makes an optimizer's state by a step at rate 0 with gradients of 0, and takes that back as far as it can."""
    groups = optimizer.param_groups
    kept = {p: p.grad for g in groups for p in g["params"]}
    before = {p: p.detach().clone() for p in kept}
    options = [{k: v for k, v in g.items() if k != "params"} for g in groups]
    for g in groups:
        g["lr"] = 0.0
    for p in kept:
        p.grad = torch.zeros_like(p)
    type(optimizer).step(optimizer)
    with torch.no_grad():
        for p, grad in kept.items():
            p.grad = grad
            p.copy_(before[p])
            state = optimizer.state.get(p, {})
            for key, value in state.items():
                if torch.is_tensor(value):
                    value.zero_()
                elif type(value) is int:
                    state[key] = 0
    for g, kept_options in zip(groups, options):
        g.update(kept_options)


def _prime(optimizer):
    """Makes the optimizer's state, if three steps on stand-ins show that steps afterwards are the same to the bit."""
    kind = type(optimizer).__name__
    ends = []
    for primed in (False, True):
        draw = torch.Generator().manual_seed(1)
        params = [[torch.randn(2, 3, generator=draw).to(p.dtype).requires_grad_() for p in g["params"][:1]] for g in optimizer.param_groups]
        twin = _double(optimizer, params)
        try:
            if primed:
                _zero_step(twin)
            for _ in range(3):
                for p in sum(params, []):
                    p.grad = torch.randn(2, 3, generator=draw).to(p.dtype)
                type(twin).step(twin)
        except Exception as e:
            raise Usage(f"{kind} cannot be made to create its state ({e}); call tensors() after its first step, or use job.Job") from e
        ends.append([p.detach() for p in sum(params, [])] + [v for p in sum(params, []) for _, v in sorted(twin.state[p].items())])
    same = len(ends[0]) == len(ends[1]) and all(
        torch.equal(a, b) if torch.is_tensor(a) and torch.is_tensor(b) else not torch.is_tensor(a) and not torch.is_tensor(b) and a == b for a, b in zip(*ends)
    )
    if not same:
        raise Usage(f"{kind} with these options trains otherwise once its state was created in advance; call tensors() after its first step, or use job.Job")
    _zero_step(optimizer)


def _align(n, to):
    return (n + to - 1) // to * to


def _plain(t):
    """Whether a tensor's memory is what is stored: then it is saved and restored without a copy."""
    return t.device.type == "cpu" and t.layout == torch.strided and t.is_contiguous() and not t.is_complex() and not t.is_neg()


def _stored(t):
    """A tensor's contents as they are stored: contiguous, on the processor, complex numbers as pairs."""
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return t.resolve_neg().cpu().contiguous()


def _bytes(t):
    """The memory of a contiguous tensor on the processor, without a copy."""
    t = t.detach()
    if t.numel() == 0:
        return memoryview(b"")
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return memoryview(t.reshape(-1).numpy()).cast("B")


def _describe(named):
    if not 1 <= len(named) <= MAX_ARRAYS:
        raise Usage(f"{len(named)} tensors, must be 1 to {MAX_ARRAYS}")
    entries, at = [], 0
    for name, (t, kind) in named.items():
        if not 1 <= len(name.encode()) <= MAX_NAME:
            raise Usage(f"tensor {name[:40]!r}: a name must have 1 to {MAX_NAME} bytes, it has {len(name.encode())}")
        dtype, shape = t.dtype, tuple(t.shape)
        if t.is_complex():
            dtype, shape = (torch.float32 if dtype == torch.complex64 else torch.float64), shape + (2,)
        if dtype not in _DTYPES or t.layout != torch.strided or t.is_quantized:
            raise Usage(f"tensor {name!r}: {t.dtype}, {t.layout} cannot be stored")
        if len(shape) > MAX_DIMS:
            raise Usage(f"tensor {name!r}: {len(shape)} dimensions, at most {MAX_DIMS}")
        if kind not in (PARAMETER, MOMENT, BUFFER):
            raise Usage(f"tensor {name!r}: kind {kind}, must be PARAMETER, MOMENT or BUFFER")
        length = math.prod(shape) * _SIZES[_DTYPES[dtype]]
        entries.append(Entry(name, _DTYPES[dtype], kind, shape, at, length))
        at = _align(at + length, BLOCK)
    return entries, at


def _table(entries):
    out = bytearray()
    for e in entries:
        name = e.name.encode()
        out += struct.pack("<H", len(name)) + name + bytes((e.dtype, e.kind, len(e.shape)))
        out += struct.pack(f"<{len(e.shape)}QQQ", *e.shape, e.offset, e.length)
    return bytes(out)


def _write(fd, data, at):
    view = memoryview(data)
    while len(view):
        n = os.pwrite(fd, view[: 1 << 30], at)
        if n == 0:
            raise OSError(errno.EIO, "nothing was written")
        view, at = view[n:], at + n


def _read(fd, n, at):
    out = bytearray(n)
    view = memoryview(out)
    while len(view):
        got = os.preadv(fd, [view[: 1 << 30]], at)
        if got == 0:
            raise Corrupt(f"the file ends at byte {at}, before byte {at + len(view)}")
        view, at = view[got:], at + got
    return out


def _sign(magic, *fields):
    body = struct.pack(_RECORD, magic, *fields)
    return body, hash64(body) | 1


def _marker(id_, slot, note):
    return _sign(b"EVKLFREE", id_, slot, note.sequence, note.step, 0, 0)


def _write_record(fd, at, body, word):
    """Replaces a record or marker: at no moment do old and new bytes verify together."""
    _write(fd, bytes(8), at + 64)
    _write(fd, body, at)
    _write(fd, struct.pack("<Q", word), at + 64)


def _write_notes(fd, id_, slots, note):
    for slot in range(slots):
        body = struct.pack(_NOTE, b"EVKLNOTE", id_, slot, *note)
        _write(fd, body + struct.pack("<Q", hash64(body) | 1), (2 + slot) * BLOCK + _NOTE_AT * (1 + note.generation % 2))


def create(path, named, slots=3, state_bytes=64 << 10, rank=0, ranks=1, id=None):
    """Makes a file for tensors (name -> (tensor, kind)) and opens it. It is an error if the file exists.

    rank, ranks, id: the file is one of several that ranks write together, see job.Job.
    """
    if not 2 <= slots <= 16:
        raise Usage(f"slots is {slots}, must be 2 to 16")
    if not 0 <= state_bytes <= MAX_STATE:
        raise Usage(f"state_bytes is {state_bytes}, must be 0 to {MAX_STATE}")
    if not 0 <= rank < ranks or ranks > 1 and id is None:
        raise Usage(f"rank {rank} of {ranks}, with id {id}")
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists; open it, or choose another name", path)
    id = id or os.urandom(16)
    entries, manifest_at = _describe(named)
    table = _table(entries)
    manifest_size = _align(64 + 8 * len(entries) + state_bytes, BLOCK)
    slot_size = _align(manifest_at + manifest_size, SLOT_ALIGN)
    first = _align((2 + slots) * BLOCK, BLOCK)
    second = _align(first + len(table), BLOCK)
    first_slot = _align(second + len(table), SLOT_ALIGN)
    size = first_slot + slots * slot_size
    order = 0x01020304 if sys.byteorder == "little" else 0x04030201
    head = struct.pack(
        _SUPER, b"EVKLCKPT", VERSION, order, id, rank, ranks, slots, len(entries),
        len(table), hash64(table), first, second, first_slot, slot_size, manifest_at, manifest_size, size,
    )  # fmt: skip
    head += struct.pack("<Q", hash64(head))
    temporary = path + ".creating"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(fd, path)
        if not os.path.lexists(temporary) or not os.path.samestat(os.fstat(fd), os.stat(temporary)):
            raise Locked(f"{path}: another process has just made it")
    except BaseException:
        os.close(fd)  # the file is the other process's
        raise
    try:
        os.truncate(fd, 0)
        transfer.write_in_place(fd)
        disk = os.fstatvfs(fd)
        if disk.f_bavail * disk.f_frsize < size:  # asked first: to reserve what is not there would fill the disk for a moment
            raise OSError(errno.ENOSPC, f"no space left on device for {size} bytes ({slots} slots of {slot_size}), {disk.f_bavail * disk.f_frsize} are free", path)
        os.posix_fallocate(fd, 0, size)
        zeros = bytes(4 << 20)
        for at in range(0, size, len(zeros)):  # blocks only reserved would slow every later flush
            _write(fd, zeros[: min(len(zeros), size - at)], at)
        os.fsync(fd)
        hint = transfer.measure(fd, first_slot, size - first_slot)
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)  # else the first write past the page cache has to take every page out of it
        moving = transfer.copies_on_write(fd, first_slot)
        if moving:
            warnings.warn(f"{path}: {moving}. A save can fail for want of space later, and is slower; ext4 or XFS write in place", stacklevel=3)
        for data, at in ((table, first), (table, second), (head, 0), (head, BLOCK)):
            _write(fd, data, at)
        if any(hint):
            for copy in range(2):
                _write(fd, transfer.pack_hint(*hint), copy * BLOCK + _HINT_AT)
        note = Note(1, 0, 0, 0, 0)
        _write_notes(fd, id, slots, note)
        for slot in range(slots):
            _write_record(fd, (2 + slot) * BLOCK, *_marker(id, slot, note))
        os.fsync(fd)
        os.link(temporary, path)  # never over another file
        os.unlink(temporary)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.close(fd)
        raise
    return Checkpoint(path, fd, named, True, True)


def open_(path, named=None, read_only=False):
    """Opens a file. Tensors, if given, must be the file's, else Schema names the first that differs."""
    fd = os.open(path, os.O_RDONLY if read_only else os.O_RDWR)
    try:
        if not read_only:
            _lock(fd, path)
        return Checkpoint(path, fd, named, not read_only)
    except BaseException:
        os.close(fd)
        raise


def open_or_create(path, named, **options):
    """Opens the file, or makes it where there is none. Of two processes that do so at the same time one gets Locked."""
    if os.path.lexists(path):
        return open_(path, named)
    try:
        return create(path, named, **options)
    except FileExistsError:  # another process was quicker
        return open_(path, named)


_open_files = weakref.WeakSet()


def _in_child():
    """A process that was forked (a worker of a DataLoader) lets go of the files: else their locks would outlive the job that is killed."""
    for ck in list(_open_files):
        ck._let_go()


os.register_at_fork(after_in_child=_in_child)


def _lock(fd, path):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path}: another process has it open for writing") from None


def _load_all(arrays, total):
    """Reads arrays, (file, entry, hash, slot's place, tensor) each, with two readers: one hashes while the other waits for the disk."""
    todo, lock, faults = iter(arrays), threading.Lock(), []

    def read():
        while not faults:
            with lock:
                ck, e, want, start, t = next(todo, (None,) * 5)
            if ck is None:
                return
            try:
                ck._load_array(e, want, start, t)
            except BaseException as fault:  # raised below
                faults.append(fault)

    other = None
    if total > transfer.PIECE:
        other = threading.Thread(target=read)
        other.start()
    read()
    if other:
        other.join()
    if faults:
        raise faults[0]


class Checkpoint:
    """An open file; create, open_ and open_or_create make it."""

    def __init__(self, path, fd, named, writes, new=False):
        self.path, self._fd, self._named = path, fd, named
        self.faults = []  # what restore found damaged
        self.unchanged = 0  # saves in which no parameter differed from the save before
        self.refuse_unchanged = False
        self.cursor_per_step = 0  # how far the cursor moves in a step, at most; 0: not checked
        self._bytes = os.fstat(fd).st_size
        self._head()
        self.compare(named)
        self._access = transfer.File(fd, writes, *self._hint())
        pages, self._note, _ = self._pages()
        self._slots = [record for record, _ in pages]  # Record or None
        self._sequence = max([self._note.sequence] + [r.sequence for r in self._slots if r])
        self._known = self._empty_fault() is None
        self._last = None  # (step, cursor, hashes of the parameters) of the newest checkpoint
        self._all = 0  # sequence of the newest that all ranks have
        # What lies beyond the end of the file is not written: its blocks are not reserved.
        self._poisoned = {i for i in range(self.slots) if self._first + (i + 1) * self._size > self._bytes}
        self._clean = set(range(self.slots)) if new else set()  # free, and durably so
        self._failure = None
        self._idle = threading.Event()
        self._idle.set()
        self._open = None  # of the save begun: slot, sequence, step, names written
        self._index = {e.name: e for e in self.entries}
        self._reading = set()  # names that a save has yet to read
        self._watched = {}  # name -> (tensor, version) of what is saved in place and was not said to be ready
        self._changed = threading.Condition()
        self._jobs = queue.Queue()
        self._staging = Staging()
        self._thread = None
        self.pace = True  # a save is spread over half of the time in which nobody changes the tensors, as it was the last times
        self.begun_at = self.took = None  # of the newest save: when it began, and the seconds until it was durable
        self.waited = 0.0  # seconds that ready() and wait() took
        self._hurry = threading.Event()  # somebody waits
        self._left = None  # when the tensors of a save were left to it
        self._quiet = []  # seconds from there until they were wanted, of the last saves
        _open_files.add(self)
        if writes:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close()

    # --- what the file says of itself

    def _head(self):
        if self._bytes < BLOCK and bytes(_read(self._fd, min(self._bytes, 8), 0)) != b"EVKLCKPT":
            raise Format(f"{self.path}: not a checkpoint file")
        fault, found = None, []
        for copy in range(2):
            try:
                found.append(self._copy(copy))
            except CheckpointError as e:
                fault = fault or e
        if not found:
            raise fault
        if len(found) == 2 and found[0] != found[1]:  # the one whose id the record pages carry
            votes = [sum(self._owned(head[2], slot) for slot in range(head[5])) for head in found]
            if votes[0] == votes[1]:
                raise Corrupt(f"{self.path}: superblocks A and B are of different files")
            found = [found[votes.index(max(votes))]]
        (self.version, _, self.id, self.rank, self.ranks, self.slots, count, *_, first, size, at, room, self._total), table = found[0][:-1], found[0][-1]
        self._first, self._size, self._manifest_at, self._manifest_size = first, size, at, room
        self._parse(table, count)

    def _hint(self):
        """Which way is faster on the disk that the file was made on, as measured then."""
        for copy in range(2):
            ways = transfer.unpack_hint(bytes(_read(self._fd, 24, copy * BLOCK + _HINT_AT)))
            if any(ways):
                return ways
        return False, False

    def _owned(self, id_, slot):
        try:
            b = bytes(_read(self._fd, 24, (2 + slot) * BLOCK))
        except Corrupt:
            return False
        return b[:4] == b"EVKL" and b[8:24] == id_

    def _copy(self, copy):
        """One superblock's fields and its table."""
        b = bytes(_read(self._fd, 128, copy * BLOCK))
        f = struct.unpack(_SUPER, b[:120])
        if f[0] != b"EVKLCKPT":
            raise Format(f"{self.path}: not a checkpoint file")
        good = hash64(b[:120]) == struct.unpack("<Q", b[120:])[0]
        if not 1 <= f[1] <= VERSION and (good or f[1] < 1 << 16):
            raise Format(f"{self.path}: version {f[1]}, this program reads 1 to {VERSION}")
        if int.from_bytes(b[12:16], sys.byteorder) == 0x04030201:
            raise Format(f"{self.path}: written on a machine of the other byte order")
        if not good:
            raise Corrupt(f"{self.path}: superblock {'AB'[copy]}: checksum differs")
        rank, ranks, slots, count, length, want, *tables = f[4:12]
        first, size, manifest_at, room, total = f[12:]
        if (
            not rank < ranks or not 2 <= slots <= 16 or not 1 <= count <= MAX_ARRAYS or not 20 * count <= length <= 256 << 20
            or any(v % BLOCK or v > 1 << 50 for v in (*tables, first, size, manifest_at, room, total))
            or tables[0] < (2 + slots) * BLOCK or tables[1] < tables[0] + length or first < tables[1] + length
            or room < 64 + 8 * count or size < manifest_at + room or total != first + slots * size
        ):  # fmt: skip
            raise Format(f"{self.path}: superblock {'AB'[copy]} is inconsistent")
        for at in tables:
            if at + length <= self._bytes:
                table = bytes(_read(self._fd, length, at))
                if hash64(table) == want:
                    return f[1:] + (table,)
        raise Corrupt(f"{self.path}: both tables are damaged")

    def _parse(self, table, count):
        self.entries = []
        try:
            at = end = 0
            for _ in range(count):
                (n,) = struct.unpack_from("<H", table, at)
                name = table[at + 2 : at + 2 + n].decode()
                dtype, kind, dims = table[at + 2 + n : at + 5 + n]
                *shape, offset, length = struct.unpack_from(f"<{dims}QQQ", table, at + 5 + n)
                if not 1 <= n <= MAX_NAME or not 1 <= dtype < len(_SIZES) or not 1 <= kind <= 3 or dims > MAX_DIMS or offset < end or offset % BLOCK:
                    raise Format(f"{self.path}: array {name!r} is invalid")
                if math.prod(shape) * _SIZES[dtype] != length or offset + length > self._manifest_at:
                    raise Format(f"{self.path}: array {name!r} is invalid")
                self.entries.append(Entry(name, dtype, kind, tuple(shape), offset, length))
                at, end = at + 5 + n + 8 * dims + 16, offset + length
        except (struct.error, ValueError, IndexError) as e:
            raise Format(f"{self.path}: table of arrays: {e}") from None
        if len({e.name for e in self.entries}) != count:
            raise Format(f"{self.path}: table of arrays: a name comes twice")

    def compare(self, named):
        """Schema names the first tensor that is not the file's."""
        if named is None:
            return
        mine = {e.name: e for e in _describe(named)[0]}
        theirs = {e.name: e for e in self.entries}
        for name in list(mine) + list(theirs):
            if name not in theirs:
                raise Schema(f"{self.path}: tensor {name!r} is not in the file; is it another model's?")
            if name not in mine:
                raise Schema(f"{self.path}: the file's array {name!r} is not in the program; is it another model's?")
            a, b = mine[name], theirs[name]
            if a[1:4] != b[1:4]:
                raise Schema(f"{self.path}: tensor {name!r} is {_TORCH.get(a.dtype)} of kind {a.kind} and shape {a.shape}, in the file {_TORCH.get(b.dtype)} of kind {b.kind} and shape {b.shape}")

    def _pages(self):
        """(record or None, fault or None) for each slot; the newest note; what else is damaged."""
        pages, note, damage = [], Note(0, 0, 0, 0, 0), []
        for slot in range(self.slots):
            try:
                b = bytes(_read(self._fd, 3 * _NOTE_AT, (2 + slot) * BLOCK))
                pages.append((self._record(b, slot), None))
            except Corrupt as e:
                pages.append((None, f"slot {slot}: {e}"))
                if len(str(e)) and "ends at" in str(e) and self._bytes < (3 + slot) * BLOCK:
                    continue
            if self.version < 2:
                continue
            copies = [self._note_of(b, slot, at) for at in (_NOTE_AT, 2 * _NOTE_AT)]
            if not any(copies):
                damage.append(f"slot {slot}: neither copy of its note verifies")
            note = max([note] + [c for c in copies if c])
        newest = max([r.sequence for r, _ in pages if r], default=0)
        if note.sequence > newest:
            damage.append(f"the save of step {note.step} (number {note.sequence}) was reported, and its record is gone")
        if self._bytes < self._total:
            damage.append(f"{self._bytes} of {self._total} bytes; the file is truncated")
        return pages, note, damage

    def _note_of(self, b, slot, at):
        c = b[at : at + 80]
        if hash64(c[:72]) | 1 != struct.unpack("<Q", c[72:])[0]:
            return None
        magic, owner, number, *rest = struct.unpack(_NOTE, c[:72])
        return Note(*rest) if magic == b"EVKLNOTE" and owner == self.id and number == slot else None

    def _record(self, b, slot):
        """A page's record, None if the slot is free; Corrupt if it is neither."""
        if self._first + (slot + 1) * self._size > self._bytes:
            raise Corrupt(f"the file ends at byte {self._bytes}, within the slot")
        (word,) = struct.unpack("<Q", b[64:72])
        magic, owner, number, sequence, step, length, sum_ = struct.unpack(_RECORD, b[:64])
        ours = owner == self.id and number == slot
        if word == 0:
            if self.version >= 2 and not (ours and magic in (b"EVKLRECD", b"EVKLFREE")):
                raise Corrupt("commit record: neither a checkpoint nor signed as free")
            return None
        if hash64(b[:64]) | 1 != word:
            raise Corrupt("commit record: checksum differs")
        if ours and magic == b"EVKLFREE" and self.version >= 2:
            return None
        if not ours or magic != b"EVKLRECD":
            raise Corrupt("commit record is another file's or another slot's")
        if sequence == 0 or not 64 <= length <= self._manifest_size:
            raise Corrupt("commit record holds impossible numbers")
        return Record(sequence, step, length, sum_)

    def _empty_fault(self):
        """None if the file provably never held a checkpoint, else why not."""
        pages, note, damage = self._pages()
        faults = [f for _, f in pages if f] + damage
        if faults:
            return "; ".join(faults)
        if any(r for r, _ in pages):
            return "it holds checkpoints"
        if note.sequence:
            return f"the save of step {note.step} was reported, and its record is gone"
        for slot in range(self.slots):
            m = bytes(_read(self._fd, 64, self._first + slot * self._size + self._manifest_at))
            if m[:8] == b"EVKLMANI" and m[8:24] == self.id and (self.version < 2 or m[60:64] != bytes(4)):
                step = struct.unpack_from("<Q", m, 32)[0]
                return (
                    f"no record says that anything was saved, but slot {slot} holds the manifest of step {step}; if this run never "
                    "finished a save, move the file away and start again"
                )
        return None

    # --- reading

    def restore(self):
        """Fills the tensors from the newest checkpoint that verifies. None: provably, nothing was saved yet.

        Corrupt: something was, or may have been, and none of it verifies; the tensors then hold anything. self.faults
        says what was damaged on the way.
        """
        if self._named is None:
            raise Usage("opened without tensors")
        if self.ranks > 1:
            raise Usage("one rank's part of a set; restore it with job.Job, with the Go package, or export it first")
        return self.load(lambda e: self._named[e.name][0])

    def load(self, into, step=None, names=None):
        """Restores as restore() does, into the tensors that into(entry) gives; step: that one and no other; names: these only."""
        self.wait()
        found = self._found()
        for _, slot in sorted(((r.sequence, slot) for slot, r in found.items() if step in (None, r.step)), reverse=True):
            try:
                state, hashes = self._load(slot, found[slot], into, names)
            except Corrupt as e:
                self.faults.append(f"slot {slot}: {e}")
                self._slots[slot] = None
                continue
            self._known = True
            self._last = (state.step, state.cursor, hashes)
            return state
        if step is not None:
            raise Corrupt(f"{self.path}: no checkpoint of step {step} verifies: {'; '.join(self.faults)}")
        fault = "; ".join(self.faults) or self._empty_fault()
        if fault:
            raise Corrupt(f"{self.path}: no slot verifies: {fault}")
        self._known = True
        return None

    def _found(self):
        """The slots with records, after a fresh look."""
        pages, self._note, damage = self._pages()
        self._slots, self._clean = [r for r, _ in pages], set()
        self.faults = [f for _, f in pages if f] + damage
        return {slot: r for slot, (r, _) in enumerate(pages) if r}

    def verified(self):
        """The steps of which every byte verifies, newest first. self.faults says what does not."""
        self.wait()
        steps = []
        for slot, r in sorted(self._found().items(), key=lambda i: -i[1].sequence):
            try:
                self._load(slot, r, lambda e: torch.empty(e.length, dtype=torch.uint8), None)
                steps.append(r.step)
            except Corrupt as e:
                self.faults.append(f"slot {slot}: {e}")
                self._slots[slot] = None
        self._known = True
        return steps

    def at(self, step):
        """The newest checkpoint of a step, its manifest verified: State, and (entry, hash, place of the slot) for each array. Corrupt if
        there is none. read() then reads an array."""
        found = self._found()
        for _, slot in sorted(((r.sequence, slot) for slot, r in found.items() if r.step == step), reverse=True):
            state, hashes, start = self._manifest(slot, found[slot])
            return state, [(e, h, start) for e, h in zip(self.entries, hashes)]
        raise Corrupt(f"{self.path}: step {step} is gone")

    def read(self, place, t):
        """Reads and verifies an array that at() told of. Several threads may read at a time."""
        e, want, start = place
        self._load_array(e, want, start, t)

    def _load(self, slot, record, into, names):
        state, hashes, start = self._manifest(slot, record)
        wanted = [(e, h) for e, h in zip(self.entries, hashes) if names is None or e.name in names]
        _load_all(((self, e, h, start, into(e)) for e, h in wanted), sum(e.length for e, _ in wanted))
        parameters = tuple(h for e, h in zip(self.entries, hashes) if e.kind == PARAMETER)
        return state, parameters

    def _manifest(self, slot, record):
        start = self._first + slot * self._size
        m = bytes(_read(self._fd, record.length, start + self._manifest_at))
        if hash64(m) != record.hash:
            raise Corrupt("manifest: checksum differs")
        magic, owner, seq, at_step, cursor, arrays, scalars, random, _ = struct.unpack_from("<8s16sQQQIIII", m)
        if magic != b"EVKLMANI" or owner != self.id or (seq, at_step) != record[:2] or arrays != len(self.entries):
            raise Corrupt("manifest: of another checkpoint than its record")
        hashes = struct.unpack_from(f"<{arrays}Q", m, 64)
        at, values = 64 + 8 * arrays, {}
        for _ in range(scalars):
            (n,) = struct.unpack_from("<H", m, at)
            values[m[at + 2 : at + 2 + n].decode()] = struct.unpack_from("<d", m, at + 2 + n)[0]
            at += 10 + n
        if len(m) != at + random:
            raise Corrupt("manifest: length differs")
        return State(at_step, cursor, m[at:], values), hashes, start

    def _load_array(self, e, want, start, t):
        here = t if _plain(t) else torch.empty(e.shape, dtype=_TORCH[e.dtype])
        view = _bytes(here)
        try:
            got = self._access.read(view, start + e.offset)
        except EOFError:
            raise Corrupt(f"tensor {e.name!r}: the file ends") from None
        if got != want:
            raise Corrupt(f"tensor {e.name!r}: checksum differs")
        if here is not t:
            with torch.no_grad():
                t.copy_(torch.view_as_complex(here) if t.is_complex() else here)

    # --- writing

    def save(self, step, cursor=0, random=b"", scalars=None):
        """Saves all tensors in the background. Call ready() before you change them, wait() to know it is durable.

        It waits where the save before is not done. Tells the error of an earlier save.
        """
        self._fits(step, cursor, random, scalars)
        self.begin(step)
        try:
            self.write(*(e.name for e in self.entries))
        except BaseException:
            self.abort()
            raise
        self.commit(cursor, random, scalars)

    def begin(self, step):
        """Begins the save of a step: then write() every tensor as soon as it is updated, and commit().

        It waits where the save before is not done. Tells the error of an earlier save.
        """
        if self._thread is None:
            raise Usage("opened for reading only")
        if self._open is not None:
            raise Usage(f"the save of step {self._open[2]} was neither committed nor aborted")
        self._numbers(step, 0)
        self.wait()
        if not self._known:
            raise Usage("the file holds checkpoints, or is damaged; restore first")
        if self.slots - len(self._poisoned) < 2:
            raise CheckpointError(f"{self.path}: too few slots reach the storage; move to a sound disk")
        slot = self._choose()
        if slot is None:
            raise Usage("no slot is free: all hold what not all ranks are known to have; call acknowledge")
        self._sequence += 1
        self._open = (slot, self._sequence, step, set())
        self._idle.clear()
        self._hurry.clear()
        self._jobs.put(("begin", slot))

    def _choose(self, busy=None):
        """A free slot, else the oldest before the newest that counts, else None."""
        newest = self._all if self.ranks > 1 else max((r.sequence for r in self._slots if r), default=0)
        usable = [i for i in range(self.slots) if i not in self._poisoned and i != busy]
        free = [i for i in usable if self._slots[i] is None]
        if free:
            return free[0]
        return min((i for i in usable if self._slots[i].sequence < newest), key=lambda i: self._slots[i].sequence, default=None)

    def write(self, *names):
        """Saves tensors of the save that was begun, and returns at once: ready(name) before you change one.

        Buffers are copied: a model's forward pass changes them without asking.
        """
        if self._open is None:
            raise Usage("write before begin")
        for name in names:
            if name not in self._index:
                raise Schema(f"{self.path}: tensor {name!r} is not in the file")
            if name in self._open[3]:
                raise Usage(f"tensor {name!r} was written already")
            t, kind = self._named[name]
            event = None
            if t.is_cuda and not t.is_complex() and not t.is_neg():
                copy, event = self._staging.copy(name, t.detach())
                data = _bytes(copy)
            else:
                data = _bytes(t if _plain(t) else _stored(t))
            if len(data) != self._index[name].length:
                raise Schema(f"{self.path}: tensor {name!r} has {len(data)} bytes, in the file {self._index[name].length}")
            watched = None
            if event is not None or kind != BUFFER and _plain(t):
                watched = (t, t._version)
            elif kind == BUFFER:
                data = bytes(data)
            self._open[3].add(name)
            with self._changed:
                if event is None:  # else the device waits, not the program
                    self._reading.add(name)
                if watched:
                    self._watched[name] = watched
            self._jobs.put(("write", name, data, event))

    def written(self):
        """The names written to the save that was begun."""
        return set(self._open[3]) if self._open else set()

    def commit(self, cursor=0, random=b"", scalars=None):
        """Completes the save in the background. Every tensor is to be written, or Usage names one that was not."""
        if self._open is None:
            raise Usage("commit before begin")
        missing = [e.name for e in self.entries if e.name not in self._open[3]]
        try:
            named = self._fits(self._open[2], cursor, random, scalars)
            if missing:
                raise Usage(f"tensor {missing[0]!r} was not written")
            self._ahead(self._open[2], cursor)
        except BaseException:
            self.abort()
            raise
        slot, sequence, step, _ = self._open
        self._open = None
        self._left = time.monotonic()
        self._jobs.put(("commit", slot, sequence, step, cursor, bytes(random), named))

    def _ahead(self, step, cursor):
        """The data cursor may not be ahead of the step: what it passed would be skipped after a restore."""
        if not self.cursor_per_step:
            return
        base_step, base, _ = self._last or (-1, 0, None)
        most = base + (step - base_step) * self.cursor_per_step
        if cursor > most:
            raise Usage(f"the data cursor is {cursor} at step {step}, {cursor - most} ahead: at {self.cursor_per_step} a step it is at most {most}. Save what was trained on, not what was fetched")

    def abort(self):
        """Gives up a save that was begun."""
        if self._open is not None:
            self._jobs.put(("abort", self._open[0]))
            self._open = None

    def _numbers(self, step, cursor):
        for what, v in (("step", step), ("cursor", cursor)):
            if not isinstance(v, int) or isinstance(v, bool) or not 0 <= v < 1 << 64:
                raise Usage(f"{what} is {v!r}, must be a number from 0 to 2**64 - 1")

    def _fits(self, step, cursor, random, scalars):
        self._numbers(step, cursor)
        if not isinstance(random, (bytes, bytearray, memoryview)):
            raise Usage(f"random is {type(random).__name__}, must be bytes")
        named = sorted((k.encode(), float(v)) for k, v in (scalars or {}).items())
        for k, _ in named:
            if len(k) > MAX_NAME:
                raise Usage(f"scalar {k[:40]!r}: its name has {len(k)} bytes, at most {MAX_NAME}")
        need = 64 + 8 * len(self.entries) + sum(10 + len(k) for k, _ in named) + len(random)
        if need > self._manifest_size:
            raise Usage(f"random and scalars need {need} bytes with the rest, the file has room for {self._manifest_size}; create it with more state_bytes")
        return named

    def ready(self, *names):
        """Waits until these tensors may be changed, or all of them."""
        begun = time.monotonic()
        self._wanted(begun)
        self._staging.before_change(*names)
        with self._changed:
            self._changed.wait_for(lambda: not (self._reading & set(names) if names else self._reading))
            for name in names or list(self._watched):
                self._watched.pop(name, None)
        self.waited += time.monotonic() - begun

    def _wanted(self, now):
        """Somebody waits for the save: it is not held back any more."""
        self._hurry.set()
        if self._thread is not None and not self._idle.is_set():
            transfer.foreground(self._thread.native_id)
        if self._left is not None:
            self._quiet = self._quiet[-7:] + [now - self._left]
            self._left = None

    def _spread(self):
        return 0.5 * min(self._quiet, default=0.0)

    def wait(self):
        """Waits until the save under way is durable, and raises its error."""
        if self._fd is None:
            raise Usage("the file is closed")
        if self._open is not None:
            raise Usage(f"the save of step {self._open[2]} was neither committed nor aborted")
        begun = time.monotonic()
        if not self._idle.is_set():
            self._wanted(begun)
        self._idle.wait()
        self.waited += time.monotonic() - begun
        with self._changed:
            self._watched.clear()
        if self._failure:
            e, self._failure = self._failure, None
            raise e

    def acknowledge(self, step):
        """All ranks have committed this step: older checkpoints may be reused."""
        found = [r.sequence for r in self._slots if r and r.step == step]
        if not found:
            raise Usage(f"{self.path}: step {step} is acknowledged and was not committed here")
        self._all = max(self._all, *found)

    def give_up_after(self, step):
        """Frees the slots of all checkpoints newer than this step's, -1 for all: they are not the resumed run's."""
        self.wait()
        newest = max((r for r in self._slots if r and r.step == step), default=Record(0, 0, 0, 0))
        if self.version >= 2 and self._note.sequence > newest.sequence:
            note = self._note._replace(generation=self._note.generation + 1, sequence=newest.sequence, step=newest.step)
            if note.all_sequence > newest.sequence:
                note = note._replace(all_sequence=0, all_step=0)
            os.fdatasync(self._fd)  # of two copies of the note the older is durable before the other is touched
            _write_notes(self._fd, self.id, self.slots, note)
            os.fdatasync(self._fd)
            self._note = note
        for slot, r in enumerate(self._slots):
            if r and r.sequence > newest.sequence:
                self._free(slot)

    def _work(self):
        hashes, error, poison, slot, pace = {}, None, False, 0, None
        while True:
            kind, *job = self._jobs.get()
            try:
                if kind == "close":
                    return
                if kind == "begin":
                    self._priority()
                    hashes, error, poison, slot = {}, None, False, job[0]
                    self.begun_at = time.monotonic()
                    pace = transfer.Pace(sum(e.length for e in self.entries), self._spread(), self._hurry) if self.pace else None
                    if slot in self._clean:
                        self._slots[slot] = None
                    else:
                        poison = True
                        self._free(slot)
                        poison = False
                elif kind == "write" and error is None:
                    name, data, event = job
                    if event is not None:
                        event.synchronize()
                        self._unchanged(name)
                    e = self._index[name]
                    hashes[name] = self._access.write(data, self._first + slot * self._size + e.offset, pace)
                    self._unchanged(name)
                elif kind == "commit" and error is None:
                    # What was not flushed may be lost although the kernel calls it clean: never try again there.
                    poison = True
                    self._access.written()
                    self._commit(*job, [hashes[e.name] for e in self.entries])
                    poison = False
                    self.took = time.monotonic() - self.begun_at
            except Usage as e:  # not the storage's
                error, poison = e, False
            except BaseException as e:  # raised by the next call
                error = e
            job_data = data = None  # noqa: F841  no reference to a tensor's memory is kept
            if kind == "write":
                with self._changed:
                    self._reading.discard(job[0])
                    self._changed.notify_all()
            elif kind != "begin":
                if kind == "abort" or error is not None:
                    self._access.discard()
                if error is not None:
                    if poison:
                        self._poisoned.add(slot)
                    self._failure = error
                self._idle.set()

    def _priority(self):
        """The writer gives way, but not where somebody waits already."""
        if not self._hurry.is_set():
            transfer.background()
        if self._hurry.is_set():
            transfer.foreground(self._thread.native_id)

    def _unchanged(self, *names):
        """A tensor that changed while it was saved was not waited for: the save would mix two steps."""
        with self._changed:
            for name in names or list(self._watched):
                t, version = self._watched.get(name, (None, None))
                if t is not None and t._version != version:
                    raise Usage(f"tensor {name!r} was changed while it was being saved; call ready() before optimizer.step(). The save is given up")

    # _free and _commit are the commit order of docs/reference/formats/checkpoint.md.

    def _mark_free(self, slot):
        self._slots[slot] = None
        if self.version < 2:
            _write(self._fd, bytes(8), (2 + slot) * BLOCK + 64)
        else:
            _write_record(self._fd, (2 + slot) * BLOCK, *_marker(self.id, slot, self._note))

    def _free(self, slot):
        self._clean.discard(slot)
        self._mark_free(slot)
        os.fdatasync(self._fd)
        self._clean.add(slot)

    def _commit(self, slot, sequence, step, cursor, random, scalars, hashes):
        fd, start = self._fd, self._first + slot * self._size
        parameters = tuple(h for e, h in zip(self.entries, hashes) if e.kind == PARAMETER)
        if self._last and parameters and parameters == self._last[2] and step > self._last[0]:
            self.unchanged += 1
            said = f"{self.path}: no parameter changed between the saves of steps {self._last[0]} and {step}; is the model that is saved the one that is trained?"
            if self.refuse_unchanged:
                raise Usage(said)
            warnings.warn(said, stacklevel=1)
        later = self.version >= 2 and self._note.sequence > 0
        m = struct.pack("<8s16sQQQIIII", b"EVKLMANI", self.id, sequence, step, cursor, len(hashes), len(scalars), len(random), later)
        m += struct.pack(f"<{len(hashes)}Q", *hashes)
        for name, value in scalars:
            m += struct.pack("<H", len(name)) + name + struct.pack("<d", value)
        m += random
        self._clean.discard(slot)
        _write(fd, m, start + self._manifest_at)
        os.fdatasync(fd)
        self._unchanged()
        body, word = _sign(b"EVKLRECD", self.id, slot, sequence, step, len(m), hash64(m))
        _write_record(fd, (2 + slot) * BLOCK, body, word)
        following = self._choose(busy=slot)  # freed with this commit, so that the next save needs no flush for it
        if following in self._clean:
            following = None
        if following is not None:
            self._mark_free(following)
        os.fdatasync(fd)
        if following is not None:
            self._clean.add(following)
        self._slots[slot] = Record(sequence, step, len(m), hash64(m))
        self._last = (step, cursor, parameters)
        if self.version >= 2:
            note = self._note._replace(generation=self._note.generation + 1, sequence=sequence, step=step)
            found = [r for r in self._slots if r and r.sequence == self._all]
            if found and self._all > note.all_sequence:
                note = note._replace(all_sequence=self._all, all_step=found[0].step)
            _write_notes(fd, self.id, self.slots, note)
            self._note = note

    def _let_go(self):
        """Closes the descriptors and nothing else."""
        if self._fd is not None:
            self._access.let_go()
            os.close(self._fd)
            self._fd = None

    def close(self):
        """Waits for the save under way and closes the file."""
        if self._fd is None:
            return
        if self._thread is not None:
            self.abort()
            self._jobs.put(("close",))
            self._thread.join()
            if self._note.sequence:
                try:
                    os.fdatasync(self._fd)  # the note is a witness only
                except OSError:
                    pass
        self._access.close()
        os.close(self._fd)
        self._fd = None
        if self._failure:
            e, self._failure = self._failure, None
            raise e
