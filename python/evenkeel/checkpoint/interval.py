"""How many steps to let pass between two saves: as few as the time may cost. The rule is that of checkpoint/interval.go, which has its source."""

import math

_REMEMBERED = 32  # measurements of each sort
_NEEDED = 3  # of each sort, before anything is concluded


def _middle(values):
    """The mean without the lowest and the highest eighth: one interruption of the machine does not count."""
    s = sorted(values)
    s = s[len(s) // 8 : len(s) - len(s) // 8]
    return sum(s) / len(s)


class Interval:
    """budget: the share of time that saving may add. It reads no clock."""

    def __init__(self, budget=0.01):
        if not 0 < budget < 1:
            raise ValueError(f"budget is {budget}, must be above 0 and below 1")
        self.budget = budget
        self._quiet, self._costs, self._persist = [], [], []
        self._saving = False  # a save was begun and not accounted for
        self._spent, self._touched, self._unfinished = 0.0, 0, 0

    @staticmethod
    def _remember(values, x):
        values.append(x)
        del values[:-_REMEMBERED]

    def step(self, seconds, begun, saving):
        """A training step's duration, whether a save was begun in it, and whether one was under way at any moment of it."""
        if self._saving and (begun or not saving):  # the save before is accounted for
            if self._quiet:
                self._remember(self._costs, self._spent - self._touched * _middle(self._quiet))
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
        self._remember(self._quiet, seconds)

    def saved(self, seconds):
        """The time from a save's first write until it was durable."""
        self._remember(self._persist, seconds)

    def steps(self):
        """1 saves every step. Until enough was measured it leaves a step without a save after each."""
        if min(len(self._quiet), len(self._costs), len(self._persist)) < _NEEDED:
            return 2 + self._unfinished
        step = max(1e-9, _middle(self._quiet))
        cost = max(0.0, _middle(self._costs))
        k = math.ceil((_middle(self._persist) - cost) / step)  # the next save does not meet this one
        return min(max(k, math.ceil(cost / (self.budget * step)), 1), 1 << 20)
