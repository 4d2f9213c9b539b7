"""Reads and writes the bytes of arrays in pieces. A piece is hashed while it is in the processor's cache. Large files are written
past the kernel's page cache, and a save may be spread over some time."""

import contextlib
import ctypes
import fcntl
import os
import struct
import threading
import time

from xxhash import xxh3_64

from .direct_io import BLOCK, Direct
from .layout import write_at

PIECE = 1 << 20  # fits in the processor's cache between hash and copy
PAST_FROM = 256 << 20  # room in slots from which on a file is written past the page cache

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2
_DAX = 0x200000  # STATX_ATTR_DAX


def _write_back(fd, at, n):
    """Asks the kernel to begin writing, so that little is left for the flush. The flush reports errors."""
    _libc.sync_file_range(fd, ctypes.c_int64(at), ctypes.c_int64(n), _SYNC_FILE_RANGE_WRITE)


def background():
    """Gives the calling thread a low priority for CPU and disk."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + 10))
        ioprio_set = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
        if ioprio_set:
            _libc.syscall(ioprio_set, 1, 0, 2 << 13 | 7)  # this thread: best-effort class, lowest level
    except OSError:
        pass


def foreground(thread):
    """Undoes background() for a thread if the system allows it (this needs CAP_SYS_NICE)."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, os.getpid()))
    except OSError:
        pass


class Pace:
    """Spreads a transfer evenly over some seconds. hurry: an Event that is set while a thread waits for the transfer."""

    _LEAST = 0.002  # seconds: shorter pauses cost more CPU time than they are worth

    def __init__(self, total, seconds, hurry, clock=time.monotonic):
        self._total, self._seconds, self._hurry, self._clock = max(total, 1), seconds, hurry, clock
        self._begun, self._done = clock(), 0

    def moved(self, n):
        self._done += n
        ahead = self._seconds * self._done / self._total - (self._clock() - self._begun)
        if ahead >= self._LEAST and not self._hurry.is_set():
            self._hurry.wait(ahead)


def _hashing(view, pace=None):
    """Returns a hash, and a function that adds the next n bytes of the view to it."""
    h, done = xxh3_64(), 0

    def add(n):
        nonlocal done
        h.update(view[done : done + n])
        done += n
        if pace:
            pace.moved(n)

    return h, add


def digest(data, pace):
    """The hash of an array that need not be written again."""
    h, add = _hashing(memoryview(data), pace)
    for _ in range(0, len(data), PIECE):
        add(PIECE)
    return h.intdigest()


def attributes(fd):
    """The file's STATX_ATTR_* bits (man 2 statx), 0 where the system has none."""
    out = ctypes.create_string_buffer(256)
    return struct.unpack_from("=Q", out, 8)[0] if hasattr(_libc, "statx") and _libc.statx(fd, b"", 0x1000, 0, out) == 0 else 0  # AT_EMPTY_PATH


class File:
    """Reads and writes the arrays of one open file."""

    def __init__(self, fd, past=False):
        """past: write past the page cache, where the file system supports that. On persistent memory mounted with DAX a write goes into it as it is."""
        self.fd, self.direct = fd, None
        if past and not attributes(fd) & _DAX:
            with contextlib.suppress(OSError):
                self.direct = Direct(fd)

    def write(self, data, at, pace=None):
        """Writes an array at the beginning of a block and returns its hash. The write may be pending until written()."""
        view = memoryview(data)
        h, add = _hashing(view, pace)
        if self.direct:
            self.direct.write(view, at, add)
            return h.intdigest()
        for begin in range(0, len(view), PIECE):
            piece = view[begin : begin + PIECE]
            add(len(piece))
            write_at(self.fd, piece, at + begin)
            if len(piece) >= BLOCK:
                _write_back(self.fd, at + begin, len(piece))
        return h.intdigest()

    def read(self, view, at):
        """Fills the view and returns the hash of what was read. Raises EOFError if the file ends."""
        h, add = _hashing(view)
        begin = 0
        while begin < len(view):
            n = os.preadv(self.fd, [view[begin : begin + PIECE]], at + begin)
            if n == 0:
                raise EOFError
            add(n)
            begin += n
        return h.intdigest()

    def written(self):
        """Waits until the kernel has all data from write(), and raises its errors. Data is durable only after a flush."""
        if self.direct:
            self.direct.written()

    def discard(self):
        """Discards the data of write(). No write is pending afterwards."""
        if self.direct:
            self.direct.discard()

    def let_go(self):
        """Closes the descriptor in a forked process. The requests belong to the parent."""
        if self.direct:
            os.close(self.direct.fd)

    def close(self):
        if self.direct:
            self.direct.close()
            self.direct = None


_COPY_ON_WRITE = {0x9123683E: "btrfs", 0x2FC12FC1: "ZFS", 0xCA451A4E: "bcachefs", 0x3434: "NILFS"}
_GETFLAGS, _SETFLAGS, _NOCOW = 0x80086601, 0x40086602, 0x00800000


def write_in_place(fd):
    """Asks the file system to write this empty file in place (btrfs: chattr +C). Returns its name if it copies on write all the same."""
    out = ctypes.create_string_buffer(256)
    if _libc.fstatfs(fd, out):
        return None
    name = _COPY_ON_WRITE.get(struct.unpack_from("l", out)[0] & 0xFFFFFFFF)
    if name == "btrfs":
        try:
            flags = struct.unpack("l", fcntl.ioctl(fd, _GETFLAGS, bytes(8)))[0]
            fcntl.ioctl(fd, _SETFLAGS, struct.pack("l", flags | _NOCOW))
            return None
        except OSError:
            pass
    return name
