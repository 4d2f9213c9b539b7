"""Decides which frames make a step, from the frames in the order of the stream alone. It uses no clock."""

import ctypes
import struct

from .step import Taken

BLOCK = 64
LOSSES, GO_ON, STOP = 1, 2, 3
_FRAME = struct.Struct("<IHHff")


def frame(step, rank, kind, losses=(0.0, 0.0)):
    """The bytes of a frame."""
    return _FRAME.pack(step, rank, kind, *(ctypes.c_float(x).value for x in losses))  # infinite beyond float32


def read_frame(data):
    """Step, rank, kind and losses of a frame, or None if data is not a frame."""
    if len(data) != _FRAME.size:
        return None
    step, rank, kind, a, b = _FRAME.unpack(data)
    return (step, rank, kind, (a, b)) if kind == LOSSES or kind in (GO_ON, STOP) and not any(data[8:]) else None


class Rounds:
    """The state of the rounds of a block."""

    def __init__(self, processors, steps):
        self.pairs, self.steps = processors // 2, steps
        self.prompt = [True] * self.pairs
        self.step, self.stop = 0, False  # stop: whether the run ends with this block
        self._due = [None] * self.pairs
        self._came = [{} for _ in range(self.pairs)]

    def begin(self, step):
        """Begins the round of a step. At the start of a block it resets all pairs."""
        self.step = step
        if step % BLOCK == 0:
            self._due = [None] * self.pairs
        for p in range(self.pairs):
            if self._due[p] is None and step < self.steps:
                self._due[p], self._came[p] = step, {}

    def due(self, rank):
        """The step for which the rank's losses are due, or None if they have come."""
        p = rank // 2
        return None if rank % 2 in self._came[p] else self._due[p]

    def whole(self):
        """The pairs with the losses of both ranks."""
        return [p for p in range(self.pairs) if len(self._came[p]) == 2]

    def missing(self):
        """The prompt pairs that are not whole."""
        return [p for p in range(self.pairs) if self.prompt[p] and len(self._came[p]) < 2]

    def put(self, sender, step, rank, kind, losses):
        """Takes a frame from the subject of rank sender. Returns what the step takes if the frame decides it, None if it counts, False if not."""
        if rank != sender or rank >= 2 * self.pairs:
            return False
        if kind == STOP:
            self.stop = True
            return None
        if kind == GO_ON:
            if step != self.step or not self.whole():
                return False
            return self._decide()
        p, half = rank // 2, rank % 2
        if self._due[p] != step or half in self._came[p]:
            return False
        self._came[p][half] = losses
        return self._decide() if self.whole() and not self.missing() else None

    def _decide(self):
        taken = [Taken(p, self.step - self._due[p], self._came[p][0], self._came[p][1]) for p in self.whole()]
        for p in self.missing():
            self.prompt[p] = False
        for t in taken:
            self.prompt[t.pair] = t.age <= 1
            self._due[t.pair], self._came[t.pair] = None, {}
        return taken
