"""xxh3-64 with the default secret, seed 0 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

hash64(buffer) and Hash use the system's libxxhash where there is one (Debian: libxxhash0), else the Python package xxhash, and numpy
otherwise, at some 200 MB/s: then the first large hash warns.
"""

import ctypes
import ctypes.util
import warnings

import numpy

from .direct import address

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_M = (1 << 64) - 1
_P32 = (2654435761, 2246822519, 3266489917)
_P64 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def _word(b, at):
    return int.from_bytes(b[at : at + 8], "little")


def _key(at):
    return _word(_SECRET, at)


def _fold(a, b):
    p = a * b
    return (p & _M) ^ (p >> 64)


def _avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & _M
    return h ^ (h >> 32)


def _avalanche_short(h):
    h ^= h >> 33
    h = h * _P64[1] & _M
    h ^= h >> 29
    h = h * _P64[2] & _M
    return h ^ (h >> 32)


def _to16(b):
    n = len(b)
    if n > 8:
        low = _word(b, 0) ^ _key(24) ^ _key(32)
        high = _word(b, n - 8) ^ _key(40) ^ _key(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((n + swapped + high + _fold(low, high)) & _M)
    if n > 3:
        first, last = int.from_bytes(b[:4], "little"), int.from_bytes(b[n - 4 :], "little")
        h = (last + (first << 32)) ^ _key(8) ^ _key(16)
        rotate = lambda x, r: (x << r | x >> (64 - r)) & _M
        h ^= rotate(h, 49) ^ rotate(h, 24)
        h = h * 0x9FB21C651E98DF25 & _M
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & _M
        return h ^ (h >> 28)
    if n:
        c = b[0] << 16 | b[n >> 1] << 24 | b[n - 1] | n << 8
        return _avalanche_short(c ^ (_key(0) & 0xFFFFFFFF) ^ (_key(4) & 0xFFFFFFFF))
    return _avalanche_short(_key(56) ^ _key(64))


def _mix(b, at, key):
    return _fold(_word(b, at) ^ _key(key), _word(b, at + 8) ^ _key(key + 8))


def _to240(b):
    n = len(b)
    h = n * _P64[0]
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            h += _mix(b, 16 * i, 32 * i) + _mix(b, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(h & _M)
    for i in range(8):
        h += _mix(b, 16 * i, 16 * i)
    h = _avalanche(h & _M)
    for i in range(8, n // 16):
        h += _mix(b, 16 * i, 16 * (i - 8) + 3)
    return _avalanche((h + _mix(b, n - 16, 136 - 17)) & _M)


_KEYS = numpy.array([[_key(8 * s + 8 * i) for i in range(8)] for s in range(16)], dtype=numpy.uint64)
_SCRAMBLE = [_key(128 + 8 * i) for i in range(8)]
_LANES = (1, 0, 3, 2, 5, 4, 7, 6)


def _stripes(data, keys):
    """What stripes of 8 words add to the accumulators; data is (..., stripes, 8)."""
    low = numpy.uint64(0xFFFFFFFF)
    mixed = data ^ keys
    return ((mixed & low) * (mixed >> numpy.uint64(32)) + data[..., _LANES]).sum(axis=-2, dtype=numpy.uint64)


def _long(b):
    n = len(b)
    acc = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]
    blocks = (n - 1) // 1024
    at = 0
    while at < blocks:  # a piece at a time, for the memory's sake
        some = min(4096, blocks - at)
        words = numpy.frombuffer(b, dtype="<u8", count=128 * some, offset=1024 * at).reshape(some, 16, 8)
        for adds in _stripes(words, _KEYS).tolist():
            for i in range(8):
                a = (acc[i] + adds[i]) & _M
                acc[i] = (a ^ (a >> 47) ^ _SCRAMBLE[i]) * _P32[0] & _M
        at += some
    rest = (n - 1 - 1024 * blocks) // 64
    parts = []
    if rest:
        words = numpy.frombuffer(b, dtype="<u8", count=8 * rest, offset=1024 * blocks).reshape(rest, 8)
        parts.append(_stripes(words, _KEYS[:rest]))
    last = numpy.frombuffer(bytes(b[n - 64 :]), dtype="<u8").reshape(1, 8)
    keys = numpy.array([[_key(121 + 8 * i) for i in range(8)]], dtype=numpy.uint64)
    parts.append(_stripes(last, keys))
    for p in parts:
        acc = [(a + x) & _M for a, x in zip(acc, p.tolist())]
    h = n * _P64[0]
    for i in range(4):
        h += _fold(acc[2 * i] ^ _key(11 + 16 * i), acc[2 * i + 1] ^ _key(19 + 16 * i))
    return _avalanche(h & _M)


def hash64_numpy(buffer):
    """The hash of a buffer, without libxxhash."""
    b = memoryview(buffer).cast("B")
    if len(b) <= 240:
        b = bytes(b)
        return _to16(b) if len(b) <= 16 else _to240(b)
    return _long(b)


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
        import xxhash

        return xxhash.xxh3_64
    except (ImportError, AttributeError):
        return None


_native = _library()
_packaged = None if _native else _package()
_LARGE = 16 << 20
_warned = False


def _slow(n):
    global _warned
    if n >= _LARGE and not _warned:
        _warned = True
        warnings.warn("checksums are computed with numpy, at some 200 MB/s: install libxxhash (Debian: libxxhash0) or the Python package xxhash", stacklevel=4)


def hash64(buffer):
    """The hash of anything that has the buffer protocol, 0 to 2**64 - 1."""
    n = memoryview(buffer).nbytes
    if _native is not None:
        return _native.XXH3_64bits(address(buffer) if n else None, n)
    if _packaged is not None:
        return _packaged(buffer).intdigest()
    _slow(n)
    return hash64_numpy(buffer)


class Hash:
    """The hash of a buffer that is filled, or used, from its beginning on: update(n) takes the next n bytes. It is computed at once, or,
    by numpy, in digest()."""

    def __init__(self, whole):
        self._whole, self._state, self._done = whole, None, 0
        if _native is not None:
            self._state = _native.XXH3_createState()
            _native.XXH3_64bits_reset(self._state)
            self._at = address(whole) if len(whole) else 0
        elif _packaged is not None:
            self._state = _packaged()

    def update(self, n):
        if _native is not None:
            _native.XXH3_64bits_update(self._state, self._at + self._done, n)
        elif _packaged is not None:
            self._state.update(self._whole[self._done : self._done + n])
        self._done += n

    def digest(self):
        if _native is not None:
            return _native.XXH3_64bits_digest(self._state)
        if _packaged is not None:
            return self._state.intdigest()
        _slow(len(self._whole))
        return hash64_numpy(self._whole)

    def __del__(self):
        if _native is not None and self._state is not None:
            _native.XXH3_freeState(self._state)
