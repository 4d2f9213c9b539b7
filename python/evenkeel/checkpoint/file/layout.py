"""The bytes of a checkpoint file (docs/reference/formats/checkpoint.md), and the bytes that are stored of a tensor."""

import errno
import math
import os
import struct
from collections import namedtuple

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from xxhash import xxh3_64

from .errors import Corrupt, Usage

PARAMETER, MOMENT, BUFFER = 1, 2, 3
BLOCK, SLOT_ALIGN, VERSIONS = 4096, 2 << 20, (2, 3)
MAX_ARRAYS, MAX_NAME, MAX_DIMS, MAX_STATE = 1 << 20, 1024, 16, 1 << 30
DTYPES = {
    torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4, torch.int8: 5, torch.int16: 6, torch.int32: 7,
    torch.int64: 8, torch.uint8: 9, torch.bool: 13,
}  # fmt: skip
TORCH = {number: dtype for dtype, number in DTYPES.items()}
SIZES = (0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1)
SUPER = "<8sII16sIIIIQQQQQQQQQ"  # 120 bytes, then their hash
RECORD = "<8s16sQQQQQ"  # 64 bytes, then the commit word
NOTE = "<8s16sQQQQQQ"  # 72 bytes, then their hash; two copies in a record page, at bytes 512 and 1024
NOTE_AT = 512
DCP = b"EVKLDCP1"  # the random state of a checkpoint of torch.distributed.checkpoint begins with it

_NOTHING = np.empty(0, np.uint8)

State = namedtuple("State", "step cursor random scalars nonce", defaults=(0,))
Entry = namedtuple("Entry", "name dtype kind shape offset length")
Record = namedtuple("Record", "sequence step length hash")
Note = namedtuple("Note", "generation sequence step all_sequence all_step")


def hash64(data):
    """XXH3-64 with seed 0."""
    return xxh3_64(data).intdigest()


def align(n, to):
    return (n + to - 1) // to * to


def plain(t):
    """Whether a tensor's memory has the stored form. Such a tensor is saved and restored without a copy."""
    return t.device.type == "cpu" and t.layout == torch.strided and t.is_contiguous() and not t.is_complex() and not t.is_neg()


def stored(t):
    """A tensor in its stored form: contiguous, on the CPU, complex numbers as pairs."""
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return t.resolve_neg().cpu().contiguous()


def memory(t):
    """The memory of a contiguous CPU tensor, without a copy."""
    t = t.detach()
    if t.numel() == 0:
        return memoryview(b"")
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return memoryview(t.numpy().reshape(-1)).cast("B")


def sample(t):
    """Some of a tensor's bytes, from all over it, if its memory has the stored form: they show a change by .data, which its version does not."""
    m = np.frombuffer(memory(t), np.uint8) if plain(t) and t.numel() else _NOTHING
    whole = len(m) & ~7
    return m[:whole].view(np.uint64)[:: max(1, len(m) // 128)].tobytes() + m[whole:].tobytes()


def describe(named):
    """The entries of tensors (name -> (tensor, kind)), and the bytes that all of them take. Those smaller than a block come last and share blocks."""
    if not 1 <= len(named) <= MAX_ARRAYS:
        raise Usage(f"{len(named)} tensors, must be 1 to {MAX_ARRAYS}")
    large, small, at = [], [], 0
    for name, (t, kind) in named.items():
        if not 1 <= len(name.encode()) <= MAX_NAME:
            raise Usage(f"tensor {name[:40]!r}: a name must have 1 to {MAX_NAME} bytes, it has {len(name.encode())}")
        dtype, shape = t.dtype, tuple(t.shape)
        if t.is_complex():
            dtype, shape = (torch.float32 if dtype == torch.complex64 else torch.float64), shape + (2,)
        if dtype not in DTYPES or t.layout != torch.strided or t.is_quantized or is_traceable_wrapper_subclass(t):
            raise Usage(f"tensor {name!r}: a {type(t).__name__} of {t.dtype}, {t.layout} cannot be stored")
        if len(shape) > MAX_DIMS:
            raise Usage(f"tensor {name!r}: {len(shape)} dimensions, at most {MAX_DIMS}")
        if kind not in (PARAMETER, MOMENT, BUFFER):
            raise Usage(f"tensor {name!r}: kind {kind}, must be PARAMETER, MOMENT or BUFFER")
        length = math.prod(shape) * SIZES[DTYPES[dtype]]
        (small if length < BLOCK else large).append(Entry(name, DTYPES[dtype], kind, shape, 0, length))
    entries = []
    for these, to in ((large, BLOCK), (small, 16)):
        for e in these:
            entries.append(e._replace(offset=at))
            at = align(at + e.length, to)
    return entries, align(at, BLOCK)


def encode_table(entries):
    out = bytearray()
    for e in entries:
        name = e.name.encode()
        out += struct.pack("<H", len(name)) + name + bytes((e.dtype, e.kind, len(e.shape)))
        out += struct.pack(f"<{len(e.shape)}QQQ", *e.shape, e.offset, e.length)
    return bytes(out)


def write_at(fd, data, at):
    view = memoryview(data)
    while len(view):
        n = os.pwrite(fd, view[: 1 << 30], at)
        if n == 0:
            raise OSError(errno.EIO, "nothing was written")
        view, at = view[n:], at + n


def flush_folder(path):
    """Makes the names in the folder of a file durable."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_at(fd, n, at):
    out = bytearray(n)
    view = memoryview(out)
    while len(view):
        got = os.preadv(fd, [view[: 1 << 30]], at)
        if got == 0:
            raise Corrupt(f"the file ends at byte {at}, before byte {at + len(view)}")
        view, at = view[got:], at + got
    return out


def sign(magic, *fields):
    body = struct.pack(RECORD, magic, *fields)
    return body, hash64(body) | 1


def marker(id_, slot, note):
    return sign(b"EVKLFREE", id_, slot, note.sequence, note.step, 0, 0)


def write_record(fd, at, body, word):
    """Replaces a record or marker. A mixture of old and new bytes never verifies."""
    write_at(fd, bytes(8), at + 64)
    write_at(fd, body, at)
    write_at(fd, struct.pack("<Q", word), at + 64)


def write_notes(fd, id_, slots, note):
    for slot in range(slots):
        body = struct.pack(NOTE, b"EVKLNOTE", id_, slot, *note)
        write_at(fd, body + struct.pack("<Q", hash64(body) | 1), (2 + slot) * BLOCK + NOTE_AT * (1 + note.generation % 2))
