"""Computes increments from losses, in float64, in the order of docs/reference/forward-protocol.md. Python never fuses products and sums."""

import dataclasses
import math

from .header import Refused


@dataclasses.dataclass
class Taken:
    """A pair's contribution to a step: its age, and the losses of both inputs from its even and its odd rank."""

    pair: int
    age: int  # steps since the pair was due
    even: tuple
    odd: tuple

    def losses(self):
        return self.even[0], self.odd[0], self.even[1], self.odd[1]

    def means(self):
        return [(self.even[0] + self.even[1]) / 2, (self.odd[0] + self.odd[1]) / 2]

    def finite(self):
        return all(map(math.isfinite, self.losses()))


@dataclasses.dataclass
class Slope:
    """The slope of the loss along what a rank tried, times epsilon."""

    rank: int
    pair: int
    age: int
    value: float


@dataclasses.dataclass
class Step:
    """A decided step: bits of the pairs of age 0, an increment for each direction, and (pair, age, increment) for each late pair."""

    pairs: int
    increments: list
    late: list
    left_out: tuple = ()  # pairs with a loss that is not finite, or with a spike
    loss: float = None  # the mean of the losses; None if none was finite or if the step was read from a block


@dataclasses.dataclass
class Running:
    """The state that a step leaves to the next: the running mean square of the slopes, and the guard's state."""

    square: float = 0.0
    scale: float = 1.0
    best: float = math.nan
    best_error: float = 0.0


def rate(config, j):
    """The learning rate of step j."""
    if config.schedule == "constant":
        return config.learning_rate
    return config.learning_rate * (0.5 * (1 + _cosine(j / config.steps)))


def _cosine(u):
    if u > 0.5:
        return -_cosine(1 - u)
    x = u * math.pi
    square, y = x * x, 1.0
    for k in range(22, 0, -2):
        y = 1 - square * y / (k * (k - 1))
    return y


def increments(config, running, j, taken):
    """Computes a step from the pairs that count, in ascending order, and updates running."""
    good = [t for t in taken if t.finite()]
    v = max(running.square, 1e-13)
    spikes = {s.pair for s in _slopes(config, good, _median) if running.square > 0 and s.value * s.value > 256 * v}
    good = [t for t in good if t.pair not in spikes]
    slopes = _slopes(config, good, _mean)
    squares = [4 * len(spikes) * v] * bool(spikes) + [s.value * s.value for s in slopes]
    if any(squares):  # else a trial changes no loss
        mean = _sum(squares) / (len(squares) - bool(spikes) + 2 * len(spikes))
        if j == 1:  # the first step had nothing to tell a spike by
            running.square = min(running.square, 16 * mean)
        running.square = running.square + (mean - running.square) / min(j + 1, 32) if running.square else mean
    unit = math.sqrt(max(running.square, 1e-13))
    out = tuple(t.pair for t in taken if not t.finite() or t.pair in spikes)
    if not good:
        return Step(0, [0] * config.directions, [], out)
    f = rate(config, j) * running.scale / (2 * math.sqrt(sum(config.examples) * sum(config.examples[t.pair] for t in good)))
    bound = math.floor(2.0**25 / config.processors)

    def weighted(s):
        x = s.value / unit
        if config.clip > 0:
            x = min(max(x, -config.clip), config.clip)
        return config.examples[s.pair] * x

    def quantise(x):
        return max(-bound, min(bound, round(-x * f * 2.0**24)))

    sums = [0.0] * config.directions
    for s in slopes:
        if not s.age:
            d = config.direction(s.rank)
            sums[d] = sums[d] + weighted(s)
    late = [(s.pair, s.age, quantise(weighted(s))) for s in slopes if s.age and s.rank % 2 == 0]  # the odd rank's is the same, reversed
    loss = _sum(l for t in good for l in t.losses()) / (4 * len(good))
    return Step(sum(1 << t.pair for t in good if t.age == 0), [quantise(x) for x in sums], late, out, loss)


def _sum(values):
    """The sum from left to right. The built-in sum rounds differently in newer versions of Python."""
    total = 0.0
    for v in values:
        total = total + v
    return total


def _mean(losses):
    return _sum(losses) / len(losses)


def _median(losses):
    """What one loss, however large, cannot move far."""
    order, half = sorted(losses), len(losses) // 2
    return (order[half - 1] + order[half]) / 2


def _slopes(config, good, center):
    """The slope of each rank: its loss above a center of the losses that are compared. With "each" these are all that came in time, else those of a
    pair; a late pair had other weights and examples, and is compared with itself."""
    prompt = [m for t in good if not t.age for m in t.means()]
    middle = center(prompt) if config.estimator == "each" and prompt else None
    out = []
    for t in good:
        m = center(t.means()) if middle is None or t.age else middle
        out += [Slope(2 * t.pair + half, t.pair, t.age, config.sign(half) * (x - m)) for half, x in enumerate(t.means())]
    return out


def guard(running, losses, on):
    """Returns the mean of a block's losses. If on, halves the scale at the end of a block that is clearly worse than the best."""
    if not losses:
        return math.nan
    c = len(losses)
    mu = _sum(losses) / c
    if not on:
        return mu
    error = max(0.0, _sum(l * l for l in losses) / c - mu * mu) / c
    if math.isnan(running.best) or mu < running.best:
        running.best, running.best_error = mu, error
    elif mu - running.best > 4 * math.sqrt(error + running.best_error):
        running.scale = running.scale / 2
        running.best, running.best_error = mu, error
    return mu


def amounts(config, s, j):
    """What step j adds to the weights: (direction, step of the direction, amount in units of 2^-24) each."""
    out = [(d, j, n) for d, n in enumerate(s.increments)]
    for pair, age, n in s.late:
        if age > j:
            raise Refused(f"step {j}: pair {pair} has the impossible age {age}")
        out += [(config.direction(2 * pair), j - age, n), (config.direction(2 * pair + 1), j - age, -config.sign(2 * pair + 1) * n)]
    return [o for o in out if o[2]]
