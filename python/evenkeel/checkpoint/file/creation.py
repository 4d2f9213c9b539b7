"""Creates checkpoint files. A file gets its name when all of its contents are durable."""

import errno
import fcntl
import os
import struct
import sys
import warnings

from . import transfer
from .errors import Locked, Usage
from .layout import BLOCK, MAX_STATE, SLOT_ALIGN, SUPER, VERSIONS, Note, align, describe, encode_table, flush_folder, hash64, marker, write_at, write_notes, write_record


def lock(fd, path):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path}: another process has it open for writing") from None


def make(path, named, slots, state_bytes, rank, ranks, id):
    """Creates a file for checkpoint.create. Returns the descriptor of the locked file."""
    if not 2 <= slots <= 16:
        raise Usage(f"slots is {slots}, must be 2 to 16")
    if not 0 <= state_bytes <= MAX_STATE:
        raise Usage(f"state_bytes is {state_bytes}, must be 0 to {MAX_STATE}")
    if not 0 <= rank < ranks or ranks > 1 and id is None:
        raise Usage(f"rank {rank} of {ranks}, with id {id}")
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists; open it, or choose another name", path)
    id = id or os.urandom(16)
    entries, manifest_at = describe(named)
    table = encode_table(entries)
    manifest_size = align(64 + 8 * len(entries) + state_bytes, BLOCK)
    slot_size = align(manifest_at + manifest_size, SLOT_ALIGN)
    first = align((2 + slots) * BLOCK, BLOCK)
    second = align(first + len(table), BLOCK)
    first_slot = align(second + len(table), SLOT_ALIGN)
    size = first_slot + slots * slot_size
    order = 0x01020304 if sys.byteorder == "little" else 0x04030201
    head = struct.pack(
        SUPER, b"EVKLCKPT", VERSIONS[any(e.offset % BLOCK for e in entries)], order, id, rank, ranks, slots, len(entries),
        len(table), hash64(table), first, second, first_slot, slot_size, manifest_at, manifest_size, size,
    )  # fmt: skip
    head += struct.pack("<Q", hash64(head))
    temporary = path + ".creating"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(fd, path)
        if not os.path.lexists(temporary) or not os.path.samestat(os.fstat(fd), os.stat(temporary)):
            raise Locked(f"{path}: another process has just created it")
    except BaseException:
        os.close(fd)  # the file belongs to the other process
        raise
    try:
        os.truncate(fd, 0)
        copying = transfer.write_in_place(fd)
        disk = os.fstatvfs(fd)
        if disk.f_bavail * disk.f_frsize < size:  # check first: reserving too much would fill the disk for a moment
            raise OSError(errno.ENOSPC, f"no space left on device for {size} bytes ({slots} slots of {slot_size}), {disk.f_bavail * disk.f_frsize} are free", path)
        os.posix_fallocate(fd, 0, size)
        os.fsync(fd)
        if copying:
            said = f"{path}: the file system is {copying}, which copies on write: saves are slower and can run out of space. ext4 and XFS write in place"
            warnings.warn(said, stacklevel=4)
        for data, at in ((table, first), (table, second), (head, 0), (head, BLOCK)):
            write_at(fd, data, at)
        note = Note(1, 0, 0, 0, 0)
        write_notes(fd, id, slots, note)
        for slot in range(slots):
            write_record(fd, (2 + slot) * BLOCK, *marker(id, slot, note))
        os.fsync(fd)
        os.link(temporary, path)  # a link never replaces another file
        os.unlink(temporary)
        flush_folder(path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.close(fd)
        raise
    return fd
