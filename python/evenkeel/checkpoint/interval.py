"""The shortest interval between saves that a budget of time allows. checkpoint/interval.go has the same rule, and its source."""

import collections
import math

_REMEMBERED = 32  # measurements of each kind
_NEEDED = 3  # measurements of each kind before they are used


def _middle(values):
    """The mean without the lowest and the highest eighth, so that single interruptions do not count."""
    s = sorted(values)
    s = s[len(s) // 8 : len(s) - len(s) // 8]
    return sum(s) / len(s)


class Interval:
    """budget: the share of time that saving may take."""

    def __init__(self, budget=0.01):
        if not 0 < budget < 1:
            raise ValueError(f"budget is {budget}, must be above 0 and below 1")
        self.budget = budget
        self._quiet, self._costs, self._persist = (collections.deque(maxlen=_REMEMBERED) for _ in range(3))
        self._saving = False  # a save was begun and its cost is not known yet
        self._spent, self._touched, self._unfinished = 0.0, 0, 0

    def step(self, seconds, begun, saving):
        """Reports a training step: its duration, whether a save was begun in it, and whether a save was running at any time in it."""
        if self._saving and (begun or not saving):  # the save before is over
            if self._quiet:
                self._costs.append(self._spent - self._touched * _middle(self._quiet))
            self._saving = False
        if begun:
            self._saving, self._spent, self._touched = True, seconds, 1
        elif saving:
            self._spent += seconds
            self._touched += 1
        if begun or saving:
            self._unfinished += 1
            return
        self._unfinished = 0
        self._quiet.append(seconds)

    def saved(self, seconds):
        """Reports the time from a save's first write until it was durable."""
        self._persist.append(seconds)

    def steps(self):
        """The interval; 1 saves every step. Until there are enough measurements, a step without a save follows each save."""
        if min(len(self._quiet), len(self._costs), len(self._persist)) < _NEEDED:
            return 2 + self._unfinished
        step = max(1e-9, _middle(self._quiet))
        cost = max(0.0, _middle(self._costs))
        k = math.ceil((_middle(self._persist) - cost) / step)  # so that saves do not overlap
        return min(max(k, math.ceil(cost / (self.budget * step)), 1), 1 << 20)
