"""Reads checkpoints and verifies every byte."""

import contextlib
import functools
import struct

import torch

from . import transfer
from .errors import Corrupt, Usage
from .layout import PARAMETER, TORCH, State, hash64, memory, plain, read_at
from .pages import Pages
from .reads import Reads


class Reader(Pages):
    """An open file that restores its newest checkpoint that verifies."""

    def __init__(self, path, fd, named, writes):
        super().__init__(path, fd, named)
        self.faults = []  # the damage that restore found
        self._access = transfer.File(fd, writes and self.slots * self._size >= transfer.PAST_FROM)
        pages, self._note, _ = self._pages()
        self._slots = [record for record, _ in pages]  # Record or None
        self._known = self._empty_fault() is None
        self._last = None  # (step, cursor, hashes of the parameters) of the newest checkpoint
        self._clean = set()  # slots that are durably free

    def restore(self):
        """Fills the tensors from the newest checkpoint that verifies. Returns None if nothing was saved yet. Raises Corrupt if something was saved,
        or may have been, and nothing verifies; the contents of the tensors are then undefined. self.faults lists the damage."""
        if self._named is None:
            raise Usage("opened without tensors")
        if self.ranks > 1:
            raise Usage("the file of one rank of several; restore it with Job, with the Go package, or export it first")
        return self.load(lambda e: self._named[e.name][0])

    def load(self, into, step=None, names=None):
        """Restores like restore(), into the tensors that into(entry) returns. step: only this step. names: only these tensors."""
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
        """Reads the record pages again. Returns the records by slot."""
        pages, self._note, damage = self._pages()
        self._slots, self._clean = [r for r, _ in pages], set()
        self.faults = [f for _, f in pages if f] + damage
        return {slot: r for slot, (r, _) in enumerate(pages) if r}

    def at(self, step, nonce=None):
        """Verifies the manifest of a step's newest checkpoint, or of the one with a nonce. Returns its State, and a place for each array, which read()
        takes: (entry, hash, position of the slot). Raises Corrupt if the step is not in the file."""
        found = self._found()
        for _, slot in sorted(((r.sequence, slot) for slot, r in found.items() if r.step == step), reverse=True):
            state, hashes, start = self._manifest(slot, found[slot])
            if nonce in (None, state.nonce):
                return state, [(e, h, start) for e, h in zip(self.entries, hashes)]
        raise Corrupt(f"{self.path}: step {step} is gone")

    def read(self, place, t):
        """Reads and verifies an array at a place that at() returned. Several threads may read at the same time."""
        self._load_array(*place, t)

    def _load(self, slot, record, into, names):
        state, hashes, start = self._manifest(slot, record)
        wanted = [(e, h) for e, h in zip(self.entries, hashes) if names is None or e.name in names]
        with contextlib.closing(Reads({e.name: functools.partial(self._load_array, e, h, start, into(e)) for e, h in wanted})) as reads:
            reads.wait()
        parameters = tuple(h for e, h in zip(self.entries, hashes) if e.kind == PARAMETER)
        return state, parameters

    def _manifest(self, slot, record):
        start = self._first + slot * self._size
        m = bytes(read_at(self._fd, record.length, start + self._manifest_at))
        if hash64(m) != record.hash:
            raise Corrupt("manifest: checksum differs")
        magic, owner, seq, at_step, cursor, arrays, scalars, random, flags = struct.unpack_from("<8s16sQQQIIII", m)
        if magic != b"EVKLMANI" or owner != self.id or (seq, at_step) != record[:2] or arrays != len(self.entries):
            raise Corrupt("manifest: it belongs to another checkpoint than its record")
        hashes = struct.unpack_from(f"<{arrays}Q", m, 64)
        at, values = 64 + 8 * arrays, {}
        for _ in range(scalars):
            (n,) = struct.unpack_from("<H", m, at)
            values[m[at + 2 : at + 2 + n].decode()] = struct.unpack_from("<d", m, at + 2 + n)[0]
            at += 10 + n
        if len(m) != at + random:
            raise Corrupt("manifest: length differs")
        return State(at_step, cursor, m[at:], values, flags >> 1), hashes, start

    def _load_array(self, e, want, start, t):
        here = t if plain(t) else torch.empty(e.shape, dtype=TORCH[e.dtype])
        view = memory(here)
        try:
            got = self._access.read(view, start + e.offset)
        except EOFError:
            raise Corrupt(f"tensor {e.name!r}: the file ends") from None
        if got != want:
            raise Corrupt(f"tensor {e.name!r}: checksum differs")
        if here is not t:
            with torch.no_grad():
                t.copy_(torch.view_as_complex(here) if t.is_complex() else here)
