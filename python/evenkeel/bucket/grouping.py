"""Decides which samples make a step when lengths become known only as samples are processed.

Every rank holds a window of processed samples and tells the others their lengths. From these messages alone every rank computes the batches of
all ranks, without a clock. So all ranks agree, and the same messages give the same epoch.

In each step one rank, chosen pseudo-randomly, takes the batch of its window that does the most work per second in about T seconds. The duration
of this batch is that of the step. Every other rank takes the batch of its own window that does the most work in the same time at its speed. The
longer a sample waits, the more it counts. When no sample is left to draw, every window is cut into the same number of batches."""

from collections import deque, namedtuple

import numpy

from .schedule import ScheduleError

Part = namedtuple("Part", "positions tokens labels lengths counts", defaults=((), ()))
Part.__doc__ = """A rank's work in a step: the positions of its samples, the sums of their tokens and label tokens, and both for each sample. A rank without
samples takes part with weight 0."""

_PATIENCE = 0.3  # relative growth of a sample's worth while a window's number of samples passes it
_FULL = 0.1  # share of the work that may be in batches that fill the memory before they last T


class Window:
    """The processed samples of a rank, ordered by length, the longest first, and by position."""

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
    """An epoch of all ranks. In each round call `draw`, then `hear` with the message of every rank, then `step`.

    costs    Costs of the plan
    speeds   relative speeds of the ranks
    window   samples that a rank holds or waits for
    queue    positions to draw, in order: one array for all ranks, or a list of one array per rank
    max_samples, max_tokens   limits of a step over all ranks; 0: no limit"""

    def __init__(self, costs, speeds, window, queue, max_samples=0, max_tokens=0, seed=0, mean=None):
        self.costs, self.speeds, self.window = costs, numpy.asarray(speeds, float), window
        self.ranks, self.seed, self.steps = len(speeds), seed, 0
        self.shared = not isinstance(queue, list)
        self.queues = [queue] if self.shared else queue
        self.taken = [0] * len(self.queues)
        self.coming = [deque() for _ in range(self.ranks)]  # drawn, length not known yet
        self.windows = [Window() for _ in range(self.ranks)]
        self.target = None  # T in seconds
        self.mean = mean  # samples, tokens and label tokens of a step; None: estimated from the windows before the first step
        self._limits = (max_samples, max_tokens)
        self._known = {}  # by length: largest batch by rank, seconds per sample
        self._rest = None  # the last steps, once the windows were cut
        self._told = self._seconds = 0

    # Drawing.

    def left(self, rank=0):
        """The number of positions that a rank can still draw."""
        q = 0 if self.shared else rank
        return len(self.queues[q]) - self.taken[q]

    def _draw(self, rank, n):
        q = 0 if self.shared else rank
        new = self.queues[q][self.taken[q]:self.taken[q] + n]
        self.taken[q] += len(new)
        self.coming[rank].extend(int(i) for i in new)
        return [int(i) for i in new]

    def held(self, rank):
        """The number of samples that a rank holds or waits for."""
        return len(self.windows[rank]) + len(self.coming[rank])

    def draw(self):
        """Draws positions that fill the window of every rank. Near the end of a shared queue it distributes the rest so that the windows hold
        equal work: if a rank held more at the end, the others would wait for it."""
        out = [[] for _ in range(self.ranks)]
        begins = self.target is None
        if begins and any(self.held(r) for r in range(self.ranks)):
            return out
        if not self.shared or begins or self.left() > self.ranks * self.window:
            # From a shared queue a slower rank draws less, in proportion to its speed.
            full = self.window * self.speeds / self.speeds.max() if self.shared else [self.window] * self.ranks
            room = [max(1, int(full[r])) - self.held(r) for r in range(self.ranks)]
            if self.shared and begins:  # a quarter is kept back until lengths are known
                room = [min(n, 1 + int(.75 * self.left() * v / self.speeds.sum())) for n, v in zip(room, self.speeds)]
            while any(n > 0 and self.left(r) for r, n in enumerate(room)):
                for r in range(self.ranks):  # alternately, so that a short queue is shared evenly
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

    def hear(self, rank, told):
        """Receives the length and the label tokens of the next samples of a rank."""
        at = [self.coming[rank].popleft() for _ in told]
        caps, rates = [], []
        taker = self._taker(rank)
        for position, (length, _) in zip(at, told):
            cap, rate = self._know(length)
            if cap[taker] < 1:
                raise ScheduleError(self._too_long(taker, position, length))
            caps.append(cap[taker])
            rates.append(rate)
        self.windows[rank].add(position=at, length=[n for n, _ in told], label=[n for _, n in told], cap=caps, rate=rates, since=[self.steps] * len(at))
        self._told += len(at)
        self._seconds += sum(rates)

    def _taker(self, rank):
        """The rank whose limits apply to the samples that a rank draws."""
        return rank

    def _caps(self, rank, window):
        """The largest batch for each sample of a window on a rank; 0 if the sample does not fit."""
        return window.cap

    def _know(self, length):
        """The largest batch of a length on each rank, and its seconds per sample in the best batch."""
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
            return f"sample {position}: length {length}; every sample needs at least one token"
        if self.costs.cap(length) < 1:
            return (f"sample {position}: of length {length}, it fits into no batch (rank {rank}): the plan's table has no successful trial of this "
                    "length; truncate such samples, or profile longer ones and plan again")
        return f"sample {position}: of length {length}, it fits into no batch of rank {rank}: the plan limits the samples or tokens of a step to less"

    # Steps.

    def finished(self):
        """Whether the epoch is over."""
        return not any(self.held(r) or self.left(r) for r in range(self.ranks)) and not self._rest

    def step(self):
        """The Part of every rank in the next step, or None if no rank holds a sample."""
        if self.mean is None and any(map(len, self.windows)):
            self.mean = self._mean()
        if self._rest is None and not any(self.left(r) or self.coming[r] for r in range(self.ranks)):
            self._rest = self._last_steps() if any(map(len, self.windows)) else deque()
        if self._rest is None:
            parts = self._take() if any(map(len, self.windows)) else None
        else:
            parts = self._rest.popleft() if self._rest else None
        self.steps += parts is not None
        return parts

    def _aimed(self):
        """T, computed when it is first needed."""
        if self.target is None:
            self.target = self._aim()
        return self.target

    def _take(self):
        holding = [r for r in range(self.ranks) if len(self.windows[r])]
        first = holding[mixed(self.seed, self.steps) % len(holding)]
        start, count, duration = self._best(first, self._aimed(), None)
        parts = [Part([], 0, 0)] * self.ranks
        parts[first] = self.windows[first].take(start, count)
        for r in holding:
            if r != first:
                start, count, _ = self._best(r, self.target, duration)
                parts[r] = self.windows[r].take(start, count)
        return parts

    def _best(self, rank, target, duration):
        """The batch of a window that does the most work per second within a duration (if None: about the target): start, samples, seconds."""
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
            gain = -seconds  # every single sample takes longer: the shortest one
        at = int(numpy.argmax(gain))
        return at, int(count[at]), float(seconds[at]) / v

    def _aim(self):
        """T: the longest duration whose cut of the windows takes at most 1% more time than the best. Longer batches have less overhead, shorter
        ones less padding. Memory limits T: most of the work must be in batches that last T on the fastest rank."""
        full = numpy.concatenate([self.costs.seconds(w.length, w.cap) for w in self.windows])
        work = numpy.concatenate([w.rate for w in self.windows])
        order = numpy.argsort(full, kind="stable")
        done = numpy.cumsum(work[order])
        top = float(full[order][int(numpy.searchsorted(done, _FULL * done[-1]))]) / float(self.speeds.max())
        tries = [top * .85 ** k for k in range(16)]
        costs = [self._took(t) for t in tries]
        return next(t for t, c in zip(tries, costs) if c <= min(costs) * 1.01)

    def _took(self, target):
        """The seconds of the windows if they are cut by a target."""
        return sum(s for cuts in self._cut_all(target) for _, _, s in cuts)

    def _cut_all(self, target):
        return [self._cut(r, target) for r in range(self.ranks)]

    def _mean(self):
        """Samples, tokens and label tokens of a mean step, if T cuts the windows."""
        mean = numpy.zeros(3)
        for window, cuts in zip(self.windows, self._cut_all(self._aimed())):
            for start, n, _ in cuts:
                part = window.part(slice(start, start + n))
                mean += numpy.array([n, part.tokens, part.labels]) / len(cuts)
        return [float(m or mean[0]) for m in mean]

    def _cut(self, rank, target):
        """Cuts a window by a target, from the longest sample on: (start, samples, seconds at speed 1) each."""
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
        """Cuts every window into the same number of batches. Each rank has a target of its own. The longest batches of all ranks form a step."""
        cuts = [self._cut(r, self._aimed()) for r in range(self.ranks)]
        few = max(map(len, cuts))
        best, least = [[(a, n, s / v) for a, n, s in cut] for cut, v in zip(cuts, self.speeds)], None
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
        """Cuts a window into at most n batches, the longest as short as possible: (start, samples, seconds) each. None: memory needs more."""
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
        """For each rank, the positions that were drawn and are not in a step yet."""
        out = [sorted(w.position.tolist()) + list(c) for w, c in zip(self.windows, self.coming)]
        for parts in self._rest or ():
            for r, p in enumerate(parts):
                out[r] += p.positions
        return out


def total_seconds(cuts):
    """The seconds of the steps if the n-th batch of each rank is in the n-th step."""
    return sum(max(c[k][2] for c in cuts if k < len(c)) for k in range(max(map(len, cuts))))


def last_steps(windows, cuts):
    """The steps of windows that are cut to the end. A rank without a batch is idle."""
    return deque([w.part(slice(c[k][0], c[k][0] + c[k][1])) if k < len(c) else Part([], 0, 0) for w, c in zip(windows, cuts)] for k in range(max(map(len, cuts))))


def weights(parts, mean):
    """For each rank of a step, the factors of its mean loss over samples, over tokens and over label tokens. mean: what a step has of each in the
    mean. With one mean for all steps, and DDP's mean over ranks, every sample counts the same."""
    return [tuple(n * len(parts) / m for n, m in zip((len(p.positions), p.tokens, p.labels), mean)) for p in parts]


def mixed(seed, step):
    """A pseudo-random number from both (splitmix64)."""
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * factor % (1 << 64)
    return x ^ x >> 31
