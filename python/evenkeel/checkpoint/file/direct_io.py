"""Reads and writes past the kernel's page cache with Linux AIO, so that one thread can have several pending requests."""

import ctypes
import errno
import mmap
import os
import struct
import threading

import numpy

BLOCK = 4096
PIECE = 1 << 20  # bytes of a request
DEPTH = 4  # pending requests
PART = 256 << 10  # bytes that stay in the processor's cache between hash and copy

_libc = ctypes.CDLL(None, use_errno=True)
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}  # io_setup, io_destroy, io_getevents, io_submit
_REQUEST, _EVENT = struct.Struct("=QIIHhIQQqQII"), struct.Struct("=QQqq")  # iocb and io_event of linux/aio_abi.h
_READ, _WRITE = 0, 1


def address(buffer):
    """The address of a buffer's first byte."""
    return numpy.frombuffer(buffer, dtype=numpy.uint8).ctypes.data


def _call(number, *args):
    while True:
        got = _libc.syscall(ctypes.c_long(number), *args)
        if got >= 0:
            return got
        e = ctypes.get_errno()
        if e != errno.EINTR:
            raise OSError(e, os.strerror(e))


class _Slot:
    """Memory aligned to a block, and its request."""

    def __init__(self):
        self.memory = mmap.mmap(-1, PIECE)
        self.address = address(self.memory)
        self.request = ctypes.create_string_buffer(_REQUEST.size)
        self.pointer = ctypes.c_void_p(ctypes.addressof(self.request))
        self.what, self.size, self.done, self.at = _READ, 0, 0, 0


class _Channel:
    """The AIO context and the memory that one thread uses."""

    def __init__(self):
        if os.uname().machine not in _CALLS:
            raise OSError(errno.ENOSYS, "AIO is supported on x86_64 and aarch64")
        setup, self._destroy, self._getevents, self._submit = _CALLS[os.uname().machine]
        self._context = ctypes.c_ulong()
        _call(setup, ctypes.c_long(DEPTH), ctypes.byref(self._context))
        self.slots = [_Slot() for _ in range(DEPTH)]
        self._events = ctypes.create_string_buffer(DEPTH * _EVENT.size)

    def start(self, fd, i, what, size, at):
        s = self.slots[i]
        s.what, s.size, s.done, s.at = what, size, 0, at
        self._put(fd, i)

    def _put(self, fd, i):
        s = self.slots[i]
        _REQUEST.pack_into(s.request, 0, i, 0, 0, s.what, 0, fd, s.address + s.done, s.size - s.done, s.at + s.done, 0, 0, 0)
        try:
            _call(self._submit, self._context, ctypes.c_long(1), ctypes.byref(s.pointer))
        except OSError:
            s.size = 0  # not pending
            raise

    def finish(self, fd, i):
        """Waits until slot i has no pending request. Raises EOFError if the file ends."""
        while self.slots[i].size:
            n = _call(self._getevents, self._context, ctypes.c_long(1), ctypes.c_long(DEPTH), self._events, None)
            faults = [self._came(fd, j, got) for j, _, got, _ in _EVENT.iter_unpack(self._events.raw[: n * _EVENT.size])]
            for fault in filter(None, faults):  # after all results were received
                raise fault

    def _came(self, fd, i, got):
        """Receives a result of the kernel and submits the rest of a partial request. Returns an error or None."""
        s = self.slots[i]
        s.done += max(got, 0)
        if got > 0 and s.done % BLOCK == 0 and s.done < s.size:
            try:
                self._put(fd, i)
                return None
            except OSError as e:
                return e
        whole, s.size = s.done == s.size, 0
        if whole:
            return None
        if got < 0:
            return OSError(-got, os.strerror(-got))
        return EOFError() if s.what == _READ else OSError(errno.EIO, "not everything was written")

    def drain(self, fd):
        """Waits for pending requests and ignores their errors."""
        for i in range(DEPTH):
            while self.slots[i].size:
                try:
                    self.finish(fd, i)
                except (OSError, EOFError):
                    pass

    def close(self):
        _call(self._destroy, self._context)
        for s in self.slots:
            s.memory.close()


class Direct:
    """A second descriptor of a file, past the page cache. One thread may write, several may read. OSError: not supported."""

    def __init__(self, fd, writes):
        self.fd = os.open(f"/proc/self/fd/{fd}", (os.O_RDWR if writes else os.O_RDONLY) | os.O_DIRECT)
        self._free, self._channels = threading.Condition(), []
        self._writer, self._slot, self._fill, self._at = None, 0, 0, 0  # the piece that is being filled, and its position in the file
        try:
            self._channels.append(_Channel())
            if writes:
                self._writer = _Channel()
            c = self._channels[0]
            c.start(self.fd, 0, _READ, BLOCK, 0)  # fails if the disk has larger blocks
            c.finish(self.fd, 0)
        except EOFError:
            pass
        except OSError:
            self.close()
            raise

    def write(self, view, at, each):
        """Writes the bytes, and zeros up to the end of the last block. It calls each(n) before it copies the next n bytes, and returns when all are
        copied. Consecutive buffers are written together. Errors are raised here or by a later call."""
        c, source, done, left = self._writer, address(view), 0, len(view)
        while left:
            if self._fill == PIECE or self._at + self._fill != at + done:
                self._out()
                self._at = at + done
                c.finish(self.fd, self._slot)
            n = min(PART, PIECE - self._fill, left)
            each(n)
            ctypes.memmove(c.slots[self._slot].address + self._fill, source + done, n)
            self._fill, done, left = self._fill + n, done + n, left - n
        rest = -self._fill % BLOCK
        ctypes.memset(c.slots[self._slot].address + self._fill, 0, rest)
        self._fill += rest

    def _out(self):
        """Submits the piece that is being filled."""
        if self._fill:
            self._writer.start(self.fd, self._slot, _WRITE, self._fill, self._at)
            self._slot, self._fill = (self._slot + 1) % DEPTH, 0

    def written(self):
        """Waits until the kernel has written all data of write()."""
        self._out()
        for i in range(DEPTH):
            self._writer.finish(self.fd, i)

    def discard(self):
        """Drops unwritten data, and waits for pending requests without looking at their results."""
        self._fill = 0
        self._writer.drain(self.fd)

    def read(self, view, at, each):
        """Fills the view from the beginning of a block. It calls each(n) after it has read the next n bytes."""
        c = self._take()
        try:
            self._read(c, address(view), len(view), at, each)
        finally:
            c.drain(self.fd)
            with self._free:
                self._channels.append(c)
                self._free.notify()

    def _take(self):
        with self._free:
            if not self._channels:
                try:
                    return _Channel()
                except OSError:  # the system allows no more contexts: wait for one that is in use
                    self._free.wait_for(lambda: self._channels)
            return self._channels.pop()

    def _read(self, c, to, length, at, each):
        blocks = length + -length % BLOCK
        for begin in range(0, min(DEPTH * PIECE, length), PIECE):
            c.start(self.fd, begin // PIECE, _READ, min(PIECE, blocks - begin), at + begin)
        for k, begin in enumerate(range(0, length, PIECE)):
            i, n = k % DEPTH, min(PIECE, length - begin)
            c.finish(self.fd, i)
            for part in range(0, n, PART):
                m = min(PART, n - part)
                ctypes.memmove(to + begin + part, c.slots[i].address + part, m)
                each(m)
            following = begin + DEPTH * PIECE
            if following < length:
                c.start(self.fd, i, _READ, min(PIECE, blocks - following), at + following)

    def close(self):
        if self._writer:
            self.discard()
        for c in [*self._channels, *filter(None, [self._writer])]:
            c.close()
        os.close(self.fd)
