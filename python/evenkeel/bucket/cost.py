"""Evaluates what `evenkeel bucket plan` has fitted to a table of trials: seconds, and the largest batch of a length.

The arithmetic has a fixed order, so that all ranks get the same bits."""

import bisect
import json
import math

import numpy

from .schedule import ScheduleError

_CLOSE = 1 + 1e-9


class Costs:
    """The predictions of a plan. name: the plan's name in error messages."""

    def __init__(self, plan, name="plan"):
        if plan.get("pairs"):
            raise ScheduleError(f"{name}: a plan of --pair apart; online, samples have one length: plan with --pair sum or max, or give the lengths")
        if not plan.get("predicts"):
            raise ScheduleError(f"{name}: the plan predicts nothing from a table of trials; make it anew, with --table")
        predicts = plan["predicts"]
        self.pad_to, self.multiple, self.tile = max(1, plan["pad_to"]), max(1, plan["batch_multiple"]), plan.get("tile", 0)
        self._weights, self._room, self._memory = predicts.get("seconds"), predicts.get("room"), predicts["memory"]
        self._lengths = [m["length"] for m in self._memory]
        self.longest = self._lengths[-1]
        self._caps = {}
        if not self._weights:
            self._ran, self._series = [], []  # lengths, and for each its batches with their seconds
            for t, seconds in zip((t for t in plan["table"] if not t.get("out_of_memory")), predicts["smoothed"]):
                if not self._ran or self._ran[-1] != t["length"]:
                    self._ran.append(t["length"])
                    self._series.append([])
                self._series[-1].append((t["batch"], seconds))

    def cap(self, length):
        """The largest batch of a length that fits into memory, or 0."""
        if length not in self._caps:
            n = self._cap(self.padded(length))
            self._caps[length] = n - n % self.multiple if n >= self.multiple else n
        return self._caps[length]

    def padded(self, length):
        """The length after padding."""
        return _up(length, self.pad_to)

    def _cap(self, length):
        if length > self.longest:
            return 0
        fits, out = self._memory[bisect.bisect_left(self._lengths, length)]["fits"], math.inf
        if i := bisect.bisect_right(self._lengths, length):
            out = self._memory[i - 1].get("out", math.inf)
        if self._room:
            room, w1, w2, w3 = self._room
            slope = w1 + length * (w2 + length * w3)
            if slope > 0:
                fits = max(fits, min(math.floor(room / slope + 1e-9), 1 << 24))
        return int(max(0, min(fits, out - 1)))

    def seconds(self, length, batch):
        """Seconds of a batch of samples of a length. Both may be arrays."""
        length, batch = _up(numpy.asarray(length), self.pad_to), _up(numpy.asarray(batch), self.multiple)
        if self._weights:
            w = self._weights
            if self.tile:
                tokens = _up(batch * length, self.tile)
                return numpy.maximum(w[0] + batch * w[1] + tokens * (w[2] + length * w[3]), 1e-12)
            return numpy.maximum(w[0] + batch * (w[1] + length * (w[2] + length * w[3])), 1e-12)
        shape = numpy.broadcast(length, batch).shape
        length, batch = (numpy.atleast_1d(numpy.broadcast_to(x, shape)) for x in (length, batch))
        out = numpy.empty(len(length))
        at = numpy.searchsorted(self._ran, length)
        for i in numpy.unique(at):
            here = at == i
            l, b = length[here], batch[here]
            if i == len(self._ran):
                out[here] = _along(self._series[i - 1], b) * l / self._ran[i - 1]
            elif i == 0:
                out[here] = _along(self._series[0], b)
            else:
                low, high = _along(self._series[i - 1], b), _along(self._series[i], b)
                u = (l - self._ran[i - 1]) / (self._ran[i] - self._ran[i - 1])
                out[here] = low + u * (high - low)
        return out.reshape(shape)

    def most(self, lengths, budget, most):
        """The largest batch of each length, at most `most`, that lasts no longer than the budget; at least 1. All are arrays."""
        low, high = numpy.ones_like(most), numpy.maximum(most, 1) + 1  # low fits the budget, or is 1; high does not fit, or is above most
        while (high - low > 1).any():
            middle = (low + high) // 2
            fits = self.seconds(lengths, middle) <= budget * _CLOSE
            low, high = numpy.where(fits & (middle > low), middle, low), numpy.where(fits, high, middle)
            high = numpy.maximum(high, low + 1)
        return low

    def efficient(self, length):
        """The batch, up to cap(length), with the least time per sample; 0 if none fits."""
        top = self.cap(length)
        tries = {1, top, self.multiple}
        if self._weights and self.tile:  # whole tiles
            ends = numpy.arange(self.tile, top * self.padded(length) + 1, self.tile) // self.padded(length)
            tries |= set((ends - ends % self.multiple).tolist())
        if not self._weights:
            i = min(bisect.bisect_left(self._ran, self.padded(length)), len(self._ran) - 1)
            for s in self._series[max(0, i - 1):i + 1]:
                for b, _ in s:
                    tries |= {b - b % self.multiple, _up(b, self.multiple)}
        tries = sorted(b for b in tries if 1 <= b <= top)
        if not tries:
            return 0
        rates = self.seconds(length, numpy.array(tries)) / numpy.array(tries)
        return tries[int(numpy.argmin(rates))]


def measured(path):
    """The cost of samples by a plan's table of trials, for BatchLoader(cost=): seconds per sample of the most efficient batch of each length."""
    costs = Costs(read_plan(path), path)

    def cost(lengths):
        distinct, at = numpy.unique(lengths, return_inverse=True)
        best = [costs.efficient(int(n)) for n in distinct]
        if 0 in best:
            raise ScheduleError(f"{path}: a sample of length {distinct[best.index(0)]} fits into no batch: profile longer lengths, or leave the sample out")
        return numpy.array([float(costs.seconds(int(n), b)) / b for n, b in zip(distinct, best)])[at]

    return cost


def read_plan(path):
    """Reads a plan file."""
    try:
        with open(path, "rb") as f:
            plan = json.load(f)
    except OSError as e:
        raise ScheduleError(f"plan: {e}") from None
    except ValueError:
        raise ScheduleError(f"{path}: not a plan of `evenkeel bucket plan`") from None
    if not isinstance(plan, dict) or plan.get("version") != 2 or not isinstance(plan.get("checksum"), str):
        raise ScheduleError(f"{path}: not a plan of version 2 of `evenkeel bucket plan`")
    return plan


def _along(cells, batch):
    """Interpolates over the batch. Beyond the last trial it goes on with the last slope; below the first it is at least proportional."""
    x, y = numpy.array(cells, float).T
    if len(x) == 1:
        return numpy.where(batch <= x[0], y[0], y[0] * batch / x[0])
    i = numpy.clip(numpy.searchsorted(x, batch), 1, len(x) - 1)
    line = y[i - 1] + (batch - x[i - 1]) / (x[i] - x[i - 1]) * (y[i] - y[i - 1])
    return numpy.where(batch < x[0], numpy.maximum(y[0] * batch / x[0], line), line)


def _up(x, to):
    """Rounds up to a multiple."""
    return -(-x // to) * to
