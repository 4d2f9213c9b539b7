"""Decides which samples make a step if all ranks share one window. A sample may go to any rank, which processes it again.

With eight ranks a batch is cut from eight times as many samples, so its lengths are closer, and long samples need not go to slow ranks. As in
grouping.py, every rank computes the batches of all ranks from the same messages."""

import numpy

from .grouping import Grouping, Part, Window, last_steps, mixed, total_seconds

_TRIES, _LEAST = 48, .25  # how many targets are tried for the last steps, and the smallest as a share of T
_SPREAD = .5  # a batch is drawn from a range that is larger by this share
_NEAR = .02  # relative difference of batches that take about the same time


class Pool(Grouping):
    """An epoch of all ranks like Grouping's, with one shared queue. All entries of windows are the same Window."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.windows = [Window()] * self.ranks
        self._fastest = int(numpy.argmax(self.speeds))

    def draw(self):
        """Draws positions until the ranks together hold as many samples as their windows have room for."""
        out = [[] for _ in range(self.ranks)]
        if self.target is None and any(self.held(r) for r in range(self.ranks)):
            return out
        room = self.window * self.ranks - len(self.windows[0]) - sum(map(len, self.coming))
        while room > 0 and self.left():
            # The rank that waits for the fewest samples, relative to its speed, so that a slow loader does not get more and more.
            r = min(range(self.ranks), key=lambda r: (len(self.coming[r]) / self.speeds[r], r))
            new = self._draw(r, min(8, room))
            out[r] += new
            room -= len(new)
        return out

    def held(self, rank):
        return len(self.windows[0]) * (rank == 0) + len(self.coming[rank])

    def _taker(self, rank):
        return self._fastest

    def pending(self):
        """As Grouping's. The shared window counts as rank 0's."""
        out = [list(c) for c in self.coming]
        out[0] += sorted(self.windows[0].position.tolist()) + [i for parts in self._rest or () for p in parts for i in p.positions]
        return out

    def _caps(self, rank, window):
        return window.cap if not any(self._limits) else numpy.array([self._know(int(l))[0][rank] for l in window.length], numpy.int64)

    def _take(self):
        """The batch that does the most work in T goes to one of the fastest ranks. The others, in order of speed, take the batch that does the
        most work in the same time."""
        turn = mixed(self.seed, self.steps) % self.ranks
        ranks = sorted(range(self.ranks), key=lambda r: (-self.speeds[r], (r - turn) % self.ranks))
        parts, duration = [Part([], 0, 0)] * self.ranks, None
        for r in ranks:
            if not len(self.windows[0]):
                break
            start, count, took = self._best(r, self._aimed(), duration)
            duration = took if duration is None else duration
            if took <= duration * (1 + 1e-9):  # else the rank is idle
                parts[r] = self.windows[0].pick(self._some(start, count, r))
        return parts

    def _some(self, start, count, rank):
        """Draws a batch at random from a somewhat larger range. Otherwise the same samples would be together in every epoch."""
        n = min(len(self.windows[0]) - start, count + int(count * _SPREAD))
        random = numpy.random.RandomState([self.seed & 0xFFFFFFFF, self.steps, rank])
        return start + numpy.sort(random.permutation(n)[:count])

    def _cut_all(self, target):
        """Cuts the pool from the longest sample on, a batch for each rank in turn: for each rank (start, samples, seconds), its longest batches
        first. A rank gets no batch that takes it longer than the longest batch takes the fastest rank."""
        w, at = self.windows[0], 0
        most, took = [None] * self.ranks, [None] * self.ranks
        for r, v in enumerate(self.speeds):
            same = int(numpy.argmax(self.speeds == v))
            if same < r:
                most[r], took[r] = most[same], took[same]
                continue
            cap = self._caps(r, w)
            n = self.costs.most(w.length, target * v, cap)
            most[r], took[r] = n.tolist(), numpy.where(cap < 1, numpy.inf, self.costs.seconds(w.length, n) / v).tolist()
        limit = max(took[self._fastest], default=0.0) * (1 + 1e-9)
        order = sorted(range(self.ranks), key=lambda r: -self.speeds[r])
        out = [[] for _ in range(self.ranks)]
        while at < len(w):
            for r in order:
                if at < len(w) and took[r][at] <= limit:
                    n, seconds = most[r][at], took[r][at]
                    if n > len(w) - at:
                        n = len(w) - at
                        seconds = float(self.costs.seconds(w.length[at], n) / self.speeds[r])
                    out[r].append((at, n, seconds))
                    at += n
        return [sorted(o, key=lambda c: (-c[2], c[0])) for o in out]

    def _took(self, target):
        return sum(c[2] * v for cuts, v in zip(self._cut_all(target), self.speeds) for c in cuts)

    def _last_steps(self):
        """Cuts the pool by the target whose steps take the least time. The longest batches of all ranks form a step."""
        w = self.windows[0]
        tries = [self._cut_all(self._aimed() * _LEAST ** (k / (_TRIES - 1))) for k in range(_TRIES)]
        sums = [total_seconds(t) for t in tries]
        cuts = min((t for t, s in zip(tries, sums) if s <= min(sums) * 1.003), key=self._worst)
        self._mix(cuts)
        out = last_steps(self.windows, cuts)
        w.take(0, len(w))
        return out

    def _worst(self, cuts):
        """The largest imbalance of a step. It rules out a last step of a few samples."""
        steps = [[c[k][2] if k < len(c) else 0.0 for c in cuts] for k in range(max(map(len, cuts)))]
        return max(max(s) / float(numpy.dot(s, self.speeds)) for s in steps)

    def _mix(self, cuts):
        """Shuffles batches of a rank that take about the same time. Otherwise samples of similar length would share a step in every epoch."""
        random = numpy.random.RandomState([self.seed & 0xFFFFFFFF, self.steps])
        for c in cuts:
            at = 0
            while at < len(c):
                near = next((k for k in range(at, len(c)) if c[k][2] < c[at][2] * (1 - _NEAR)), len(c))
                c[at:near] = [c[at + k] for k in random.permutation(near - at)]
                at = near
