"""Predicts seconds and the largest batch of a length from a plan's table, as `evenkeel bucket` does.

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
        try:
            table, self.limit = plan["table"], float(plan["memory_bytes"])
            self.pad_to, self.multiple = max(1, plan["pad_to"]), max(1, plan["batch_multiple"])
            prediction = plan["prediction"]
        except (KeyError, TypeError):
            raise ScheduleError(f"{name}: not a plan of `evenkeel bucket plan`") from None
        if plan.get("pairs"):
            raise ScheduleError(f"{name}: a plan of --pair apart; online, samples have one length: plan with --pair sum or max, or give the lengths")
        if not table:
            raise ScheduleError(f"{name}: the plan has no table of trials; make it with --table")
        ran = [t for t in table if not t.get("out_of_memory")]
        if not ran:
            raise ScheduleError(f"{name}: no trial of the table ran")
        if self.limit <= 0:
            self.limit = max(float(t.get("peak_bytes", 0)) for t in ran)
        self._memory(table)
        self.longest = self._steps[-1][0]
        self._peak = None
        if all(t.get("peak_bytes") for t in ran):
            fitted = _fit(ran, "peak_bytes")
            if fitted and fitted[1] <= 0.02:
                self._peak = fitted
        self._time = None
        if prediction == "fit":
            self.tile = int(plan.get("tile", 0))
            self._time = _fit(ran, "seconds", self.tile)
            if self._time is None:
                raise ScheduleError(f"{name}: the table does not give the fit that the plan names")
        else:
            self._smooth(ran)
        self._caps = {}

    def _memory(self, table):
        """Finds for each length of the table the largest batch that fits and the smallest that does not."""
        steps, bad = [], math.inf
        for t in table:
            if not steps or steps[-1][0] != t["length"]:
                steps.append([t["length"], 0, bad])
            if t.get("out_of_memory"):
                bad = min(bad, t["batch"])
                steps[-1][2] = bad
            elif self.limit <= 0 or t.get("peak_bytes", 0) <= self.limit:
                steps[-1][1] = max(steps[-1][1], t["batch"])
        for i in range(len(steps) - 2, -1, -1):
            steps[i][1] = max(steps[i][1], steps[i + 1][1])
        self._steps = steps
        self._lengths = [s[0] for s in steps]

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
        fits, bad = self._steps[bisect.bisect_left(self._lengths, length)][1], math.inf
        if i := bisect.bisect_right(self._lengths, length):
            bad = self._steps[i - 1][2]
        if self._peak:
            w, worst = self._peak
            slope = w[1] + length * (w[2] + length * w[3])
            if slope > 0:
                fits = max(fits, min(math.floor((self.limit / (1 + worst) - w[0]) / slope + 1e-9), 1 << 24))
        return int(max(0, min(fits, bad - 1)))

    def seconds(self, length, batch):
        """Seconds of a batch of samples of a length. Both may be arrays."""
        length, batch = _up(numpy.asarray(length), self.pad_to), _up(numpy.asarray(batch), self.multiple)
        if self._time:
            w = self._time[0]
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
        if self._time and self.tile:  # whole tiles
            ends = numpy.arange(self.tile, top * self.padded(length) + 1, self.tile) // self.padded(length)
            tries |= set((ends - ends % self.multiple).tolist())
        if not self._time:
            i = min(bisect.bisect_left(self._ran, self.padded(length)), len(self._ran) - 1)
            for s in self._series[max(0, i - 1):i + 1]:
                for b, _ in s:
                    tries |= {b - b % self.multiple, _up(b, self.multiple)}
        tries = sorted(b for b in tries if 1 <= b <= top)
        if not tries:
            return 0
        rates = self.seconds(length, numpy.array(tries)) / numpy.array(tries)
        return tries[int(numpy.argmin(rates))]

    def _smooth(self, ran):
        """Makes seconds rise with batch and length: isotonic regression of their logarithms, alternately by batch and by length."""
        self._ran, self._series = [], []
        for t in ran:
            if not self._ran or self._ran[-1] != t["length"]:
                self._ran.append(t["length"])
                self._series.append([])
            self._series[-1].append([t["batch"], t["seconds"]])
        by_batch = {}
        for s in self._series:
            for cell in s:
                by_batch.setdefault(cell[0], []).append(cell)
        for _ in range(20):
            moved = 0.0
            for cells in (*self._series, *by_batch.values()):
                y = [math.log(c[1]) for c in cells]
                for c, old, new in zip(cells, y, _isotonic(y)):
                    moved = max(moved, abs(new - old))
                    c[1] = math.exp(new)
            if moved < 1e-6:
                break
        for s in self._series:
            for before, cell in zip(s, s[1:]):
                cell[1] = max(cell[1], before[1])


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


def _isotonic(y):
    """Isotonic regression: pools adjacent violators."""
    blocks = []
    for v in y:
        total, n = v, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / n:
            t, m = blocks.pop()
            total, n = total + t, n + m
        blocks.append((total, n))
    return [t / n for t, n in blocks for _ in range(n)]


def _up(x, to):
    """Rounds up to a multiple."""
    return -(-x // to) * to


def _fit(rows, field, tile=0):
    """Fits the terms 1, B, B L and B L^2 by least squares of the relative error. Weights are positive, and the terms are those with the least
    Bayesian information criterion. B L is rounded up to whole tiles. Returns the weights and the worst relative error, or None."""
    if len(rows) < 6:
        return None
    tokens = [_up(t["batch"] * t["length"], tile or 1) for t in rows]
    x = numpy.array([[1, t["batch"], n, n * float(t["length"])] for t, n in zip(rows, tokens)], float)
    y = [float(t[field]) for t in rows]
    scale = x.max(axis=0)
    best, least = None, math.inf
    for terms in range(1, 16):
        use = [k for k in range(4) if terms >> k & 1]
        w = _solve(x, y, scale, use)
        if w is None:
            continue
        errors = [sum(w[k] * b[k] for k in range(4)) / v - 1 for b, v in zip(x.tolist(), y)]
        n = len(rows)
        bic = n * math.log(sum(e * e for e in errors) / n + 1e-16) + sum(k > 0 for k in use) * math.log(n)
        if bic < least:
            best, least = (w, max(abs(e) for e in errors)), bic
    return best


def _solve(x, y, scale, use):
    by = y
    w = None
    for _ in range(2):  # relative to the measurements, then to the first fit
        if min(by) <= 0:
            return None
        a = [[r[k] / scale[k] / v for k in use] for r, v in zip(x.tolist(), by)]
        found = _least_squares(a, [t / v for t, v in zip(y, by)])
        if found is None or min(found) <= 0:
            return None
        w = [0.0] * 4
        for k, v in zip(use, found):
            w[k] = float(v / scale[k])
        by = [sum(w[k] * r[k] for k in range(4)) for r in x.tolist()]
    return w


def _least_squares(a, b):
    """Least squares by Gram-Schmidt. Plain loops give the same bits on every machine."""
    n = len(a[0])
    q = [[r[k] for r in a] for k in range(n)]
    upper = [[0.0] * n for _ in range(n)]
    b, d = list(b), []
    for k in range(n):
        norm = math.sqrt(sum(v * v for v in q[k]))
        if norm < 1e-14:
            return None
        upper[k][k] = norm
        q[k] = [v / norm for v in q[k]]
        for j in range(k + 1, n):
            dot = upper[k][j] = sum(u * v for u, v in zip(q[k], q[j]))
            q[j] = [v - dot * u for u, v in zip(q[k], q[j])]
        dot = sum(u * v for u, v in zip(q[k], b))
        d.append(dot)
        b = [v - dot * u for u, v in zip(q[k], b)]
    for k in range(n - 1, -1, -1):
        d[k] = (d[k] - sum(upper[k][j] * d[j] for j in range(k + 1, n))) / upper[k][k]
    return d
