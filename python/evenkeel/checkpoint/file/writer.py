"""Writes checkpoints in the background, in the commit order of docs/reference/formats/checkpoint.md."""

import itertools
import os
import queue
import struct
import threading
import time
import warnings

import torch

from . import transfer
from .errors import Usage
from .layout import BLOCK, PARAMETER, Record, hash64, marker, memory, sample, sign, write_at, write_notes, write_record
from .reader import Reader


class Writer(Reader):
    """An open file with a thread that frees slots, writes arrays and commits, in the order of its queue."""

    def __init__(self, path, fd, named, writes, new=False):
        super().__init__(path, fd, named, writes)
        self._sequence = max([self._note.sequence] + [r.sequence for r in self._slots if r])
        self._all = 0  # sequence number of the newest checkpoint that all ranks have
        # Slots beyond the end of the file are not written: their blocks are not reserved.
        self._poisoned = {i for i in range(self.slots) if self._first + (i + 1) * self._size > self._bytes}
        self._clean = set(range(self.slots)) if new else set()
        self._failure = None
        self._idle = threading.Event()
        self._idle.set()
        self._index = {e.name: e for e in self.entries}
        self._shared_at = next((a.offset for a, b in itertools.pairwise(self.entries) if b.offset % BLOCK), self._manifest_at)
        self._shared = bytearray(self._manifest_at - self._shared_at if writes else 0)  # arrays that share blocks, written together
        self._held = [{} for _ in range(self.slots)]  # name -> hash of what this process has left in each slot
        self._last_hashes, self._same = {}, set()  # of the last save; names whose hash was that of the save before
        self._reading = set()  # names that the save has not read yet
        self._watched = {}  # name -> (tensor, version, sample); tensors that are saved from their own memory, until ready()
        self._changed = threading.Condition()
        self._jobs = queue.Queue()
        self.took = None  # seconds of the newest save until it was durable
        self._hurry = threading.Event()  # a thread waits for the save
        self._quiet = []  # of recent saves: seconds from commit() until the tensors were needed again
        self._thread = None
        if writes:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _choose(self, busy=None):
        """A free slot, else the oldest slot that is older than the newest checkpoint of all ranks, else None."""
        newest = self._all if self.ranks > 1 else max((r.sequence for r in self._slots if r), default=0)
        usable = [i for i in range(self.slots) if i not in self._poisoned and i != busy]
        free = [i for i in usable if self._slots[i] is None]
        if free:
            return free[0]
        return min((i for i in usable if self._slots[i].sequence < newest), key=lambda i: self._slots[i].sequence, default=None)

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
                    begun = time.monotonic()
                    # Spread a save over half of the time in which recent saves were not waited for.
                    pace = transfer.Pace(sum(e.length for e in self.entries), 0.5 * min(self._quiet, default=0.0), self._hurry)
                    if slot in self._clean:
                        self._slots[slot] = None
                    else:
                        poison = True
                        self._free(slot)
                        poison = False
                elif kind == "write":
                    self._arrays(job[0], slot, None if error else hashes, pace)
                elif kind == "commit" and error is None:
                    # After a failed flush the kernel may have dropped data without saying so: do not use this slot again.
                    poison = True
                    if self._shared:
                        self._access.write(self._shared, self._first + slot * self._size + self._shared_at)
                    self._access.written()
                    self._commit(*job, [hashes[e.name] for e in self.entries])
                    poison = False
                    large = {e.name: hashes[e.name] for e in self.entries if e.offset < self._shared_at}
                    self._same, self._last_hashes = {n for n, h in large.items() if self._last_hashes.get(n) == h}, large
                    self._held[slot].update(large)
                    self.took = time.monotonic() - begun
            except Usage as e:  # the storage is not at fault
                error, poison = e, False
            except BaseException as e:  # the next call raises it
                error = e
            if kind not in ("begin", "write"):
                if kind == "abort" or error is not None:
                    self._access.discard()
                if error is not None:
                    if poison:
                        self._poisoned.add(slot)
                    self._failure = error
                self._idle.set()

    def _arrays(self, arrays, slot, hashes, pace):
        """Writes arrays, (name, tensor or bytes, event of its copy) each. hashes is None if the save has failed already."""
        fault = None
        while arrays:
            name, source, event = arrays.popleft()
            if hashes is not None and fault is None:
                try:
                    hashes[name] = self._array(name, source, event, slot, pace)
                except BaseException as e:
                    fault = e
            source = None  # noqa: F841  keep no reference to the tensor's memory
            with self._changed:
                self._reading.discard(name)
                self._changed.notify_all()
        if fault is not None:
            raise fault

    def _array(self, name, source, event, slot, pace):
        if event is not None:
            event.synchronize()
            self._unchanged(name)
        data, e = memory(source) if torch.is_tensor(source) else source, self._index[name]
        if len(data) != e.length:
            raise Usage(f"tensor {name!r} was resized while it was being saved; call ready() first. The save is given up")
        if e.offset >= self._shared_at:
            copy = memoryview(self._shared)[e.offset - self._shared_at :][: e.length]
            copy[:] = data
            h = hash64(copy)
        else:
            h = transfer.digest(data, pace) if name in self._same else None
            if h is None or h != self._held[slot].get(name):  # what a slot holds already, such as frozen parameters, is not written again
                self._held[slot].pop(name, None)
                h = self._access.write(data, self._first + slot * self._size + e.offset, pace)
        self._unchanged(name)
        return h

    def _priority(self):
        """Gives the writer a low priority, unless a thread waits for it already."""
        if not self._hurry.is_set():
            transfer.background()
        if self._hurry.is_set():
            transfer.foreground(self._thread.native_id)

    def _unchanged(self, *names):
        """Raises Usage if a tensor was changed while it was saved: the save would mix two steps."""
        with self._changed:
            for name in names or list(self._watched):
                t, *before = self._watched.get(name, (None,))
                if t is not None and [t._version, sample(t)] != before:
                    raise Usage(f"tensor {name!r} was changed while it was being saved; call ready() before optimizer.step(). The save is given up")

    # _free and _commit are the commit order of docs/reference/formats/checkpoint.md.

    def _mark_free(self, slot):
        self._slots[slot] = None
        write_record(self._fd, (2 + slot) * BLOCK, *marker(self.id, slot, self._note))

    def _free(self, slot):
        self._clean.discard(slot)
        self._mark_free(slot)
        os.fdatasync(self._fd)
        self._clean.add(slot)

    def _commit(self, slot, sequence, step, cursor, random, scalars, nonce, hashes):
        fd, start = self._fd, self._first + slot * self._size
        parameters = tuple(h for e, h in zip(self.entries, hashes) if e.kind == PARAMETER)
        if self._last and parameters and parameters == self._last[2] and step > self._last[0]:
            said = f"{self.path}: no parameter changed between the saves of steps {self._last[0]} and {step}; do you save the model that you train?"
            warnings.warn(said, stacklevel=1)
        later = self._note.sequence > 0
        m = struct.pack("<8s16sQQQIIII", b"EVKLMANI", self.id, sequence, step, cursor, len(hashes), len(scalars), len(random), nonce << 1 | later)
        m += struct.pack(f"<{len(hashes)}Q", *hashes)
        for name, value in scalars:
            m += struct.pack("<H", len(name)) + name + struct.pack("<d", value)
        m += random
        self._clean.discard(slot)
        write_at(fd, m, start + self._manifest_at)
        os.fdatasync(fd)
        self._unchanged()
        body, word = sign(b"EVKLRECD", self.id, slot, sequence, step, len(m), hash64(m))
        write_record(fd, (2 + slot) * BLOCK, body, word)
        following = self._choose(busy=slot)  # it is freed with this commit, so that the next save needs no flush for that
        if following in self._clean:
            following = None
        if following is not None:
            self._mark_free(following)
        os.fdatasync(fd)
        if following is not None:
            self._clean.add(following)
        self._slots[slot] = Record(sequence, step, len(m), hash64(m))
        self._last = (step, cursor, parameters)
        note = self._note._replace(generation=self._note.generation + 1, sequence=sequence, step=step)
        found = [r for r in self._slots if r and r.sequence == self._all]
        if found and self._all > note.all_sequence:
            note = note._replace(all_sequence=self._all, all_step=found[0].step)
        write_notes(fd, self.id, self.slots, note)
        self._note = note
