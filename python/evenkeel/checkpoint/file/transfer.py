"""Reads and writes the bytes of arrays in pieces. A piece is hashed while it is in the processor's cache. Data goes through the kernel's
page cache or past it, and a save may be spread over some time."""

import ctypes
import fcntl
import math
import os
import struct
import threading
import time

from xxhash import xxh3_64

from .direct_io import BLOCK, Direct
from .layout import hash64, write_at

PIECE = 1 << 20  # fits in the processor's cache between hash and copy
MEASURED = 32 << 20  # bytes of one measurement
_HINT = "<8sIHH"  # 16 bytes, then their hash

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2


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


class File:
    """Reads and writes the arrays of one open file."""

    def __init__(self, fd, writes, direct_write=False, direct_read=False):
        self.fd, self._direct = fd, None
        self.direct_write, self.direct_read = direct_write and writes, direct_read
        if self.direct_write or self.direct_read:
            try:
                self._direct = Direct(fd, writes)
            except OSError:  # the file system does not support it
                self.direct_write = self.direct_read = False

    def write(self, data, at, pace=None):
        """Writes an array at the beginning of a block and returns its hash. The write may be pending until written()."""
        view = memoryview(data)
        h, add = _hashing(view, pace)
        if self.direct_write:
            self._direct.write(view, at, add)
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
        if self.direct_read and len(view):
            self._direct.read(view, at, add)
            return h.intdigest()
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
        if self.direct_write:
            self._direct.written()

    def discard(self):
        """Discards the data of write(). No write is pending afterwards."""
        if self.direct_write:
            self._direct.discard()

    def let_go(self):
        """Closes the descriptor in a forked process. The requests belong to the parent."""
        if self._direct:
            os.close(self._direct.fd)

    def close(self):
        if self._direct:
            self._direct.close()
            self._direct = None


def _timed(do):
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


TURNS = 7  # of a measurement; each turn measures both ways
DECISIVE = 1.25  # the unusual way must be faster in every turn, and its median by this factor


def past_is_better(usual, through, past):
    """Whether data goes past the page cache, and the median of the turns' ratios in percent. Data goes the usual way unless the other way was
    clearly faster in every turn. If both are equally fast, fewer than one file in a hundred goes the unusual way."""
    ratios = sorted(p / max(t, 1e-9) for t, p in zip(through, past))
    m = ratios[len(ratios) // 2]
    percent = min(max(math.floor(100 * m + 0.5), 1), 65535)
    if usual:
        return not (ratios[0] > 1 and m >= DECISIVE), percent
    return ratios[-1] < 1 and m <= 1 / DECISIVE, percent


def measure(fd, at, room):
    """Measures on this disk whether data should go past the page cache, by writing and reading zeros in a part of the file.

    Returns whether writes and whether reads go past the cache, and for each the time past the cache as a percentage of the time through it.
    Files with less than 8 * MEASURED bytes of room are not measured. Writes usually go past the cache: that takes less CPU time, and the kernel
    blocks a program that fills its cache with gigabytes, which this short test does not show. Reads usually go through the cache, because the
    kernel reads ahead."""
    nothing = (False, False, 0, 0)
    if room < 8 * MEASURED:
        return nothing
    ways = [File(fd, True), File(fd, True, True, True)]
    try:
        if not ways[1].direct_write:
            return nothing
        zeros, into = bytes(MEASURED), bytearray(MEASURED)
        writes, reads = ([], []), ([], [])
        for turn in range(TURNS):
            for w in (turn % 2, 1 - turn % 2):  # the ways alternate in going first

                def write(w=w):
                    ways[w].write(zeros, at + w * MEASURED)
                    ways[w].written()
                    os.fdatasync(fd)

                writes[w].append(_timed(write))
                os.posix_fadvise(fd, at + w * MEASURED, MEASURED, os.POSIX_FADV_DONTNEED)
                reads[w].append(_timed(lambda w=w: ways[w].read(memoryview(into), at + w * MEASURED)))
        (write, write_ratio), (read, read_ratio) = past_is_better(True, *writes), past_is_better(False, *reads)
        return write, read, write_ratio, read_ratio
    except OSError:
        return nothing
    finally:
        for w in ways:
            w.close()


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


def pack_hint(write, read, write_ratio, read_ratio):
    body = struct.pack(_HINT, b"EVKLWAYS", write | read << 1, write_ratio, read_ratio)
    return body + struct.pack("<Q", hash64(body))


def unpack_hint(b):
    """What measure() returned when the file was created. Without a hint, nothing goes past the cache."""
    magic, ways, *ratios = struct.unpack(_HINT, b[:16])
    if magic != b"EVKLWAYS" or struct.unpack("<Q", b[16:24])[0] != hash64(b[:16]):
        return False, False, 0, 0
    return (bool(ways & 1), bool(ways & 2), *ratios)
