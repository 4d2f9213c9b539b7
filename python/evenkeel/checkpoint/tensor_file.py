"""A checkpoint file of named tensors. The file has a fixed size. Once a save is durable, a crash leaves a complete checkpoint in it.

CPU tensors are written from their own memory. save() copies buffers, GPU tensors, non-contiguous tensors and small ones.
"""

import atexit
import collections
import contextlib
import os
import stat
import time
import weakref

import torch

from .file import creation, transfer
from .file.device_copy import Staging
from .file.errors import CheckpointError, Format, Schema, Usage
from .file.layout import BLOCK, BUFFER, MAX_NAME, Record, memory, plain, sample, stored, write_notes
from .file.writer import Writer


def create(path, named, slots=3, state_bytes=64 << 10, rank=0, ranks=1, id=None):
    """Creates a file for tensors (name -> (tensor, kind)) and opens it. The file must not exist. rank, ranks, id: the file is one of several that
    ranks write together, see Job."""
    return Checkpoint(path, creation.make(path, named, slots, state_bytes, rank, ranks, id), named, True, True)


def open_(path, named=None, read_only=False):
    """Opens a file. If tensors are given and differ from the file's, it raises Schema with the first difference."""
    fd = os.open(path, os.O_RDONLY if read_only else os.O_RDWR)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Format(f"{path}: not a regular file")
        if not read_only:
            creation.lock(fd, path)
        return Checkpoint(path, fd, named, not read_only)
    except BaseException:
        os.close(fd)
        raise


_open_files = weakref.WeakSet()


def _in_child():
    """Closes the files in a forked process, such as a worker of a DataLoader. Otherwise their locks would outlive a killed job."""
    for ck in list(_open_files):
        ck._let_go()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _at_exit():
    """Completes the saves of a program that closes nothing."""
    with contextlib.ExitStack() as stack:
        for ck in list(_open_files):
            stack.callback(ck.close)


class Checkpoint(Writer):
    """An open file, returned by create and open_."""

    def __init__(self, path, fd, named, writes, new=False):
        self._open = None  # the save that was begun: slot, sequence number, step, names written
        self._staging = Staging()
        self._left = None  # when commit() was called, until the tensors are needed again
        super().__init__(path, fd, named, writes, new)
        _open_files.add(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close()

    def save(self, step, cursor=0, random=b"", scalars=None, nonce=0):
        """Saves all tensors in the background. Call ready() before you change them. After wait() the save is durable.

        It waits for the last save, and raises the error of an earlier save."""
        self._fits(step, cursor, random, scalars)
        self.begin(step)
        try:
            self.write(*(e.name for e in self.entries))
        except BaseException:
            self.abort()
            raise
        self.commit(cursor, random, scalars, nonce)

    def begin(self, step):
        """Begins the save of a step. Then call write() for every tensor as soon as it is updated, and commit().

        It waits for the last save, and raises the error of an earlier save."""
        if self._thread is None:
            raise Usage("opened for reading only")
        if self._open is not None:
            raise Usage(f"the save of step {self._open[2]} was neither committed nor aborted")
        self._numbers(step, 0)
        self.wait()
        if not self._known:
            raise Usage("the file has checkpoints or is damaged; restore first")
        if self.slots - len(self._poisoned) < 2:
            raise CheckpointError(f"{self.path}: too few slots left that can be trusted; move the file to another disk")
        slot = self._choose()
        if slot is None:
            raise Usage("no slot is free: their checkpoints may be missing on other ranks; call acknowledge")
        self._sequence += 1
        self._open = (slot, self._sequence, step, set())
        self._idle.clear()
        self._hurry.clear()
        self._jobs.put(("begin", slot))

    def write(self, *names):
        """Adds tensors to the present save and returns at once. Call ready(name) before you change a tensor. Buffers are copied, because the
        forward pass changes them."""
        if self._open is None:
            raise Usage("write before begin")
        taken, watched = collections.deque(), {}
        try:
            for name in names:
                if name not in self._index:
                    raise Schema(f"{self.path}: tensor {name!r} is not in the file")
                if name in self._open[3]:
                    raise Usage(f"tensor {name!r} was written already")
                t = self._named[name][0]
                source, event = self._source(name, *self._named[name])
                if source is t or event is not None:
                    watched[name] = (t, t._version, sample(t))
                self._open[3].add(name)
                taken.append((name, source, event))
        finally:  # together: each use of the lock or the queue may wake the writer
            with self._changed:
                self._reading.update(name for name, source, _ in taken if name in watched and source is watched[name][0])
                self._watched.update(watched)
            if taken:
                self._jobs.put(("write", taken))

    def _source(self, name, t, kind):
        """The source of a tensor's bytes: the tensor if its memory has the stored form, else a copy; and the event of a GPU's copy."""
        source, event = t, None
        if t.is_cuda and not t.is_complex() and not t.is_neg():
            source, event = self._staging.copy(name, t.detach())
        elif not plain(t):
            source = memory(stored(t))
        length = source.numel() * source.element_size() if torch.is_tensor(source) else len(source)
        if length != self._index[name].length:
            raise Schema(f"{self.path}: tensor {name!r} has {length} bytes, in the file {self._index[name].length}")
        if event is None and (kind == BUFFER or length < BLOCK):
            source = bytes(memory(t) if source is t else source)
        return source, event

    def written(self):
        """The names of the tensors in the present save."""
        return set(self._open[3]) if self._open else set()

    def commit(self, cursor=0, random=b"", scalars=None, nonce=0):
        """Completes the save in the background. nonce: of 31 bits, the same in the files of all ranks. Raises Usage if a tensor was not written."""
        if self._open is None:
            raise Usage("commit before begin")
        missing = [e.name for e in self.entries if e.name not in self._open[3]]
        try:
            named = self._fits(self._open[2], cursor, random, scalars)
            if missing:
                raise Usage(f"tensor {missing[0]!r} was not written")
        except BaseException:
            self.abort()
            raise
        slot, sequence, step, _ = self._open
        self._open = None
        self._left = time.monotonic()
        self._jobs.put(("commit", slot, sequence, step, cursor, bytes(random), named, nonce))

    def abort(self):
        """Discards the save that was begun."""
        if self._open is not None:
            self._jobs.put(("abort", self._open[0]))
            self._open = None

    def _numbers(self, step, cursor):
        for what, v in (("step", step), ("cursor", cursor)):
            if not isinstance(v, int) or isinstance(v, bool) or not 0 <= v < 1 << 64:
                raise Usage(f"{what} is {v!r}, must be a whole number from 0 to 2**64 - 1")

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
            raise Usage(f"the manifest with random and scalars needs {need} bytes, the file has room for {self._manifest_size}; create it with more state_bytes")
        return named

    def ready(self, *names):
        """Waits until these tensors may be changed, or all of them."""
        self._wanted(time.monotonic())
        self._staging.before_change(*names)
        with self._changed:
            wanted = set(names)
            self._changed.wait_for(lambda: self._reading.isdisjoint(wanted) if names else not self._reading)
            for name in names or list(self._watched):
                self._watched.pop(name, None)

    def _wanted(self, now):
        """Ends the spreading of the save, because a thread waits for it."""
        self._hurry.set()
        if self._thread is not None and not self._idle.is_set():
            transfer.foreground(self._thread.native_id)
        if self._left is not None:
            self._quiet = self._quiet[-7:] + [now - self._left]
            self._left = None

    def wait(self):
        """Waits until the present save is durable, and raises its error."""
        if self._fd is None:
            raise Usage("the file is closed")
        if self._open is not None:
            raise Usage(f"the save of step {self._open[2]} was neither committed nor aborted")
        if not self._idle.is_set():
            self._wanted(time.monotonic())
        self._idle.wait()
        with self._changed:
            self._watched.clear()
        if self._failure:
            e, self._failure = self._failure, None
            raise e

    def acknowledge(self, step):
        """Call it when all ranks have committed a step. Slots of older steps may then be reused."""
        found = [r.sequence for r in self._slots if r and r.step == step]
        if not found:
            raise Usage(f"{self.path}: step {step} was acknowledged but not committed here")
        self._all = max(self._all, *found)

    def give_up_after(self, step, nonce=None):
        """Frees the slots of all checkpoints newer than a step's, or than the one of it with a nonce: they are not part of the resumed run."""
        self.wait()
        mine = (r for slot, r in enumerate(self._slots) if r and r.step == step and nonce in (None, self._manifest(slot, r)[0].nonce))
        newest = max(mine, default=Record(0, 0, 0, 0))
        if self._note.sequence > newest.sequence:
            note = self._note._replace(generation=self._note.generation + 1, sequence=newest.sequence, step=newest.step)
            if note.all_sequence > newest.sequence:
                note = note._replace(all_sequence=0, all_step=0)
            os.fdatasync(self._fd)  # one copy of the note is durable before the other is written
            write_notes(self._fd, self.id, self.slots, note)
            os.fdatasync(self._fd)
            self._note = note
        for slot, r in enumerate(self._slots):
            if r and r.sequence > newest.sequence:
                self._free(slot)

    def _let_go(self):
        """Closes only the descriptors."""
        if self._fd is not None:
            self._access.let_go()
            os.close(self._fd)
            self._fd = None

    def close(self):
        """Waits for the present save and closes the file."""
        if self._fd is None:
            return
        if self._thread is not None:
            self.abort()
            self._jobs.put(("close",))
            self._thread.join()
            if self._note.sequence:
                try:
                    os.fdatasync(self._fd)  # only the note is not durable yet, and checkpoints do not need it
                except OSError:
                    pass
        self._access.close()
        os.close(self._fd)
        self._fd = None
        if self._failure:
            e, self._failure = self._failure, None
            raise e
