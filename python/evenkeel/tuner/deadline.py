"""Rounds that end at a deadline: the size of a rank's next micro-step, the samples it takes, and the next deadline. It uses only the standard library
and no clock: times are arguments, so that tests can simulate any round.

    node, order = deadline.rank(sizes, rank)                # of a sizes file, read by json.load
    work = deadline.Accumulation(node, order)
    while size := work.next(seconds since the round began):
        ...                                                 # forward and backward of size samples, as a sum
        work.done(size, seconds of this micro-step)
    work.samples                                            # its weight among the ranks

It is the same state machine as cluster.Accumulation in Go: internal/vectors/deadline-accumulation.json checks that both take the same sizes. The loop around
it is in docs/guides/trainers.md.
"""

import math
import re

MAX_MICRO_STEPS = 1 << 14

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_SHARE = re.compile(rf"\s*([+-]?{_NUMBER}(?:[eE][+-]?[0-9]+)?)(%?)\s*")
_DURATION = re.compile(rf"[+-]?(?:{_NUMBER}(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+")
_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def fault(deadline):
    """What is wrong with a deadline as the service takes it ("auto", "1.5s", "110%"), "" if nothing: the rule of cluster.ParseDeadline in Go."""
    form = 'give "auto", a duration ("1.5s"), a share of the predicted time ("110%"), or "" to wait for all'
    if not isinstance(deadline, str) or len(deadline) > 32:  # as long as the service reads
        return form
    if deadline == "auto":
        return ""
    share, duration = _SHARE.fullmatch(deadline), _DURATION.fullmatch(deadline)
    if share:
        value = float(share[1]) / (100 if share[2] else 1)
        if math.isinf(value):
            return form
        if value <= 0:
            return 'a deadline must lie above 0, as in "2s" or "110%", or be "auto"'
        if deadline.strip("0123456789") == "":
            return f'it has no unit; give "{deadline}s" for seconds, or a share of the predicted time ("110%")'
        if not 0.1 <= value <= 10:
            return 'a share of the predicted time must lie in 0.1..10; a longer deadline is a duration ("2s")'
    elif not duration:
        return form
    else:
        seconds = sum(float(n) * _UNITS[u] for n, u in re.findall(rf"({_NUMBER})([a-z\u00b5\u03bc]+)", deadline))
        if deadline[0] == "-" or not 1e-9 <= seconds <= 3.6e6:
            return "a duration must lie above 0, and be at most 1000h"
    return ""


class Node:
    """The micro-batches that a rank takes: any from least to limit, or those of shapes up to limit. points are measured
    (samples, seconds), both rising, from one sample on and up to limit; without them time is taken to be proportional to samples."""

    def __init__(self, limit, least=1, shapes=None, points=None):
        self.limit, self.least, self.shapes, self.points = limit, max(least, 1), shapes or [], points or []
        if self.floor(limit) < 1:
            raise ValueError(f"limit {limit} is below the smallest micro-batch, {(self.shapes or [self.least])[0]}")
        if any(b <= a or t < s for (a, s), (b, t) in zip(self.points, self.points[1:])):
            raise ValueError("points must rise in samples and seconds")

    def floor(self, most):
        """The largest micro-batch up to most, 0 if there is none."""
        most = min(most, self.limit)
        if self.shapes:
            return max((s for s in self.shapes if s <= most), default=0)
        return most if most >= self.least else 0

    def cost(self, size):
        """The cost of a micro-step, in units of Order.pace: samples, or its measured seconds."""
        if not self.points:
            return float(size)
        p = self.points
        if len(p) == 1:
            return p[0][1] * size / p[0][0]
        k = 1  # the segment, or the nearest one
        while k < len(p) - 1 and p[k][0] < size:
            k += 1
        (a, s), (b, t) = p[k - 1], p[k]
        return s + (size - a) * (t - s) / (b - a)

    def within(self, cost, most):
        """The largest micro-batch up to most that costs no more."""
        sizes = [s for s in self.shapes if s <= most] if self.shapes else range(self.least, most + 1)
        low, high = 0, len(sizes)  # bisection: costs do not fall
        while low < high:
            mid = (low + high) // 2
            if self.cost(sizes[mid]) <= cost:
                low = mid + 1
            else:
                high = mid
        return sizes[low - 1] if low else 0


class Order:
    """A rank's order in a round. deadline: seconds of work; 0: none, the rank computes its share. pace: believed seconds per unit of Node.cost: per
    sample, or with points 1 for a rank as fast as measured. reserve: share of the time left that the last micro-step keeps free. whole: full
    micro-steps only. overtime: seconds of the longest micro-step after the deadline (Accumulation.more).
    timeout: seconds until the round ends whatever is missing, 0 for never."""

    def __init__(self, share, deadline=0.0, pace=0.0, reserve=0.0, whole=False, overtime=0.0, timeout=0.0):
        if deadline > 0 and not pace > 0:
            raise ValueError("an order with a deadline needs a pace above 0")
        self.share, self.deadline, self.pace, self.reserve, self.whole = share, deadline, pace, reserve, whole
        self.overtime, self.timeout = overtime, timeout


class Accumulation:
    """The rank's side of a round. Without a deadline the rank computes its share. With a deadline it takes full micro-steps while another one would
    end in time at its pace in this round; the last one is cut to end in time. It takes at least one."""

    def __init__(self, node, order):
        self.node, self.order = node, order
        self.samples = self.steps = 0
        self._seconds = self._cost = 0.0
        self._ended = order.share < 1
        self._in_time = 0

    @property
    def ended(self):
        """Whether the newest micro-step was cut to be the last: an all-reduce may begin within it."""
        return self._ended or self.order.deadline == 0 and self.node.floor(self.order.share - self.samples) <= 0

    def more(self, elapsed):
        """The size of the next micro-step once next has returned 0 and the deadline is over, while another rank is still at its last
        one; 0: wait for it. It is the smallest micro-batch (a full one with whole), if that takes no longer than order.overtime at the pace of this
        round, up to as many samples as were done in time."""
        node, order = self.node, self.order
        if self.steps >= MAX_MICRO_STEPS or elapsed < order.deadline or self._cost <= 0:
            return 0
        self._in_time = self._in_time or self.samples
        size = min(node.floor(node.limit), order.share) if order.whole else node.floor((node.shapes or [node.least])[0])
        took = node.cost(size) * self._seconds / self._cost
        if self.samples + size > 2 * self._in_time or took > order.overtime or order.timeout > 0 and elapsed + 2 * took > order.timeout:
            return 0
        return size

    def next(self, elapsed):
        """The size of the next micro-step, given the seconds since the round began; 0: hand in what was added up."""
        node, order = self.node, self.order
        if self._ended or self.steps >= MAX_MICRO_STEPS:
            return 0
        if order.deadline == 0:
            return node.floor(order.share - self.samples)
        full = node.floor(node.limit)
        if order.whole:
            full = min(full, order.share)
        fits = self._fits(elapsed)
        if fits >= node.cost(full):
            return full
        self._ended = True
        size = node.within(fits, full) if fits > 0 and not order.whole else 0
        if size or self.samples:
            return size
        return full if order.whole else node.floor((node.shapes or [node.least])[0])

    def _fits(self, elapsed):
        pace = self._seconds / self._cost if self._cost > 0 else self.order.pace
        left = (self.order.deadline - elapsed) * (1 - self.order.reserve)
        return left / pace if pace > 0 else float("inf") if left > 0 else 0.0

    def done(self, size, seconds):
        """A micro-step of size samples took so many seconds."""
        self.samples += size
        self.steps += 1
        self._seconds += seconds
        self._cost += self.node.cost(size)


def rank(sizes, rank, seconds=None):
    """The Node and the Order of a rank, from a sizes file (a dict, version 3). seconds: the deadline of this round, if it is not the file's
    (Deadline)."""
    if sizes["version"] != 3:
        raise ValueError(f"version {sizes['version']}; this program reads 3")
    n = [n for n in sizes["nodes"] if n["share"] > 0][rank]
    of_all = sizes.get("deadline")
    if of_all is None:
        return Node(n["micro_batch"]), Order(n["share"])
    own = n["deadline"]
    node = Node(n["micro_batch"], own["least"], own.get("sizes"))
    until = own["seconds"]
    if seconds is not None:
        until = max(seconds - (of_all["seconds"] - until), 1e-9)
    overtime = of_all.get("overtime", 0.0) * (of_all["seconds"] if seconds is None else seconds)
    return node, Order(n["share"], until, own["micro_step_seconds"] / n["micro_batch"], of_all["reserve"], of_all["micro_steps"] == "whole", overtime)


class Deadline:
    """The deadline of the coming round. A deadline that the sizes file calls auto moves, so that the mean samples of a round are the sum of the
    shares. All ranks that observe the same rounds have the same deadline."""

    RATE, MOST = 0.1, 4.0  # of the correction by one round; times the first deadline, and as much below it

    def __init__(self, sizes):
        self._first, self._auto, self._factor = sizes["deadline"]["seconds"], sizes["deadline"]["auto"], 1.0

    @property
    def seconds(self):
        return self._first * self._factor

    def observe(self, samples, due):
        """Takes in a round in which all ranks together handed in so many samples; due: the sum of their shares."""
        if self._auto and samples > 0 and due > 0:  # so that corrections add up, and the mean meets the shares: agent/deadline.go
            self._factor = min(max(self._factor * math.exp(-self.RATE * (samples / due - 1)), 1 / self.MOST), self.MOST)


class Samples:
    """Which samples the ranks take, when no rank knows beforehand how many. Every rank is handed a block; samples that it does not use go back to the
    front of the order, so no sample is lost or comes twice. All ranks make the same calls and have the same state."""

    def __init__(self, order):
        self._order = list(order)
        self._blocks = None

    def __len__(self):
        return len(self._order)

    def blocks(self, most):
        """The blocks of a round, by rank: up to most[r] samples; in proportion where fewer are left."""
        left, wanted = len(self._order), sum(most)
        counts = list(most)
        if left < wanted:
            counts = [m * left // wanted for m in most]
            for r in range(len(most)):  # what rounding left over
                if sum(counts) < left and counts[r] < most[r]:
                    counts[r] += 1
        self._blocks, at = [], 0
        for c in counts:
            self._blocks.append(self._order[at:at + c])
            at += c
        self._order = self._order[at:]
        return self._blocks

    def used(self, counts):
        """How many of its block each rank used: the first ones."""
        if any(not 0 <= c <= len(b) for b, c in zip(self._blocks, counts)) or len(counts) != len(self._blocks):
            raise ValueError(f"ranks used {counts} samples, of blocks that hold {[len(b) for b in self._blocks]}")
        self._order = [s for b, c in zip(self._blocks, counts) for s in b[c:]] + self._order
        self._blocks = None
