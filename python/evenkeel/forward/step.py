"""From losses to increments, in float64 and in the order of the protocol's page. Python's floats are float64, and fuse nothing."""

import dataclasses
import math

from .header import Refused


@dataclasses.dataclass
class Taken:
    """What a pair put into a step: its age, and the losses of both inputs from the even and the odd rank."""

    pair: int
    age: int
    plus: tuple
    minus: tuple

    def finite(self):
        return all(map(math.isfinite, self.plus + self.minus))


@dataclasses.dataclass
class Step:
    """A decided step: the pairs of age 0 as bits, an increment per direction, and (pair, age, increment) of the others."""

    pairs: int
    increments: list
    late: list
    loss: float = None  # of the pairs, None where none is finite or it came in a block


@dataclasses.dataclass
class Running:
    """What is carried from step to step: the running mean square, and the guard's state."""

    square: float = 0.0
    scale: float = 1.0
    best: float = math.nan
    best_error: float = 0.0



def repeats(m):
    """The amounts m^k that momentum repeats, k = 1 and on, in units of 2^-24."""
    out, x = [], m
    while x >= 0.05:
        out.append(round(x * 2.0**24))
        x = x * m
    return out


def rate(config, j):
    u, r = j / config.steps, config.learning_rate
    if config.schedule == "constant":
        return r
    if config.schedule == "linear":
        return r * (1 - u)
    return r * (0.5 * (1 + _cosine(u)))


def _cosine(u):
    if u > 0.5:
        return -_cosine(1 - u)
    x = u * math.pi
    square, y = x * x, 1.0
    for k in range(22, 0, -2):
        y = 1 - square * y / (k * (k - 1))
    return y


def increments(config, running, j, taken):
    """The step that the pairs which count, in ascending order, decide; running moves on."""
    pairs, g = config.processors // 2, config.directions
    good = [t for t in taken if t.finite()]
    if not good:
        return Step(0, [0] * g, [])
    prompt, late = _each(good) if config.estimator == "each" else _pairs(config, good)
    fed = [d for _, _, d in (prompt if config.estimator == "each" else sorted(prompt + late, key=lambda e: e[1].pair))]
    if config.normalize and fed:
        total = 0.0
        for d in fed:
            total = total + d * d
        mean = total / len(fed)
        running.square = running.square + (mean - running.square) / min(j + 1, 32)
    by = math.sqrt(max(running.square, 1e-13)) if config.normalize else config.epsilon
    trials = pairs if config.estimator != "each" else 2 * pairs
    divisor = math.sqrt(sum(config.examples) * sum(config.examples[t.pair] for t in good))
    f = rate(config, j) * running.scale / (divisor * (trials // pairs))
    bound = math.floor(2.0**25 / trials * (1 - config.momentum) / (5 if config.kind == "gaussian" else 1))

    def weighted(t, d):
        x = d / by
        if config.clip > 0:
            x = min(max(x, -config.clip), config.clip)
        return config.examples[t.pair] * x

    def quantise(s):
        return max(-bound, min(bound, round(-s * f * 2.0**24)))

    sums = [0.0] * g
    for direction, t, d in prompt:
        sums[direction] = sums[direction] + weighted(t, d)
    after = [(t.pair, t.age, quantise(weighted(t, d))) for _, t, d in late]
    loss = 0.0
    for t in good:
        for l in (t.plus[0], t.minus[0], t.plus[1], t.minus[1]):
            loss = loss + l
    return Step(sum(1 << t.pair for t in good if t.age == 0), [quantise(s) for s in sums], after, loss / (4 * len(good)))


def _pairs(config, good):
    """(direction, pair, half difference) of the pairs of age 0, and of the others."""
    every = [(config.direction(2 * t.pair), t, ((t.plus[0] - t.minus[0]) + (t.plus[1] - t.minus[1])) / 4) for t in good]
    return [e for e in every if e[1].age == 0], [e for e in every if e[1].age > 0]


def _each(good):
    """The same with a direction for each rank: what its loss is above the mean; late pairs by their own half difference."""
    losses = [(2 * t.pair + half, t, (l[0] + l[1]) / 2) for t in good for half, l in enumerate((t.plus, t.minus))]
    total, prompt = 0.0, [e for e in losses if e[1].age == 0]
    for _, _, l in prompt:
        total = total + l
    late = [(r, t, (l - other) / 2) for (r, t, l), (_, _, other) in zip(losses[::2], losses[1::2]) if t.age > 0]
    return [(r, t, l - total / len(prompt)) for r, t, l in prompt], late


def guard(running, losses):
    """At the end of a block: halves the scale when its losses are clearly above the best block's. Gives the losses' mean, None without any."""
    if not losses:
        return None
    total, squares = 0.0, 0.0
    for l in losses:
        total, squares = total + l, squares + l * l
    c = len(losses)
    mu = total / c
    error = max(0.0, squares / c - mu * mu) / c
    if math.isnan(running.best) or mu < running.best:
        running.best, running.best_error = mu, error
    elif mu - running.best > 4 * math.sqrt(error + running.best_error):
        running.scale = running.scale / 2
        running.best, running.best_error = mu, error
    return mu


def amounts(config, steps, j):
    """Everything that step j adds: (direction, step of that direction, amount in units of 2^-24). steps are all decided ones up to j, the last
    of them j's; as many before it as momentum repeats must be there."""

    def of(at, k):
        s = steps[-1 - k]
        yield from ((d, at, n) for d, n in enumerate(s.increments))
        for pair, age, n in s.late:
            if age > at:
                raise Refused(f"step {at}: pair {pair} of age {age}")
            yield config.direction(2 * pair), at - age, n
            if config.estimator == "each":
                yield 2 * pair + 1, at - age, -n

    out = list(of(j, 0))
    for k, a in enumerate(repeats(config.momentum), 1):
        if k > j:
            break
        out += [(d, at, (n * a + (1 << 23)) >> 24) for d, at, n in of(j - k, k)]
    return [o for o in out if o[2]]
