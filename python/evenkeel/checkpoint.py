"""Checkpoints of a PyTorch job in Evenkeel's checkpoint file: one file of fixed size that always holds a whole checkpoint.

    tensors = checkpoint.tensors(model, optimizer)          # name -> (tensor, kind)
    with checkpoint.open_or_create("run.ckpt", tensors) as ck:
        state = ck.restore()                                # None: nothing was saved yet
        for step in range(state.step + 1 if state else 0, steps):
            loss(model, batch(step)).backward()
            ck.ready()                                      # the save of the step before has read the tensors
            optimizer.step()
            ck.save(step, random=torch.get_rng_state().numpy().tobytes())   # returns at once

Tensors on a processor are written from where they are; buffers and those of a device are copied in save(). To save each
layer while the ones below it still compute gradients, see layerwise. `evenkeel checkpoint`
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
from collections import namedtuple

import torch

from .xxh3 import hash64

PARAMETER, MOMENT, BUFFER = 1, 2, 3
BLOCK, SLOT_ALIGN, VERSION = 4096, 2 << 20, 1
_DTYPES = {
    torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4, torch.int8: 5, torch.int16: 6, torch.int32: 7,
    torch.int64: 8, torch.uint8: 9, torch.bool: 13,
}  # fmt: skip
_SIZES = (0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1)
_SUPER = "<8sII16sIIIIQQQQQQQQQ"  # 120 bytes, then their hash; the byte order mark is checked apart
_RECORD = "<8s16sQQQQQ"  # 64 bytes, then the commit word

State = namedtuple("State", "step cursor random scalars")
Entry = namedtuple("Entry", "name dtype kind shape offset length")


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

    Tied parameters come once. An optimizer that makes its state in its first step is made to do so, by a step at
    learning rate 0 with gradients of 0, of which nothing remains. Scalars that an optimizer keeps as Python numbers
    are not tensors: hand them to save().
    """
    out = {name: (p.data, PARAMETER) for name, p in model.named_parameters()}
    for name, b in model.named_buffers():
        if b is not None:
            out[name] = (b, BUFFER)
    if optimizer is None:
        return out
    if not optimizer.state:
        _prime(optimizer)
    names = {p: name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for p in group["params"]:
            for key, value in sorted(optimizer.state.get(p, {}).items()):
                if torch.is_tensor(value):
                    out[f"{names[p]}.{key}"] = (value, MOMENT)
    return out


def _prime(optimizer):
    rates = [g["lr"] for g in optimizer.param_groups]
    kept = {p: p.grad for g in optimizer.param_groups for p in g["params"]}
    before = {p: p.detach().clone() for p in kept}
    for g in optimizer.param_groups:
        g["lr"] = 0.0
    for p in kept:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    with torch.no_grad():
        for p, grad in kept.items():
            p.grad = grad
            p.copy_(before[p])
            for value in optimizer.state.get(p, {}).values():
                if torch.is_tensor(value):
                    value.zero_()
    for g, rate in zip(optimizer.param_groups, rates):
        g["lr"] = rate


def _align(n, to):
    return (n + to - 1) // to * to


def _bytes(t):
    """The memory of a contiguous tensor on the processor, without a copy."""
    t = t.detach()
    if t.numel() == 0:
        return memoryview(b"")
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return memoryview(t.reshape(-1).numpy()).cast("B")


def _describe(named):
    entries, at = [], 0
    for name, (t, kind) in named.items():
        if t.dtype not in _DTYPES:
            raise Usage(f"tensor {name!r}: {t.dtype} cannot be stored")
        if not t.is_contiguous():
            raise Usage(f"tensor {name!r} is not contiguous; make it so before you create the checkpoint")
        length = t.numel() * t.element_size()
        entries.append(Entry(name, _DTYPES[t.dtype], kind, tuple(t.shape), at, length))
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


def create(path, named, slots=3, state_bytes=64 << 10):
    """Makes a file for tensors (name -> (tensor, kind)) and opens it. It is an error if the file exists."""
    if not 2 <= slots <= 16:
        raise Usage(f"slots is {slots}, must be 2 to 16")
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists; open it, or choose another name", path)
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
        _SUPER, b"EVKLCKPT", VERSION, order, os.urandom(16), 0, 1, slots, len(entries),
        len(table), hash64(table), first, second, first_slot, slot_size, manifest_at, manifest_size, size,
    )  # fmt: skip
    head += struct.pack("<Q", hash64(head))
    temporary = path + ".creating"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(fd, path)
        os.truncate(fd, 0)
        os.posix_fallocate(fd, 0, size)
        zeros = bytes(4 << 20)
        for at in range(0, size, len(zeros)):  # blocks only reserved would slow every later flush
            _write(fd, zeros[: min(len(zeros), size - at)], at)
        os.fsync(fd)
        for data, at in ((table, first), (table, second), (head, 0), (head, BLOCK)):
            _write(fd, data, at)
        os.fsync(fd)
        os.link(temporary, path)  # never over another file
        os.unlink(temporary)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        os.close(fd)
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    return Checkpoint(path, fd, named, True)


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
    """Opens the file, or makes it where there is none."""
    return open_(path, named) if os.path.lexists(path) else create(path, named, **options)


def _lock(fd, path):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path}: another process has it open for writing") from None


class Checkpoint:
    """An open file; create, open_ and open_or_create make it."""

    def __init__(self, path, fd, named, writes):
        self.path, self._fd, self._named = path, fd, named
        self.faults = []  # what restore found damaged
        self._head()
        self._compare()
        self._slots = [self._record(i)[0] for i in range(self.slots)]  # (sequence, step, length, hash) or None
        self._sequence = max((r[0] for r in self._slots if r), default=0)
        self._known = not any(self._slots) and not any(self._record(i)[1] for i in range(self.slots))
        self._poisoned, self._failure = set(), None
        self._idle = threading.Event()
        self._idle.set()
        self._open = None  # of the save begun: slot, sequence, step, names written
        self._index = {e.name: e for e in self.entries}
        self._reading = set()  # names that a save has yet to read
        self._changed = threading.Condition()
        self._jobs = queue.Queue()
        self._thread = None
        if writes:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close()

    def _head(self):
        size, fault = os.fstat(self._fd).st_size, None
        for copy in range(2):
            try:
                b = bytes(_read(self._fd, 128, copy * BLOCK))
                f = struct.unpack(_SUPER, b[:120])
                if f[0] != b"EVKLCKPT":
                    raise Format(f"{self.path}: not a checkpoint file")
                if f[1] != VERSION:
                    raise Format(f"{self.path}: version {f[1]}, this program reads {VERSION}")
                if int.from_bytes(b[12:16], sys.byteorder) != 0x01020304:
                    raise Format(f"{self.path}: written on a machine of the other byte order")
                if hash64(b[:120]) != struct.unpack("<Q", b[120:])[0]:
                    raise Corrupt(f"{self.path}: superblock {'AB'[copy]}: checksum differs")
                self.id, self.rank, self.ranks, self.slots, count = f[3], f[4], f[5], f[6], f[7]
                length, want, *tables = f[8:12]
                self._first, self._size, self._manifest_at, self._manifest_size, total = f[12:]
                table = next(
                    (t for t in (bytes(_read(self._fd, length, at)) for at in tables) if hash64(t) == want), None
                )
                if table is None:
                    raise Corrupt(f"{self.path}: both tables are damaged")
                if size < total:
                    raise Corrupt(f"{self.path}: {size} of {total} bytes; the file is truncated")
                self._parse(table, count)
                return
            except CheckpointError as e:
                fault = fault or e
        raise fault

    def _parse(self, table, count):
        self.entries = []
        try:
            at = 0
            for _ in range(count):
                (n,) = struct.unpack_from("<H", table, at)
                name = table[at + 2 : at + 2 + n].decode()
                dtype, kind, dims = table[at + 2 + n : at + 5 + n]
                *shape, offset, length = struct.unpack_from(f"<{dims}QQQ", table, at + 5 + n)
                if math.prod(shape) * _SIZES[dtype] != length or offset + length > self._manifest_at:
                    raise Format(f"{self.path}: array {name!r} is invalid")
                self.entries.append(Entry(name, dtype, kind, tuple(shape), offset, length))
                at += 5 + n + 8 * dims + 16
        except (struct.error, ValueError, IndexError) as e:
            raise Format(f"{self.path}: table of arrays: {e}") from None

    def _compare(self):
        if self._named is None:
            return
        mine = {e.name: e for e in _describe(self._named)[0]}
        theirs = {e.name: e for e in self.entries}
        for name in list(mine) + list(theirs):
            if name not in theirs:
                raise Schema(f"{self.path}: tensor {name!r} is not in the file; is it another model's?")
            if name not in mine:
                raise Schema(f"{self.path}: the file's array {name!r} is not in the program; is it another model's?")
            if mine[name][1:4] != theirs[name][1:4]:
                raise Schema(f"{self.path}: tensor {name!r} has type, kind and shape {mine[name][1:4]}, in the file {theirs[name][1:4]}")

    def _record(self, slot):
        """A slot's record, or None; and what is wrong with it, or None."""
        b = bytes(_read(self._fd, 72, (2 + slot) * BLOCK))
        (word,) = struct.unpack("<Q", b[64:])
        if word == 0:
            return None, None
        magic, owner, number, sequence, step, length, sum_ = struct.unpack(_RECORD, b[:64])
        if hash64(b[:64]) | 1 != word or magic != b"EVKLRECD" or owner != self.id or number != slot or not 64 <= length <= self._manifest_size:
            return None, f"slot {slot}: commit record: checksum differs"
        return (sequence, step, length, sum_), None

    def restore(self):
        """Fills the tensors from the newest checkpoint that verifies. None: nothing was saved yet.

        Corrupt: something was, and none of it verifies; the tensors then hold anything. self.faults says what was
        damaged on the way.
        """
        self.wait()
        if self._named is None:
            raise Usage("opened without tensors")
        if self.ranks > 1:
            raise Usage("one rank's part of a set; restore it with the Go package, or export it first")
        self.faults = []
        found = []
        for slot in range(self.slots):
            record, fault = self._record(slot)
            self._slots[slot] = record
            if fault:
                self.faults.append(fault)
            if record:
                found.append((record[0], slot))
        for _, slot in sorted(found, reverse=True):
            try:
                state = self._load(slot, self._slots[slot])
                self._known = True
                return state
            except Corrupt as e:
                self.faults.append(f"slot {slot}: {e}")
                self._slots[slot] = None
        if self.faults:
            raise Corrupt(f"{self.path}: no slot verifies: {'; '.join(self.faults)}")
        self._known = True
        return None

    def _load(self, slot, record):
        sequence, step, length, want = record
        start = self._first + slot * self._size
        m = bytes(_read(self._fd, length, start + self._manifest_at))
        if hash64(m) != want:
            raise Corrupt("manifest: checksum differs")
        magic, owner, seq, at_step, cursor, arrays, scalars, random, _ = struct.unpack_from("<8s16sQQQIIII", m)
        if magic != b"EVKLMANI" or owner != self.id or (seq, at_step) != (sequence, step) or arrays != len(self.entries):
            raise Corrupt("manifest: of another checkpoint than its record")
        hashes = struct.unpack_from(f"<{arrays}Q", m, 64)
        at, values = 64 + 8 * arrays, {}
        for _ in range(scalars):
            (n,) = struct.unpack_from("<H", m, at)
            values[m[at + 2 : at + 2 + n].decode()] = struct.unpack_from("<d", m, at + 2 + n)[0]
            at += 10 + n
        if len(m) != at + random:
            raise Corrupt("manifest: length differs")
        for e, h in zip(self.entries, hashes):
            t = self._named[e.name][0]
            here = t if t.device.type == "cpu" else torch.empty(t.shape, dtype=t.dtype)
            view = _bytes(here)
            got = 0
            while got < e.length:
                n = os.preadv(self._fd, [view[got : got + (1 << 30)]], start + e.offset + got)
                if n == 0:
                    raise Corrupt(f"tensor {e.name!r}: the file ends")
                got += n
            if hash64(view) != h:
                raise Corrupt(f"tensor {e.name!r}: checksum differs")
            if here is not t:
                t.copy_(here)
        return State(step, cursor, m[at:], values)

    def save(self, step, cursor=0, random=b"", scalars=None):
        """Saves all tensors in the background. Call ready() before you change them, wait() to know it is durable.

        It waits where the save before is not done. Tells the error of an earlier save.
        """
        self._fits(random, scalars)
        self.begin(step)
        self.write(*(e.name for e in self.entries))
        self.commit(cursor, random, scalars)

    def begin(self, step):
        """Begins the save of a step: then write() every tensor as soon as it is updated, and commit().

        It waits where the save before is not done. Tells the error of an earlier save.
        """
        if self._thread is None:
            raise Usage("opened for reading only")
        if self._open is not None:
            raise Usage(f"the save of step {self._open[2]} was neither committed nor aborted")
        self.wait()
        if not self._known:
            raise Usage("the file holds checkpoints; restore first")
        newest = max((r[0] for r in self._slots if r), default=0)
        free = [i for i in range(self.slots) if i not in self._poisoned and not (self._slots[i] and self._slots[i][0] == newest)]
        if self.slots - len(self._poisoned) < 2 or not free:
            raise CheckpointError(f"{self.path}: too few slots reach the storage; move to a sound disk")
        slot = min(free, key=lambda i: self._slots[i][0] if self._slots[i] else 0)
        self._sequence += 1
        self._open = (slot, self._sequence, step, set())
        self._idle.clear()
        self._jobs.put(("begin", slot))

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
            data = _bytes(t if t.device.type == "cpu" else t.detach().cpu())
            if kind == BUFFER:
                data = bytes(data)
            self._open[3].add(name)
            with self._changed:
                self._reading.add(name)
            self._jobs.put(("write", name, data))

    def written(self):
        """The names written to the save that was begun."""
        return set(self._open[3]) if self._open else set()

    def commit(self, cursor=0, random=b"", scalars=None):
        """Completes the save in the background. Every tensor is to be written, or Usage names one that was not."""
        if self._open is None:
            raise Usage("commit before begin")
        missing = [e.name for e in self.entries if e.name not in self._open[3]]
        try:
            named = self._fits(random, scalars)
            if missing:
                raise Usage(f"tensor {missing[0]!r} was not written")
        except Usage:
            self.abort()
            raise
        slot, sequence, step, _ = self._open
        self._open = None
        self._jobs.put(("commit", slot, sequence, step, cursor, bytes(random), named))

    def abort(self):
        """Gives up a save that was begun."""
        if self._open is not None:
            self._jobs.put(("abort", self._open[0]))
            self._open = None

    def _fits(self, random, scalars):
        named = sorted((k.encode(), float(v)) for k, v in (scalars or {}).items())
        if 64 + 8 * len(self.entries) + sum(10 + len(k) for k, _ in named) + len(random) > self._manifest_size:
            raise Usage("no room for random and scalars; create the file with more state_bytes")
        return named

    def ready(self, *names):
        """Waits until these tensors may be changed, or all of them."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._reading & set(names) if names else self._reading))

    def wait(self):
        """Waits until the save under way is durable, and raises its error."""
        self._idle.wait()
        if self._failure:
            e, self._failure = self._failure, None
            raise e

    def _work(self):
        hashes, error = {}, None
        while True:
            kind, *job = self._jobs.get()
            try:
                if kind == "close":
                    return
                if kind == "begin":
                    hashes, error = {}, None
                    self._free(*job)
                elif kind == "write" and error is None:
                    name, data = job
                    e = self._index[name]
                    hashes[name] = hash64(data)
                    _write(self._fd, data, self._first + slot * self._size + e.offset)
                elif kind == "commit" and error is None:
                    self._commit(*job, [hashes[e.name] for e in self.entries])
            except BaseException as e:  # raised by the next call
                error = e
            if kind == "begin":
                slot = job[0]
            elif kind == "write":
                with self._changed:
                    self._reading.discard(job[0])
                    self._changed.notify_all()
            else:
                if error is not None:
                    self._poisoned.add(slot)
                    self._failure = error
                self._idle.set()

    # _free and _commit are the commit order of docs/reference/formats/checkpoint.md.

    def _free(self, slot):
        self._slots[slot] = None
        _write(self._fd, bytes(8), (2 + slot) * BLOCK + 64)
        os.fdatasync(self._fd)

    def _commit(self, slot, sequence, step, cursor, random, scalars, hashes):
        fd, record, start = self._fd, (2 + slot) * BLOCK, self._first + slot * self._size
        m = struct.pack("<8s16sQQQIIII", b"EVKLMANI", self.id, sequence, step, cursor, len(hashes), len(scalars), len(random), 0)
        m += struct.pack(f"<{len(hashes)}Q", *hashes)
        for name, value in scalars:
            m += struct.pack("<H", len(name)) + name + struct.pack("<d", value)
        m += random
        _write(fd, m, start + self._manifest_at)
        os.fdatasync(fd)
        body = struct.pack(_RECORD, b"EVKLRECD", self.id, slot, sequence, step, len(m), hash64(m))
        _write(fd, body, record)
        _write(fd, struct.pack("<Q", hash64(body) | 1), record + 64)
        os.fdatasync(fd)
        self._slots[slot] = (sequence, step, len(m), hash64(m))

    def close(self):
        """Waits for the save under way and closes the file."""
        if self._fd is None:
            return
        if self._thread is not None:
            self.abort()
            self._jobs.put(("close",))
            self._thread.join()
        os.close(self._fd)
        self._fd = None
        if self._failure:
            e, self._failure = self._failure, None
            raise e
