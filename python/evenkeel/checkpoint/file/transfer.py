"""Reading and writing the bytes of arrays: piece by piece, hashed while a piece is in the processor's cache, through the kernel's
page cache or past it, and spread over the available time."""

import ctypes
import fcntl
import math
import os
import struct
import threading
import time

from ..._internal import xxh3
from .direct_io import BLOCK, Direct
from .layout import write_at

PIECE = 1 << 20  # fits in the processor's cache between hash and copy
MEASURED = 32 << 20  # bytes of one measurement
_HINT = "<8sIHH"  # 16 bytes, then their hash

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2


def _write_back(fd, at, n):
    """Has the kernel begin to write back, so that little is left for the flush. It is a hint: the flush reports errors."""
    sync = getattr(_libc, "sync_file_range", None)
    if sync is not None:
        sync(fd, ctypes.c_int64(at), ctypes.c_int64(n), _SYNC_FILE_RANGE_WRITE)


def background():
    """Gives the calling thread a low priority, on the CPU and at the disk. Linux; elsewhere it does nothing."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + 10))
        ioprio_set = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
        if ioprio_set:
            _libc.syscall(ioprio_set, 1, 0, 2 << 13 | 7)  # this thread, best effort, last
    except (OSError, AttributeError):
        pass


def foreground(thread):
    """Undoes background() for a thread, if the system allows it (it needs CAP_SYS_NICE)."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, os.getpid()))
    except (OSError, AttributeError):
        pass


class Pace:
    """Spreads bytes evenly over some seconds. hurry: an Event, set while a thread waits for the bytes."""

    _LEAST = 0.002  # seconds of a pause: each takes some of the processor's time, and of the interpreter's lock

    def __init__(self, total, seconds, hurry, clock=time.monotonic):
        self._total, self._seconds, self._hurry, self._clock = max(total, 1), seconds, hurry, clock
        self._begun, self._done = clock(), 0

    def moved(self, n):
        self._done += n
        ahead = self._seconds * self._done / self._total - (self._clock() - self._begun)
        if ahead >= self._LEAST and not self._hurry.is_set():
            self._hurry.wait(ahead)


class File:
    """How the arrays of one open file are read and written."""

    def __init__(self, fd, writes, direct_write=False, direct_read=False):
        self.fd, self._direct = fd, None
        self.direct_write, self.direct_read = direct_write and writes, direct_read
        if self.direct_write or self.direct_read:
            try:
                self._direct = Direct(fd, writes)
            except OSError:  # the file system does not support it
                self.direct_write = self.direct_read = False

    def write(self, data, at, pace=None):
        """Writes an array, at the beginning of a block, and returns its hash. The write may be pending until written()."""
        view = memoryview(data)
        h = xxh3.Hash(view)

        def each(n):
            h.update(n)
            if pace:
                pace.moved(n)

        if self.direct_write:
            self._direct.write(view, at, each)
            return h.digest()
        begin = 0
        while begin < len(view):
            piece = view[begin : begin + PIECE]
            each(len(piece))
            write_at(self.fd, piece, at + begin)
            if len(piece) >= BLOCK:
                _write_back(self.fd, at + begin, len(piece))
            begin += len(piece)
        return h.digest()

    def read(self, view, at):
        """Fills view and returns the hash of what was read. EOFError: the file ends."""
        h = xxh3.Hash(view)
        if self.direct_read and len(view):
            self._direct.read(view, at, h.update)
            return h.digest()
        begin = 0
        while begin < len(view):
            piece = view[begin : begin + PIECE]
            done = 0
            while done < len(piece):
                n = os.preadv(self.fd, [piece[done:]], at + begin + done)
                if n == 0:
                    raise EOFError
                done += n
            h.update(len(piece))
            begin += len(piece)
        return h.digest()

    def written(self):
        """Waits until the kernel has everything from write(), and raises its errors. It is durable only after a flush."""
        if self.direct_write:
            self._direct.written()

    def discard(self):
        """Discards what write() took: no write is pending afterwards."""
        if self.direct_write:
            self._direct.discard()

    def let_go(self):
        """In a process that was forked: closes its descriptor; the requests are the parent's."""
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


TURNS = 7  # of a measurement: each way once
DECISIVE = 1.25  # the unusual way is chosen if its median is faster by this factor, and if it is faster in every turn


def past_is_better(usual, through, past):
    """Whether data goes past the page cache, and the median of the turns' ratios in percent. Data goes the usual way unless the other way was clearly
    faster in every turn: if both are equally fast, the unusual way is chosen for less than one of a hundred files."""
    ratios = sorted(p / max(t, 1e-9) for t, p in zip(through, past))
    m = ratios[len(ratios) // 2]
    percent = min(max(math.floor(100 * m + 0.5), 1), 65535)
    if usual:
        return not (ratios[0] > 1 and m >= DECISIVE), percent
    return ratios[-1] < 1 and m <= 1 / DECISIVE, percent


def measure(fd, at, room):
    """Measures on a part of the file, with zeros written and read in turn, whether data goes past the page cache on this disk: (write, read, and the
    time past the cache over that through it in percent for each), True for past the cache. With less than 8 * MEASURED bytes of room it is not worth
    the time. Writes usually go past the cache: they take less CPU time, and the kernel blocks a program that fills its cache with gigabytes, which so
    few bytes do not show. Reads usually go through it, because the kernel reads ahead."""
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
            for w in (turn % 2, 1 - turn % 2):  # the ways take turns to be first

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
_FIEMAP, _GETFLAGS, _SETFLAGS, _NOCOW = 0xC020660B, 0x80086601, 0x40086602, 0x00800000


def write_in_place(fd):
    """Asks the file system to write this empty file in place (btrfs: chattr +C). Elsewhere it does nothing."""
    if file_system(fd) == "btrfs":
        try:
            flags = struct.unpack("l", fcntl.ioctl(fd, _GETFLAGS, bytes(8)))[0]
            fcntl.ioctl(fd, _SETFLAGS, struct.pack("l", flags | _NOCOW))
        except OSError:
            pass


def file_system(fd):
    """The name of the file system if it copies on write by design, else None."""
    try:
        out = ctypes.create_string_buffer(256)
        if _libc.fstatfs(fd, out):
            return None
        return _COPY_ON_WRITE.get(struct.unpack_from("l", out)[0] & 0xFFFFFFFF)
    except AttributeError:
        return None


def _place(fd, at):
    """Where a byte of a file lies on the disk, None if the file system does not say."""
    request = struct.pack("=QQLLLL", at, BLOCK, 1, 0, 1, 0) + bytes(56)  # FIEMAP_FLAG_SYNC, room for one extent
    try:
        answer = fcntl.ioctl(fd, _FIEMAP, request)
    except OSError:
        return None
    mapped, (logical, physical, _) = struct.unpack_from("=L", answer, 20)[0], struct.unpack_from("=QQQ", answer, 32)
    return physical + at - logical if mapped and physical else None


def _moves(fd, at):
    """Whether a block that is written again lies elsewhere afterwards: True, False, or None if that cannot be seen. It writes zeros there."""
    before = _place(fd, at)
    write_at(fd, bytes(BLOCK), at)
    os.fsync(fd)
    after = _place(fd, at)
    return None if before is None or after is None else before != after


def copies_on_write(fd, at):
    """Why saves on this file system copy on write, as measured by writing the block at this place again; None if they do not."""
    moved = _moves(fd, at)
    name = file_system(fd)
    if moved:
        return f"the file system{f' ({name})' if name else ''} does not write in place: a block moved when it was written again"
    if moved is None and name:
        return f"the file system is {name}, which copies on write"
    return None


def pack_hint(write, read, write_ratio, read_ratio):
    body = struct.pack(_HINT, b"EVKLWAYS", write | read << 1, write_ratio, read_ratio)
    return body + struct.pack("<Q", xxh3.hash64(body))


def unpack_hint(b):
    """What measure() gave when the file was made; nothing past the cache if there is no hint."""
    magic, ways, *ratios = struct.unpack(_HINT, b[:16])
    if magic != b"EVKLWAYS" or struct.unpack("<Q", b[16:24])[0] != xxh3.hash64(b[:16]):
        return False, False, 0, 0
    return (bool(ways & 1), bool(ways & 2), *ratios)
