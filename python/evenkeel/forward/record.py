"""The bytes of logs and blocks."""

import dataclasses
import hashlib
import math
import struct

from .header import MAX_HEADER, Refused
from .rounds import BLOCK
from .step import Step

MAGIC = b"EKFWDLG5"
_TAIL = struct.Struct("<QQQd4d32s16s")  # position, prompt, last, V, scale, best, its error, mean, weights, chain
_NAN = struct.pack("<Q", 0x7FF8000000000001)


def chain(*parts):
    """A hash over the parts, 16 bytes."""
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.digest()[:16]


def start(header):
    """The beginning of a log: the header, then its chain."""
    head = MAGIC + struct.pack("<I", len(header)) + header
    return head + chain(head)


def read_start(data):
    """Reads the beginning of a log. Returns the header's JSON and the number of bytes."""
    if data[:8] != MAGIC:
        raise Refused(f"it begins with {data[:8]!r}; a log of this version begins with {MAGIC!r}")
    n = int.from_bytes(data[8:12], "little")
    if len(data) < 28 or n > MAX_HEADER or len(data) < n + 28:
        raise Refused(f"a header of {n} bytes in a file of {len(data)}; is it truncated?")
    if chain(data[: 12 + n]) != data[12 + n : 28 + n]:
        raise Refused("the header's checksum is wrong; the file is damaged")
    return data[12 : 12 + n], 28 + n


@dataclasses.dataclass
class Block:
    """64 steps, or the last ones of a run, and the state after them."""

    number: int
    steps: list
    position: int
    prompt: int
    last: bool  # a rank asked to stop, so the run ends with this block
    square: float
    scale: float
    best: float
    best_error: float
    mean: float
    weights: bytes
    chain: bytes = b""


def _varint(x):
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)
    return bytes(out)


def _signed(x):
    """Zigzag encoding."""
    return _varint(2 * x if x >= 0 else -2 * x - 1)


def write(block, before):
    """The bytes of a block. before: the chain before it."""
    body = bytearray()
    for s in block.steps:
        body += _varint(s.pairs) + b"".join(map(_signed, s.increments)) + _varint(len(s.late))
        for pair, age, n in s.late:
            body += _varint(pair) + _varint(age) + _signed(n)
    numbers = (block.square, block.scale, block.best, block.best_error, block.mean)
    out = struct.pack("<II", block.number, len(body)) + bytes(body) + struct.pack("<QQQ", block.position, block.prompt, block.last)
    out += b"".join(_NAN if math.isnan(x) else struct.pack("<d", x) for x in numbers) + block.weights
    return out + chain(before, out)


def _varints(data):
    """Decodes variable-length integers of 7 bits per byte."""
    out, x, shift = [], 0, 0
    for b in data:
        if shift > 63:
            raise Refused("a number in a block is too long")
        x, shift = x | (b & 127) << shift, shift + 7
        if b < 128:
            out.append(x)
            x = shift = 0
    if shift:
        raise Refused("a block ends within a number")
    return out


def _unsigned(x):
    """Reverses the zigzag encoding of _signed."""
    return -(x + 1) // 2 if x & 1 else x // 2


def length(data):
    """The length of the block at the beginning of data, or None if it is incomplete."""
    if len(data) < 8:
        return None
    m = int.from_bytes(data[4:8], "little")
    if m > 1 << 20:
        raise Refused(f"a block of {m} bytes of steps; at most {1 << 20}")
    n = 8 + m + _TAIL.size
    return n if len(data) >= n else None


def read(data, before, number, config):
    """Reads a block with this number. before: the chain before it."""
    if length(data) != len(data):
        raise Refused(f"block {number}: it has {len(data)} bytes, and states another length")
    if chain(before, data[:-16]) != data[-16:]:
        raise Refused(f"block {number}: its checksum is wrong")
    if int.from_bytes(data[:4], "little") != number:
        raise Refused(f"block {number}: its number is {int.from_bytes(data[:4], 'little')}")
    numbers, steps = iter(_varints(data[8 : -_TAIL.size])), []
    pairs = config.processors // 2
    try:
        while (bits := next(numbers, None)) is not None:
            at = number * BLOCK + len(steps)
            increments, count = [_unsigned(next(numbers)) for _ in range(config.directions)], next(numbers)
            if count > pairs:
                raise Refused(f"block {number}: {count} late pairs; the run has {pairs}")
            late = [(next(numbers), next(numbers), _unsigned(next(numbers))) for _ in range(count)]
            bad = bits >> pairs or any(p >= pairs or not 0 < a <= at % BLOCK for p, a, _ in late)
            if bad or any(abs(n) > 1 << 25 for n in increments + [n for _, _, n in late]):
                raise Refused(f"block {number}: step {at} is invalid")
            steps.append(Step(bits, increments, late))
    except StopIteration:
        raise Refused(f"block {number}: it ends within a step") from None
    if len(steps) != min(BLOCK, config.steps - number * BLOCK):
        raise Refused(f"block {number}: it has {len(steps)} steps")
    position, prompt, last, square, scale, best, error, mean, weights, end = _TAIL.unpack(data[-_TAIL.size :])
    if prompt >> pairs or last > 1:
        raise Refused(f"block {number}: it names pairs that the run does not have")
    return Block(number, steps, position, prompt, last == 1, square, scale, best, error, mean, weights, end)
