"""Reads the superblocks, the table and the record pages of a checkpoint file. A damaged file is never taken for an empty one."""

import math
import os
import struct
import sys

from .errors import CheckpointError, Corrupt, Format, Schema
from .layout import BLOCK, MAX_ARRAYS, MAX_DIMS, MAX_NAME, NOTE, NOTE_AT, RECORD, SIZES, SUPER, TORCH, VERSIONS, Entry, Note, Record, align, describe, hash64, read_at


class Pages:
    """An open checkpoint file."""

    def __init__(self, path, fd, named):
        self.path, self._fd, self._named = path, fd, named
        self._bytes = os.fstat(fd).st_size
        self._head()
        self.compare(named)

    def _head(self):
        if self._bytes < BLOCK and bytes(read_at(self._fd, min(self._bytes, 8), 0)) != b"EVKLCKPT":
            raise Format(f"{self.path}: not a checkpoint file")
        fault, found = None, []
        for copy in range(2):
            try:
                found.append(self._copy(copy))
            except CheckpointError as e:
                fault = fault or (e if str(e).startswith(self.path) else Corrupt(f"{self.path}: {e}"))
        if not found:
            raise fault
        if len(found) == 2 and found[0] != found[1]:  # the right one has the id of the record pages
            votes = [sum(self._owned(head[2], slot) for slot in range(head[5])) for head in found]
            if votes[0] == votes[1]:
                raise Corrupt(f"{self.path}: superblocks A and B belong to different files")
            found = [found[votes.index(max(votes))]]
        (_, _, self.id, self.rank, self.ranks, self.slots, count, *_, first, size, at, room, self._total), table = found[0][:-1], found[0][-1]
        self._first, self._size, self._manifest_at, self._manifest_size = first, size, at, room
        self._parse(table, count)

    def _owned(self, id_, slot):
        try:
            b = bytes(read_at(self._fd, 24, (2 + slot) * BLOCK))
        except Corrupt:
            return False
        return b[:4] == b"EVKL" and b[8:24] == id_

    def _copy(self, copy):
        """The fields of a superblock, and its table."""
        b = bytes(read_at(self._fd, 128, copy * BLOCK))
        f = struct.unpack(SUPER, b[:120])
        if f[0] != b"EVKLCKPT":
            raise Format(f"{self.path}: not a checkpoint file")
        good = hash64(b[:120]) == struct.unpack("<Q", b[120:])[0]
        if f[1] not in VERSIONS and (good or f[1] < 1 << 16):
            raise Format(f"{self.path}: version {f[1]}; evenkeel.checkpoint reads versions {VERSIONS}")
        if int.from_bytes(b[12:16], sys.byteorder) == 0x04030201:
            raise Format(f"{self.path}: written on a machine with the other byte order")
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
                table = bytes(read_at(self._fd, length, at))
                if hash64(table) == want:
                    return f[1:] + (table,)
        raise Corrupt(f"{self.path}: both tables are damaged")

    def _parse(self, table, count):
        self.entries = []
        try:
            at = end = 0  # a block is shared by arrays smaller than one only
            for _ in range(count):
                (n,) = struct.unpack_from("<H", table, at)
                name = table[at + 2 : at + 2 + n].decode()
                dtype, kind, dims = table[at + 2 + n : at + 5 + n]
                *shape, offset, length = struct.unpack_from(f"<{dims}QQQ", table, at + 5 + n)
                known = 1 <= n <= MAX_NAME and 1 <= dtype < len(SIZES) and 1 <= kind <= 3 and dims <= MAX_DIMS
                if not known or offset < end or offset % BLOCK and (length >= BLOCK or offset != align(end, 16)) or math.prod(shape) * SIZES[dtype] != length or offset + length > self._manifest_at:
                    raise Format(f"{self.path}: array {name!r} is invalid")
                self.entries.append(Entry(name, dtype, kind, tuple(shape), offset, length))
                at, end = at + 5 + n + 8 * dims + 16, offset + align(length, 1 if length < BLOCK else BLOCK)
        except (struct.error, ValueError, IndexError) as e:
            raise Format(f"{self.path}: table of arrays: {e}") from None
        if len({e.name for e in self.entries}) != count:
            raise Format(f"{self.path}: table of arrays: a name occurs twice")

    def compare(self, named):
        """Raises Schema for the first tensor that differs from the file's."""
        if named is None:
            return
        mine = {e.name: e for e in describe(named)[0]}
        theirs = {e.name: e for e in self.entries}
        for name in list(mine) + list(theirs):
            if name not in theirs:
                raise Schema(f"{self.path}: tensor {name!r} is not in the file; is this another model?")
            if name not in mine:
                raise Schema(f"{self.path}: array {name!r} of the file is not in the program; is this another model?")
            a, b = mine[name], theirs[name]
            if a[1:4] != b[1:4]:
                raise Schema(f"{self.path}: tensor {name!r} is {TORCH.get(a.dtype)} of kind {a.kind} and shape {a.shape}, in the file {TORCH.get(b.dtype)} of kind {b.kind} and shape {b.shape}")

    def _pages(self):
        """For each slot (record or None, fault or None); the newest note; a list of other damage."""
        pages, note, damage = [], Note(0, 0, 0, 0, 0), []
        for slot in range(self.slots):
            try:
                b = bytes(read_at(self._fd, 3 * NOTE_AT, (2 + slot) * BLOCK))
                pages.append((self._record(b, slot), None))
            except Corrupt as e:
                pages.append((None, f"slot {slot}: {e}"))
                if "ends at" in str(e) and self._bytes < (3 + slot) * BLOCK:
                    continue
            copies = [self._note_of(b, slot, at) for at in (NOTE_AT, 2 * NOTE_AT)]
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
        magic, owner, number, *rest = struct.unpack(NOTE, c[:72])
        return Note(*rest) if magic == b"EVKLNOTE" and owner == self.id and number == slot else None

    def _record(self, b, slot):
        """The record of a page, or None if the slot is free. Raises Corrupt if it is neither."""
        if self._first + (slot + 1) * self._size > self._bytes:
            raise Corrupt(f"the file ends at byte {self._bytes}, within the slot")
        (word,) = struct.unpack("<Q", b[64:72])
        magic, owner, number, sequence, step, length, sum_ = struct.unpack(RECORD, b[:64])
        ours = owner == self.id and number == slot
        if word and hash64(b[:64]) | 1 != word:
            raise Corrupt("commit record: checksum differs")
        if not ours or magic not in (b"EVKLRECD", b"EVKLFREE"):
            raise Corrupt("commit record: not of this file and slot")
        if word == 0 or magic == b"EVKLFREE":
            return None
        if sequence == 0 or not 64 <= length <= self._manifest_size:
            raise Corrupt("commit record: its numbers are impossible")
        return Record(sequence, step, length, sum_)

    def _empty_fault(self):
        """None if the file never had a checkpoint for certain, else the reason for doubt."""
        pages, note, damage = self._pages()
        faults = [f for _, f in pages if f] + damage
        if faults:
            return "; ".join(faults)
        if any(r for r, _ in pages):
            return "it holds checkpoints"
        if note.sequence:
            return f"the save of step {note.step} was reported, and its record is gone"
        for slot in range(self.slots):
            m = bytes(read_at(self._fd, 64, self._first + slot * self._size + self._manifest_at))
            if m[:8] == b"EVKLMANI" and m[8:24] == self.id and m[60] & 1:
                step = struct.unpack_from("<Q", m, 32)[0]
                return f"no record says that anything was saved, but slot {slot} holds the manifest of step {step}; if no save ever finished, move the file away"
        return None
