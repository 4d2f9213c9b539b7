"""Logs and blocks, as bytes."""

import dataclasses
import hashlib
import math
import struct

from .header import MAX_HEADER, Refused
from .rounds import BLOCK
from .step import Step

MAGIC = b"EKFWDLG2"
_TAIL = struct.Struct("<QQQd4d32s16s")  # position, prompt, last, V, scale, best, its error, mean, weights, chain
_NAN = struct.pack("<Q", 0x7FF8000000000001)


def chain(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.digest()[:16]


def start(header):
    """The header as a log's first bytes, with its chain at the end."""
    head = MAGIC + struct.pack("<I", len(header)) + header
    return head + chain(head)


def read_start(data):
    """The header's JSON, and how many bytes it took."""
    if data[:8] != MAGIC:
        raise Refused(f"begins with {data[:8]!r}; a log of this version begins with {MAGIC!r}")
    n = int.from_bytes(data[8:12], "little")
    if len(data) < 28 or n > MAX_HEADER or len(data) < n + 28:
        raise Refused(f"a header of {n} bytes in {len(data)}; is it truncated?")
    if chain(data[: 12 + n]) != data[12 + n : 28 + n]:
        raise Refused("the header's checksum is wrong; the file is damaged")
    return data[12 : 12 + n], 28 + n


@dataclasses.dataclass
class Block:
    number: int
    steps: list
    position: int
    prompt: int
    last: bool  # somebody asked to stop in it, so that the run ends with it
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
    return _varint(2 * x if x >= 0 else -2 * x - 1)


def write(block, before):
    """The block's bytes after the chain before."""
    body = bytearray()
    for s in block.steps:
        body += _varint(s.pairs) + b"".join(map(_signed, s.increments)) + _varint(len(s.late))
        for pair, age, n in s.late:
            body += _varint(pair) + _varint(age) + _signed(n)
    numbers = (block.square, block.scale, block.best, block.best_error, block.mean)
    out = struct.pack("<II", block.number, len(body)) + bytes(body) + struct.pack("<QQQ", block.position, block.prompt, block.last)
    out += b"".join(_NAN if math.isnan(x) else struct.pack("<d", x) for x in numbers) + block.weights
    return out + chain(before, out)


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def varint(self):
        x, shift = 0, 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise Refused("a block ends within a number")
            b = self.data[self.at]
            self.at += 1
            x |= (b & 127) << shift
            shift += 7
            if b < 128:
                return x

    def signed(self):
        x = self.varint()
        return -(x + 1) // 2 if x & 1 else x // 2


def length(data):
    """The bytes of the block that data begins with, None if it is not all there."""
    if len(data) < 8:
        return None
    m = int.from_bytes(data[4:8], "little")
    if m > 1 << 20:
        raise Refused(f"a block of {m} bytes of steps; at most {1 << 20}")
    n = 8 + m + _TAIL.size
    return n if len(data) >= n else None


def read(data, before, number, config):
    """The block in the bytes, which must be the numbered one after the chain before."""
    if length(data) != len(data):
        raise Refused(f"block {number}: of {len(data)} bytes, not the length it says")
    if chain(before, data[:-16]) != data[-16:]:
        raise Refused(f"block {number}: its checksum is wrong")
    if int.from_bytes(data[:4], "little") != number:
        raise Refused(f"block {number}: says it is block {int.from_bytes(data[:4], 'little')}")
    r, steps = _Reader(data[8 : -_TAIL.size]), []
    pairs = config.processors // 2
    while r.at < len(r.data):
        at = number * BLOCK + len(steps)
        bits, increments = r.varint(), [r.signed() for _ in range(config.directions)]
        count = r.varint()
        if count > pairs:
            raise Refused(f"block {number}: {count} late pairs of {pairs}")
        late = [(r.varint(), r.varint(), r.signed()) for _ in range(count)]
        if bits >> pairs or any(p >= pairs or not 0 < a <= at % BLOCK for p, a, _ in late) or any(abs(n) > 1 << 25 for n in increments + [n for _, _, n in late]):
            raise Refused(f"block {number}: step {at} is invalid")
        steps.append(Step(bits, increments, late))
    if len(steps) != min(BLOCK, config.steps - number * BLOCK):
        raise Refused(f"block {number}: {len(steps)} steps")
    position, prompt, last, square, scale, best, error, mean, weights, end = _TAIL.unpack(data[-_TAIL.size :])
    if prompt >> pairs or last > 1:
        raise Refused(f"block {number}: pairs that the run has not")
    return Block(number, steps, position, prompt, last == 1, square, scale, best, error, mean, weights, end)
