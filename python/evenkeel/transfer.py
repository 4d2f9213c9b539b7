"""Reading and writing the bytes of arrays: piece by piece, hashed while a piece is in the processor's cache, through the kernel's
page cache or past it, and spread over the time that there is."""

import ctypes
import errno
import fcntl
import mmap
import os
import statistics
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from . import xxh3

PIECE = 1 << 20  # stays in the processor's cache between hash and copy
BLOCK = 4096
DIRECT_PIECE = 4 << 20  # past the page cache
DEPTH = 4  # of those under way
DIRECT_MIN = 1 << 20  # smaller arrays go through the cache in any case
MEASURED = 32 << 20  # bytes of one measurement
_HINT = "<8sII"  # 16 bytes, then their hash

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2


def _write_back(fd, at, n):
    """Has the kernel begin to write back, so that little is left to the flush. A hint: what fails is the flush's to tell."""
    sync = getattr(_libc, "sync_file_range", None)
    if sync is not None:
        sync(fd, ctypes.c_int64(at), ctypes.c_int64(n), _SYNC_FILE_RANGE_WRITE)


def background(niceness=10):
    """Makes the calling thread give way to others, on the processor and at the disk. Linux; elsewhere it does nothing."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        ioprio_set = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
        if ioprio_set:
            _libc.syscall(ioprio_set, 1, 0, 2 << 13 | 7)  # this thread, best effort, last
    except (OSError, AttributeError):
        pass


def foreground(thread):
    """Takes back what background() did to a thread, where the system allows it (it takes CAP_SYS_NICE)."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, 0)
    except (OSError, AttributeError):
        pass


class Pace:
    """Spreads bytes evenly over some seconds. hurry: an Event, set while somebody waits for the bytes."""

    def __init__(self, total, seconds, hurry, clock=time.monotonic):
        self._total, self._seconds, self._hurry, self._clock = max(total, 1), seconds, hurry, clock
        self._begun, self._done = clock(), 0

    def moved(self, n):
        self._done += n
        ahead = self._seconds * self._done / self._total - (self._clock() - self._begun)
        if ahead > 0 and not self._hurry.is_set():
            self._hurry.wait(ahead)


def _copy(to, to_at, source, at, n):
    """Copies bytes while other threads run."""
    ctypes.memmove(xxh3.address(to) + to_at, xxh3.address(source) + at, n)


class _Direct:
    """A second descriptor of a file, past the page cache, with as many pieces under way as DEPTH says."""

    def __init__(self, fd, writes):
        self.fd = os.open(f"/proc/self/fd/{fd}", (os.O_RDWR if writes else os.O_RDONLY) | os.O_DIRECT)
        self._pool = ThreadPoolExecutor(DEPTH, thread_name_prefix="checkpoint-direct")
        self._lock, self._bounces = threading.Lock(), []

    def _take(self):
        with self._lock:
            return self._bounces.pop() if self._bounces else mmap.mmap(-1, DIRECT_PIECE)

    def _give(self, bounce):
        with self._lock:
            self._bounces.append(bounce)

    def write(self, view, at, each):
        """Writes whole blocks; each(piece) is called for every piece in order."""
        under_way = []
        try:
            for begin in range(0, len(view), DIRECT_PIECE):
                piece = view[begin : begin + DIRECT_PIECE]
                if len(under_way) == DEPTH:
                    under_way.pop(0).result()
                bounce = self._take()
                for at_ in range(0, len(piece), PIECE):
                    part = piece[at_ : at_ + PIECE]
                    each(part)
                    _copy(bounce, at_, part, 0, len(part))
                under_way.append(self._pool.submit(self._put, bounce, len(piece), at + begin))
        finally:
            errors = [f.exception() for f in under_way]  # none is left behind
        for e in errors:
            if e:
                raise e

    def _put(self, bounce, n, at):
        with memoryview(bounce) as m:
            done = 0
            while done < n:
                got = os.pwrite(self.fd, m[done:n], at + done)
                if got == 0:
                    raise OSError(errno.EIO, "nothing was written")
                done += got
        self._give(bounce)

    def read(self, view, at, each):
        """Reads whole blocks into view; each(piece) is called for every piece in order."""
        under_way = []
        begins = list(range(0, len(view), DIRECT_PIECE))
        try:
            for i in range(len(begins) + DEPTH):
                if i >= DEPTH and i - DEPTH < len(begins):
                    begin = begins[i - DEPTH]
                    piece = view[begin : begin + DIRECT_PIECE]
                    bounce = under_way.pop(0).result()
                    for at_ in range(0, len(piece), PIECE):
                        part = piece[at_ : at_ + PIECE]
                        _copy(part, 0, bounce, at_, len(part))
                        each(part)
                    self._give(bounce)
                if i < len(begins):
                    under_way.append(self._pool.submit(self._get, min(DIRECT_PIECE, len(view) - begins[i]), at + begins[i]))
        finally:
            for f in under_way:
                f.exception()

    def _get(self, n, at):
        bounce = self._take()
        with memoryview(bounce) as m:
            done = 0
            while done < n:
                got = os.preadv(self.fd, [m[done:n]], at + done)
                if got == 0:
                    raise EOFError
                done += got
        return bounce

    def close(self):
        self._pool.shutdown()
        os.close(self.fd)
        for b in self._bounces:
            b.close()


class File:
    """How the arrays of one open file are read and written."""

    def __init__(self, fd, writes, direct_write=False, direct_read=False):
        self.fd, self._direct = fd, None
        self.direct_write, self.direct_read = direct_write and writes, direct_read
        if self.direct_write or self.direct_read:
            try:
                self._direct = _Direct(fd, writes)
            except OSError:  # a file system without it
                self.direct_write = self.direct_read = False

    def write(self, data, at, pace=None):
        """Writes an array and gives its hash."""
        view = memoryview(data)
        h = xxh3.Hash(view)

        def each(piece):
            h.update(piece)
            if pace:
                pace.moved(len(piece))

        begin = 0
        if self.direct_write and len(view) >= DIRECT_MIN and at % BLOCK == 0:
            begin = len(view) // BLOCK * BLOCK
            self._direct.write(view[:begin], at, each)
        while begin < len(view):
            piece = view[begin : begin + PIECE]
            each(piece)
            self._put(piece, at + begin)
            begin += len(piece)
        return h.digest()

    def _put(self, piece, at):
        end = at + len(piece)
        first = at
        while at < end:
            n = os.pwrite(self.fd, piece[at - first :], at)
            if n == 0:
                raise OSError(errno.EIO, "nothing was written")
            at += n
        if len(piece) >= BLOCK:
            _write_back(self.fd, first, len(piece))

    def read(self, view, at):
        """Fills view and gives the hash of what was read. EOFError: the file ends."""
        h = xxh3.Hash(view)
        begin = 0
        if self.direct_read and len(view) >= DIRECT_MIN and at % BLOCK == 0:
            begin = len(view) // BLOCK * BLOCK
            self._direct.read(view[:begin], at, h.update)
        while begin < len(view):
            piece = view[begin : begin + PIECE]
            done = 0
            while done < len(piece):
                n = os.preadv(self.fd, [piece[done:]], at + begin + done)
                if n == 0:
                    raise EOFError
                done += n
            h.update(piece)
            begin += len(piece)
        return h.digest()

    def close(self):
        if self._direct:
            self._direct.close()
            self._direct = None


def _timed(do):
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def measure(fd, at, room):
    """Which way is faster on this disk, from zeros written to and read from a part of the file by turns: (write, read), True for past
    the page cache. For less than 8 * MEASURED bytes of room it is not worth the time: (False, False)."""
    if room < 8 * MEASURED:
        return False, False
    ways = [File(fd, True), File(fd, True, True, True)]
    try:
        if not ways[1].direct_write:
            return False, False
        zeros, into = bytes(MEASURED), bytearray(MEASURED)
        times = {(w, what): [] for w in (0, 1) for what in ("write", "read")}
        for turn in range(3):
            for w in (0, 1):

                def write(w=w):
                    ways[w].write(zeros, at + w * MEASURED)
                    os.fdatasync(fd)

                times[w, "write"].append(_timed(write))
                os.posix_fadvise(fd, at + w * MEASURED, MEASURED, os.POSIX_FADV_DONTNEED)
                times[w, "read"].append(_timed(lambda w=w: ways[w].read(memoryview(into), at + w * MEASURED)))
        # Past the cache only where it is clearly faster: it copies in the program, and several threads take turns.
        return tuple(statistics.median(times[1, what]) < 0.75 * statistics.median(times[0, what]) for what in ("write", "read"))
    except OSError:
        return False, False
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
    """Its name if it copies on write by design, else None."""
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


def moves(fd, at, data=bytes(BLOCK)):
    """Whether a block that is written again lies elsewhere afterwards: True, False, or None if that cannot be seen. It writes data there."""
    before = _place(fd, at)
    _pwrite(fd, data, at)
    os.fsync(fd)
    after = _place(fd, at)
    return None if before is None or after is None else before != after


def copies_on_write(fd, at):
    """Why saves on this file system copy on write, as measured by writing the block at this place again; None if they do not."""
    moved = moves(fd, at)
    name = file_system(fd)
    if moved:
        return f"the file system{f' ({name})' if name else ''} does not write in place: a block moved when it was written again"
    if moved is None and name:
        return f"the file system is {name}, which copies on write"
    return None


def _pwrite(fd, data, at):
    view = memoryview(data)
    while len(view):
        n = os.pwrite(fd, view, at)
        view, at = view[n:], at + n


def pack_hint(write, read):
    body = struct.pack(_HINT, b"EVKLWAYS", write | read << 1, 0)
    return body + struct.pack("<Q", xxh3.hash64(body))


def unpack_hint(b):
    """(write, read), (False, False) if there is no hint."""
    magic, ways, _ = struct.unpack(_HINT, b[:16])
    if magic != b"EVKLWAYS" or struct.unpack("<Q", b[16:24])[0] != xxh3.hash64(b[:16]):
        return False, False
    return bool(ways & 1), bool(ways & 2)
