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

    def finite(self):
        return all(map(math.isfinite, self.losses()))


@dataclasses.dataclass
class Slope:
    """The measured slope along a rank's direction, times epsilon. With "pairs", and if the pair is late, both ranks have one slope, under the even rank."""

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
    pairs, each = config.processors // 2, config.estimator == "each"
    slopes, good = _each if each else _paired, [t for t in taken if t.finite()]
    v = max(running.square, 1e-13)
    spikes = {s.pair for s in slopes(good, _median) if running.square > 0 and s.value * s.value > 256 * v}
    good = [t for t in good if t.pair not in spikes]
    slopes = slopes(good, _mean)
    squares = [2 * len(spikes) * v] * bool(spikes) + [s.value * s.value for s in slopes if not (each and s.age)]
    if any(squares):  # else a trial changes no loss
        mean = _sum(squares) / (len(squares) - bool(spikes) + len(spikes))
        if j == 1:  # the first step had nothing to tell a spike by
            running.square = min(running.square, 16 * mean)
        running.square = running.square + (mean - running.square) / min(j + 1, 32) if running.square else mean
    unit = math.sqrt(max(running.square, 1e-13))
    out = tuple(t.pair for t in taken if not t.finite() or t.pair in spikes)
    if not good:
        return Step(0, [0] * config.directions, [], out)
    trials = 2 * pairs if each else pairs
    divisor = math.sqrt(sum(config.examples) * sum(config.examples[t.pair] for t in good))
    f = rate(config, j) * running.scale / (divisor * (trials // pairs))
    bound = math.floor(2.0**25 / trials)

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
    late = [(s.pair, s.age, quantise(weighted(s))) for s in slopes if s.age]
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


def _paired(good, center):
    """Half the difference of the losses of each pair."""
    return [Slope(2 * t.pair, t.pair, t.age, ((t.even[0] - t.odd[0]) + (t.even[1] - t.odd[1])) / 4) for t in good]


def _each(good, center):
    """The slope of each rank in time: its loss minus the center of these ranks. The slope of a late pair: half the difference of its losses."""
    slopes = []
    for t in good:
        even, odd = (t.even[0] + t.even[1]) / 2, (t.odd[0] + t.odd[1]) / 2
        if t.age:
            slopes.append(Slope(2 * t.pair, t.pair, t.age, (even - odd) / 2))
        else:
            slopes += [Slope(2 * t.pair, t.pair, 0, even), Slope(2 * t.pair + 1, t.pair, 0, odd)]
    prompt = [s for s in slopes if not s.age]
    middle = center([s.value for s in prompt]) if prompt else 0
    for s in prompt:
        s.value = s.value - middle
    return slopes


def guard(running, losses):
    """Halves the scale at the end of a block whose losses are clearly above those of the best block. Returns their mean, or None."""
    if not losses:
        return None
    c = len(losses)
    mu = _sum(losses) / c
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
        out.append((config.direction(2 * pair), j - age, n))
        if config.estimator == "each":
            out.append((2 * pair + 1, j - age, -n))
    return [o for o in out if o[2]]
