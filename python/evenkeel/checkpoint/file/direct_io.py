"""Writes past the kernel's page cache with Linux AIO, so that one thread can have several pending requests."""

import ctypes
import errno
import mmap
import os
import struct

import numpy

BLOCK = 4096
PIECE = 1 << 20  # bytes of a request
DEPTH = 4  # pending requests
PART = 256 << 10  # bytes that stay in the processor's cache between hash and copy

_libc = ctypes.CDLL(None, use_errno=True)
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}  # io_setup, io_destroy, io_getevents, io_submit
_REQUEST, _EVENT = struct.Struct("=QIIHhIQQqQII"), struct.Struct("=QQqq")  # iocb and io_event of linux/aio_abi.h
_WRITE = 1


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
        self.size, self.at = 0, 0  # size 0: not pending


class Direct:
    """A second descriptor of a file, past the page cache, for one thread. OSError: not supported."""

    def __init__(self, fd):
        if os.uname().machine not in _CALLS:
            raise OSError(errno.ENOSYS, "AIO is supported on x86_64 and aarch64")
        setup, self._destroy, self._getevents, self._submit = _CALLS[os.uname().machine]
        self.fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT)
        try:
            os.preadv(self.fd, [mmap.mmap(-1, BLOCK)], 0)  # fails if the disk has larger blocks
            self._context = ctypes.c_ulong()
            _call(setup, ctypes.c_long(DEPTH), ctypes.byref(self._context))
        except OSError:
            os.close(self.fd)
            raise
        self.slots = [_Slot() for _ in range(DEPTH)]
        self._events = ctypes.create_string_buffer(DEPTH * _EVENT.size)
        self._slot, self._fill, self._at = 0, 0, 0  # the piece that is being filled, and its position in the file

    def write(self, view, at, each):
        """Writes the bytes, and zeros up to the end of the last block. It calls each(n) before it copies the next n bytes, and returns when all are
        copied. Consecutive buffers are written together. Errors are raised here or by a later call."""
        source, done, left = address(view), 0, len(view)
        while left:
            if self._fill == PIECE or self._at + self._fill != at + done:
                self._out()
                self._at = at + done
                self._finish(self._slot)
            n = min(PART, PIECE - self._fill, left)
            each(n)
            ctypes.memmove(self.slots[self._slot].address + self._fill, source + done, n)
            self._fill, done, left = self._fill + n, done + n, left - n
        rest = -self._fill % BLOCK
        ctypes.memset(self.slots[self._slot].address + self._fill, 0, rest)
        self._fill += rest

    def written(self):
        """Waits until the kernel has written all data of write()."""
        self._out()
        for i in range(DEPTH):
            self._finish(i)

    def discard(self):
        """Drops unwritten data, and waits for pending requests without looking at their results."""
        self._fill = 0
        for i in range(DEPTH):
            while self.slots[i].size:
                try:
                    self._finish(i)
                except OSError:
                    pass

    def close(self):
        self.discard()
        _call(self._destroy, self._context)
        for s in self.slots:
            s.memory.close()
        os.close(self.fd)

    def _out(self):
        """Submits the piece that is being filled."""
        if self._fill:
            s = self.slots[self._slot]
            _REQUEST.pack_into(s.request, 0, self._slot, 0, 0, _WRITE, 0, self.fd, s.address, self._fill, self._at, 0, 0, 0)
            _call(self._submit, self._context, ctypes.c_long(1), ctypes.byref(s.pointer))
            s.size, s.at = self._fill, self._at
            self._slot, self._fill = (self._slot + 1) % DEPTH, 0

    def _finish(self, i):
        """Waits until slot i has no pending request."""
        while self.slots[i].size:
            n = _call(self._getevents, self._context, ctypes.c_long(1), ctypes.c_long(DEPTH), self._events, None)
            faults = [self._came(j, got) for j, _, got, _ in _EVENT.iter_unpack(self._events.raw[: n * _EVENT.size])]
            for fault in filter(None, faults):  # after all results were received
                raise fault

    def _came(self, i, got):
        """Receives a result of the kernel. Returns an error or None."""
        size, self.slots[i].size = self.slots[i].size, 0
        if got == size:
            return None
        return OSError(-got, os.strerror(-got)) if got < 0 else OSError(errno.EIO, "not everything was written")
