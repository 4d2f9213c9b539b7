"""Which samples make a step when lengths become known only as the samples are processed.

Every rank holds a window of processed samples and tells the others their lengths. From that, and from nothing else, every
rank computes what all of them do: no clock, no exchange, no torch. So all agree, and the same messages give the same epoch.

A step: one rank, another each time, takes the batch of its window that gets most done in T; its duration is the step's. Each
other rank takes the batch of its own that gets most done in that time, times its speed. What samples are worth grows while
they wait. When nothing is left to draw, the windows are cut for good, all ranks into the same number of batches."""

from collections import deque, namedtuple

import numpy

from .schedule import ScheduleError

Part = namedtuple("Part", "positions tokens labels lengths counts", defaults=((), ()))
Part.__doc__ = """What a rank does in a step: its samples, the sums of their tokens and label tokens, and the length and the label tokens of each. A rank
without samples takes part with weight 0."""

_PATIENCE = 0.3  # by how much a sample's worth grows while as many samples pass as its window holds

_FULL = 0.1  # share of the work that may lie in batches which fill the memory before they last T


class Window:
    """The processed samples of a rank, the longest first, those of one length by position."""

    fields = "position length label cap rate since"

    def __init__(self):
        for f in self.fields.split():
            setattr(self, f, numpy.zeros(0, float if f == "rate" else numpy.int64))

    def __len__(self):
        return len(self.position)

    def add(self, **columns):
        for f, more in columns.items():
            setattr(self, f, numpy.concatenate([getattr(self, f), numpy.asarray(more, getattr(self, f).dtype)]))
        self._keep(numpy.lexsort((self.position, -self.length)))

    def take(self, start, count):
        return self.pick(numpy.arange(start, start + count))

    def pick(self, at):
        part = self.part(at)
        self._keep(numpy.delete(numpy.arange(len(self)), at))
        return part

    def part(self, at):
        length, label = self.length[at], self.label[at]
        return Part(self.position[at].tolist(), int(length.sum()), int(label.sum()), length.tolist(), label.tolist())

    def _keep(self, at):
        for f in self.fields.split():
            setattr(self, f, getattr(self, f)[at])


class Grouping:
    """The epoch of all ranks. Each round: `draw`, then `hear` what every rank tells, then `step`.

    costs    of cost.py
    speeds   of the ranks, relative
    window   samples that a rank holds, processed or on the way
    queue    positions to draw, in order, shared by all; or a list of them per rank
    share    largest samples and tokens of a step, 0: no limit"""

    def __init__(self, costs, speeds, window, queue, max_samples=0, max_tokens=0, seed=0):
        self.costs, self.speeds, self.window = costs, numpy.asarray(speeds, float), window
        self.ranks, self.seed, self.steps = len(speeds), seed, 0
        self.shared = not isinstance(queue, list)
        self.queues = [queue] if self.shared else queue
        self.taken = [0] * len(self.queues)
        self.coming = [deque() for _ in range(self.ranks)]  # drawn, not told yet
        self.windows = [Window() for _ in range(self.ranks)]
        self.target = None  # T in seconds
        self._limits = (max_samples, max_tokens)
        self._known = {}  # by length: cap by rank, time per sample
        self._rest = None  # the last steps, once they are cut
        self._told = self._seconds = 0

    # Drawing.

    def left(self, rank=0):
        q = 0 if self.shared else rank
        return len(self.queues[q]) - self.taken[q]

    def _draw(self, rank, n):
        q = 0 if self.shared else rank
        new = self.queues[q][self.taken[q]:self.taken[q] + n]
        self.taken[q] += len(new)
        self.coming[rank].extend(int(i) for i in new)
        return [int(i) for i in new]

    def held(self, rank):
        return len(self.windows[rank]) + len(self.coming[rank])

    def draw(self):
        """New positions for every rank, so that its window is full. When the shared queue comes to its end, so that the windows hold equal
        work instead: if one rank held more at the end, the others would wait."""
        out = [[] for _ in range(self.ranks)]
        begins = self.target is None
        if begins and any(self.held(r) for r in range(self.ranks)):
            return out
        if not self.shared or begins or self.left() > self.ranks * self.window:
            # From one queue a slower rank holds less: in its own time, as much.
            full = self.window * self.speeds / self.speeds.max() if self.shared else [self.window] * self.ranks
            room = [max(1, int(full[r])) - self.held(r) for r in range(self.ranks)]
            if self.shared and begins:  # a quarter is left to make up for what the lengths turn out to be
                room = [min(n, 1 + int(.75 * self.left() * v / self.speeds.sum())) for n, v in zip(room, self.speeds)]
            while any(n > 0 and self.left(r) for r, n in enumerate(room)):
                for r in range(self.ranks):  # in turn: a queue shorter than the windows is shared evenly
                    if room[r] > 0:
                        out[r] += self._draw(r, min(8, room[r]))
                        room[r] -= min(8, room[r])
            return out
        mean = self._seconds / max(1, self._told)
        loads = [(sum(s for _, _, s in self._cut(r, self.target)) + mean * len(self.coming[r])) / self.speeds[r] for r in range(self.ranks)]
        while self.left():
            r = int(numpy.argmin(loads))
            if self.held(r) >= self.window:
                break
            new = self._draw(r, min(4, self.window - self.held(r)))
            out[r] += new
            loads[r] += mean * len(new) / self.speeds[r]
        return out

    # Hearing.

    def hear(self, rank, lengths, labels):
        """Takes in what a rank tells of the next samples on their way to it."""
        if len(lengths) > len(self.coming[rank]):
            raise ScheduleError(f"rank {rank} tells of {len(lengths)} samples; {len(self.coming[rank])} are on their way")
        at = [self.coming[rank].popleft() for _ in range(len(lengths))]
        caps, rates = [], []
        taker = self._taker(rank)
        for position, length in zip(at, lengths):
            cap, rate = self._know(int(length))
            if cap[taker] < 1:
                raise ScheduleError(self._too_long(taker, position, int(length)))
            caps.append(cap[taker])
            rates.append(rate)
        self.windows[rank].add(position=at, length=lengths, label=labels, cap=caps, rate=rates, since=[self.steps] * len(at))
        self._told += len(at)
        self._seconds += sum(rates)

    def _taker(self, rank):
        """The rank whose limits hold for what a rank draws."""
        return rank

    def _caps(self, rank, window):
        """The largest batches of a window's samples on a rank; 0: it has no room for one."""
        return window.cap

    def _know(self, length):
        if length not in self._known:
            cap, best = self.costs.cap(length), self.costs.efficient(length) if length > 0 else 0
            rate = float(self.costs.seconds(length, best)) / best if best else 0.0
            caps, (samples, tokens) = [cap] * self.ranks, self._limits
            for r, v in enumerate(self.speeds / self.speeds.sum()):
                if samples:
                    caps[r] = min(caps[r], int(samples * v))
                if tokens:
                    caps[r] = min(caps[r], int(tokens * v) // max(1, self.costs.padded(length)))
            self._known[length] = caps if best else [0] * self.ranks, rate
        return self._known[length]

    def _too_long(self, rank, position, length):
        if length < 1:
            return f"sample {position}: length {length}; every sample needs one token at least"
        if self.costs.cap(length) < 1:
            return (f"sample {position}: of length {length}, it fits into no batch (rank {rank}): the plan's table has no such trial that ran; "
                    "cut such samples, or profile longer ones and plan anew")
        return f"sample {position}: of length {length}, it fits into no batch of rank {rank}: the plan's limits on samples or tokens of a step leave less"

    # Steps.

    def finished(self):
        return not any(self.held(r) or self.left(r) for r in range(self.ranks)) and not self._rest

    def step(self):
        """Every rank's Part of the next step; None where no rank holds a sample."""
        if self._rest is None and not any(self.left(r) or self.coming[r] for r in range(self.ranks)):
            self._rest = self._last_steps()
        if self._rest is not None:
            parts = self._rest.popleft() if self._rest else None
        elif any(len(w) for w in self.windows):
            parts = self._take()
        else:
            parts = None
        if parts is not None:
            self.steps += 1
        return parts

    def _take(self):
        if self.target is None:
            self.target = self._aim()
        holding = [r for r in range(self.ranks) if len(self.windows[r])]
        first = holding[mixed(self.seed, self.steps) % len(holding)]
        start, count, duration = self._best(first, self.target, None)
        parts = [Part([], 0, 0)] * self.ranks
        parts[first] = self.windows[first].take(start, count)
        for r in holding:
            if r != first:
                start, count, _ = self._best(r, self.target, duration)
                parts[r] = self.windows[r].take(start, count)
        return parts

    def _best(self, rank, target, duration):
        """The batch of a window that gets most done a second: start, samples, seconds on that rank. Without a duration, about the target."""
        w, v = self.windows[rank], self.speeds[rank]
        n = len(w)
        limit = (target if duration is None else duration) * v
        start = numpy.arange(n)
        cap = self._caps(rank, w)
        count = self.costs.most(w.length, limit, numpy.minimum(cap, n - start))
        seconds = numpy.where(cap < 1, numpy.inf, self.costs.seconds(w.length, count))
        waited = (self.steps - w.since) * (self._told / max(1, self.steps * self.ranks) / self.window)
        worth = numpy.concatenate([[0.0], numpy.cumsum(w.rate * (1 + _PATIENCE * waited))])
        gain = (worth[start + count] - worth[start]) / numpy.maximum(seconds, limit)
        if duration is not None and (seconds <= limit * (1 + 1e-9)).any():
            gain = numpy.where(seconds <= limit * (1 + 1e-9), gain, -1.0)
        elif duration is not None:
            gain = -seconds  # a single sample takes longer: the shortest
        at = int(numpy.argmax(gain))
        return at, int(count[at]), float(seconds[at]) / v

    def _aim(self):
        """T: the longest with which cutting the windows costs within 1% of the least. Longer batches cost less overhead; shorter ones are
        padded less. No longer than most of the work can fill on the fastest rank, for memory's sake: the others would wait for slower ones."""
        full = numpy.concatenate([self.costs.seconds(w.length, w.cap) for w in self.windows])
        work = numpy.concatenate([w.rate for w in self.windows])
        order = numpy.argsort(full, kind="stable")
        done = numpy.cumsum(work[order])
        top = float(full[order][int(numpy.searchsorted(done, _FULL * done[-1]))]) / float(self.speeds.max())
        tries = [top * .85 ** k for k in range(16)]
        costs = [self._took(t) for t in tries]
        return next(t for t, c in zip(tries, costs) if c <= min(costs) * 1.01)

    def _took(self, target):
        """The time of the windows cut by T."""
        return sum(s for r in range(self.ranks) for _, _, s in self._cut(r, target))

    def _cut(self, rank, target):
        """A window cut from the longest on by T: start, samples, seconds at speed 1."""
        w, at, out = self.windows[rank], 0, []
        if len(w):
            most = self.costs.most(w.length, target * self.speeds[rank], w.cap)
            seconds = self.costs.seconds(w.length, most)
            most, seconds = most.tolist(), seconds.tolist()
        while at < len(w):
            n = most[at]
            if n > len(w) - at:
                n = len(w) - at
                out.append((at, n, float(self.costs.seconds(w.length[at], n))))
            else:
                out.append((at, n, seconds[at]))
            at += n
        return out

    def _last_steps(self):
        """The windows cut into as many batches on every rank, each rank with a T of its own; the longest batches together."""
        holding = [r for r in range(self.ranks) if len(self.windows[r])]
        if not holding:
            return deque()
        if self.target is None:
            self.target = self._aim()
        few = max(len(self._cut(r, self.target)) for r in holding)
        best, least = [[(a, n, s / self.speeds[r]) for a, n, s in self._cut(r, self.target)] for r in range(self.ranks)], None
        for n in sorted({max(1, few - 1), few, few + 1, few + 2, few + few // 6, few + few // 3, few + few // 2}):
            cuts = [self._into(r, n) for r in range(self.ranks)]
            if any(c is None for c in cuts):
                continue
            total = total_seconds(cuts)
            if least is None or total < least:
                best, least = cuts, total
        out = last_steps(self.windows, best)
        self.windows = [Window() for _ in range(self.ranks)]
        return out

    def _into(self, rank, n):
        """A window in at most n batches, the longest as short as can be: start, samples, seconds on that rank; None: memory wants more."""
        if not len(self.windows[rank]):
            return []
        low, high = self.target * .01, self.target * 8
        found = self._cut(rank, high)
        if len(found) > n:
            return None
        for _ in range(14):
            middle = (low * high) ** .5
            cut = self._cut(rank, middle)
            if len(cut) <= n:
                high, found = middle, cut
            else:
                low = middle
        v = self.speeds[rank]
        return sorted(((a, b, s / v) for a, b, s in found), key=lambda c: (-c[2], c[0]))

    def pending(self):
        """Per rank, the positions that were drawn and are in no step yet."""
        out = [sorted(w.position.tolist()) + list(c) for w, c in zip(self.windows, self.coming)]
        for parts in self._rest or ():
            for r, p in enumerate(parts):
                out[r] += p.positions
        return out


def total_seconds(cuts):
    """What the steps take if each rank's n-th batch is in the n-th step."""
    return sum(max(c[k][2] for c in cuts if k < len(c)) for k in range(max(map(len, cuts))))


def last_steps(windows, cuts):
    """The steps of windows that are cut for good; a rank without a batch is idle."""
    return deque([w.part(slice(c[k][0], c[k][0] + c[k][1])) if k < len(c) else Part([], 0, 0) for w, c in zip(windows, cuts)] for k in range(max(map(len, cuts))))


def weights(parts):
    """Of every rank in a step: factors of its mean losses over samples, tokens and label tokens, with which DDP's mean over ranks is that over
    all of the step."""
    totals = [sum(len(p.positions) for p in parts), sum(p.tokens for p in parts), sum(p.labels for p in parts)]
    return [tuple(n * len(parts) / t if t else 0.0 for n, t in zip((len(p.positions), p.tokens, p.labels), totals)) for p in parts]


def mixed(seed, step):
    """A number from both (splitmix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * factor % (1 << 64)
    return x ^ x >> 31
