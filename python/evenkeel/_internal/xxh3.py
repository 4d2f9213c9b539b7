"""xxh3-64 with the default secret, seed 0 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

It uses the system's libxxhash where there is one (Debian: libxxhash0), else the Python package xxhash.
"""

import ctypes
import ctypes.util

import numpy



def address(buffer):
    """Where the bytes of a buffer begin."""
    return numpy.frombuffer(buffer, dtype=numpy.uint8).ctypes.data


def _library():
    for name in (ctypes.util.find_library("xxhash"), "libxxhash.so.0"):  # find_library asks programs that may be missing
        if not name:
            continue
        try:
            lib = ctypes.CDLL(name)
            lib.XXH3_64bits.restype, lib.XXH3_64bits.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)
            lib.XXH3_createState.restype, lib.XXH3_createState.argtypes = ctypes.c_void_p, ()
            lib.XXH3_freeState.argtypes = (ctypes.c_void_p,)
            lib.XXH3_64bits_reset.argtypes = (ctypes.c_void_p,)
            lib.XXH3_64bits_update.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
            lib.XXH3_64bits_digest.restype, lib.XXH3_64bits_digest.argtypes = ctypes.c_uint64, (ctypes.c_void_p,)
            return lib
        except (OSError, AttributeError):
            continue
    return None


def _package():
    try:
        from xxhash import xxh3_64
    except ImportError:
        return None
    return xxh3_64


_native = _library()
_packaged = None if _native else _package()


def _missing():
    return ImportError("checkpoints need xxHash: install libxxhash (Debian: libxxhash0) or the Python package xxhash")


def hash64(buffer):
    """The hash of anything that has the buffer protocol, 0 to 2**64 - 1."""
    n = memoryview(buffer).nbytes
    if _native is not None:
        return _native.XXH3_64bits(address(buffer) if n else None, n)
    if _packaged is not None:
        return _packaged(buffer).intdigest()
    raise _missing()


class Hash:
    """The hash of a buffer that is filled, or used, from its beginning on: update(n) takes the next n bytes. """

    def __init__(self, whole):
        self._whole, self._state, self._done = whole, None, 0
        if _native is not None:
            self._state = _native.XXH3_createState()
            _native.XXH3_64bits_reset(self._state)
            self._at = address(whole) if len(whole) else 0
        elif _packaged is not None:
            self._state = _packaged()
        else:
            raise _missing()

    def update(self, n):
        if _native is not None:
            _native.XXH3_64bits_update(self._state, self._at + self._done, n)
        else:
            self._state.update(self._whole[self._done : self._done + n])
        self._done += n

    def digest(self):
        if _native is not None:
            return _native.XXH3_64bits_digest(self._state)
        return self._state.intdigest()

    def __del__(self):
        if _native is not None and self._state is not None:
            _native.XXH3_freeState(self._state)
