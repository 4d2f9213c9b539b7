"""What a window of samples is worth: how short an epoch can be whose batches are cut from so many samples, of online.py's lengths and cost.

    /usr/bin/python3 experiments/bucket/window.py

Three columns, over the offline lower bound, without any waiting of ranks.
Shard: the 3,750 samples that one of eight ranks draws, all known at once and cut by dynamic programming: no dispatcher is shorter whose ranks
  keep the samples that they drew unseen, whatever its window. Where the windows of eight ranks are one: all samples, likewise.
Fresh windows: the same for each window's worth of samples, one after the other.
Filled ranges: a window that is filled up after every batch. Lengths are cut into ranges for good; a range collects samples until it has a batch. It then
  holds half a batch in the mean, so the batches of all ranges have twice as many samples as the window. Ranges and batches as they cost least,
  found by dynamic programming with a price for a place in the window; an epoch that never ends, a window without remainder."""

import math

import numpy
from online import OVERHEAD, SQUARE, TOKEN, bound, cap, lognormal, pareto

GROUPS = 500  # of lengths, of equal work, at whose ends a range may end


def cut(lengths):
    """The least seconds of batches of neighbours by length, each within memory."""
    lengths = numpy.sort(lengths)[::-1]
    n = len(lengths)
    left = numpy.full(n + 1, math.inf)
    left[n] = 0
    for i in range(n - 1, -1, -1):
        b = numpy.arange(1, min(cap(int(lengths[i])), n - i) + 1)
        left[i] = (OVERHEAD + b * lengths[i] * (TOKEN + SQUARE * lengths[i]) + left[i + b]).min()
    return left[0]


def filled(lengths, window):
    """Seconds per sample with ranges that hold the window between them; and how many ranges."""
    values, counts = numpy.unique(lengths, return_counts=True)
    work = numpy.cumsum(counts * (values * (TOKEN + SQUARE * values) + OVERHEAD / numpy.array([cap(int(v)) for v in values])))
    group = numpy.minimum((work / work[-1] * GROUPS).astype(int), GROUPS - 1)
    ends = numpy.r_[numpy.nonzero(numpy.diff(group))[0], len(values) - 1]
    upper, part = values[ends], numpy.r_[0, numpy.cumsum(counts)[ends]] / counts.sum()
    each, most = upper * (TOKEN + SQUARE * upper), numpy.array([cap(int(v)) for v in upper], float)
    low, high, found = -40.0, 0.0, None
    for _ in range(40):
        price = math.exp((low + high) / 2)
        least, held, ranges = numpy.zeros((3, len(upper) + 1))
        for j in range(1, len(upper) + 1):
            share = part[j] - part[:j]
            batch = numpy.clip(numpy.sqrt(2 * share * OVERHEAD / price), 1, most[j - 1])
            total = least[:j] + share * (OVERHEAD / batch + each[j - 1]) + price * batch / 2
            i = int(total.argmin())
            least[j], held[j], ranges[j] = total[i], held[i] + batch[i] / 2, ranges[i] + 1
        if held[-1] > window:
            low = (low + high) / 2
        else:
            high, found = (low + high) / 2, (least[-1] - price * held[-1], int(ranges[-1]))
    return found


def main():
    print("| lengths | window | shard | fresh windows | filled ranges | ranges |\n|---|---|---|---|---|---|")
    for name, draw in (("lognormal", lognormal), ("Pareto 1.05", pareto)):
        lengths = draw(30000, numpy.random.default_rng(1))
        order, least = numpy.random.RandomState(0).permutation(len(lengths)), bound(lengths, [1])
        of = lambda size: sum(cut(lengths[order[at:at + size]]) for at in range(0, len(order), size)) / least
        for window, pooled in ((1024, False), (256, False), (8 * 1024, True), (8 * 256, True)):
            seconds, ranges = filled(lengths, window)
            print(f"| {name} | {window}{' of eight ranks' if pooled else ''} | {of(30000 if pooled else 3750):.3f} | {of(window):.3f} | {seconds * len(lengths) / least:.3f} | {ranges} |")


if __name__ == "__main__":
    main()
