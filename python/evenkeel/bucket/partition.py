"""Divides a batch of samples among ranks so that all finish together. bucket/even does the same, number for number."""

import math
import sys
from math import floor

import numpy

_ROUNDING = 1e-9  # relative
_ENOUGH = 1e-3  # relative: a slot as near to even is left alone
_BEAM, _PADDING = 12, 1.1  # beginnings that are kept; what padding adds to the work that is left
_WORTH = 5e-3  # relative: what another micro-batch of each rank must save


def partition(costs, speeds, counts="equal", *, micro_batches=1, sizes=None, memory=None, padded=False, fixed=0.0, exchange=None):
    """Divides samples among ranks: for each rank its micro-batches, as rising positions in costs.

    costs          one per sample, at least 0: seconds on a rank of speed 1, or anything in proportion
    speeds         one per rank, above 0
    counts         "equal": all ranks have equally many micro-batches and wait for one another after each, as under FSDP. The time of the batch is the
                   sum over micro-batches of the slowest rank. "free": ranks wait at the end only, as under DDP with no_sync. The time is that of the
                   slowest rank, and ranks may differ in their micro-batches. "samples": one micro-batch a rank, of equally many samples
    micro_batches  of a rank; more where the memory needs them, and with "free" fewer where it does not
    sizes, memory  what each sample takes of the memory (default: 1), and the most of a micro-batch: a number, or one per rank
    padded         a micro-batch costs and takes its number of samples times its largest sample; else the sum of its samples
    fixed          cost of a micro-batch beside its samples
    exchange       what it costs each rank to hear of all of a sample: a number, or one per sample. With it, samples that last too long for one rank, or exceed
                   its memory, are cut over 2, 4, 8, ... ranks. None: none is cut

    Without a limit of memory, no micro-batch is empty unless there are fewer samples than micro-batches. The longest sample is placed first, each where it
    ends soonest (LPT: Graham, Bounds on multiprocessing timing anomalies, 1969); padded, the samples are cut in order of their cost. Then single samples are
    exchanged while that shortens the batch.

    A sample that is cut over g ranks stands in a micro-batch of its own on each of them, in the same place with equal counts, before all others with free ones.
    They are neighbours, the first a multiple of g: the groups that context parallelism can have made beforehand. Each takes a g-th of the sample's size and
    cost, and 1 - 1/g of its exchange, at the speed of the slowest."""
    b = _Batch(costs, speeds, counts, micro_batches, sizes, memory, padded, fixed, exchange)
    best, limit, fails = (math.inf, None, None), math.inf, 0
    even = _sum(b.c) / _sum(b.v) * (1 + _WORTH)  # then nothing more can be worth it
    while fails < 2 and best[0] > even and (b.widen(limit) or best[1] is None):
        found = b.search()
        best, fails = (found, 0) if found[0] < best[0] * (1 - _WORTH) else (best, fails + 1)
        limit = b.longest / 2
    return b.result(*best)


def _numbers(values, name, least, of):
    out = numpy.array(values, float)
    if out.ndim != 1:
        raise ValueError(f"{name}: give one number per {of}")
    wrong = numpy.flatnonzero(~((out >= 0) & (out < math.inf)) if least else ~((out > 0) & (out < math.inf)))
    if len(wrong):
        raise ValueError(f"{name}: {of} {wrong[0]} has {out[wrong[0]]}; must be a number {'from' if least else 'above'} 0")
    return out


class _Batch:
    """Micro-batch k of rank r is bin k*ranks + r. A unit is what ranks wait for: a bin if counts are equal, else a rank. A slot has a unit of each rank."""

    def __init__(self, costs, speeds, counts, steps, sizes, memory, padded, fixed, exchange):
        if counts not in ("equal", "free", "samples"):
            raise ValueError(f"counts {counts!r}: must be equal, free or samples")
        if steps < 1 or not 0 <= fixed < math.inf:
            raise ValueError(f"micro_batches {steps}, fixed {fixed}: give a whole number from 1, and a number from 0")
        self.c, self.v = _numbers(costs, "costs", True, "sample"), _numbers(speeds, "speeds", False, "rank")
        n, self.ranks = len(self.c), len(self.v)
        if self.ranks < 1:
            raise ValueError("speeds: give one per rank")
        self.s = numpy.ones(n) if sizes is None else _numbers(sizes, "sizes", True, "sample")
        if len(self.s) != n:
            raise ValueError(f"sizes: {len(self.s)} of them for {n} samples")
        self.m = numpy.full(self.ranks, math.inf)
        if memory is not None:
            self.m = _numbers(numpy.broadcast_to(memory, self.ranks) if numpy.ndim(memory) == 0 else memory, "memory", False, "rank")
        if len(self.m) != self.ranks:
            raise ValueError(f"memory: {len(self.m)} limits for {self.ranks} ranks")
        if counts == "samples":
            if n % self.ranks or steps > 1 or not sizes is memory is exchange is None:
                raise ValueError(f"counts 'samples': {n} samples for {self.ranks} ranks; give a multiple, and neither micro_batches, sizes, memory nor exchange")
            self.m[:] = n // self.ranks
        self.free, self.padded, self.fixed, self.least_steps, self.limited = counts == "free", padded, fixed, steps, memory is not None
        self.x = None if exchange is None else _numbers(numpy.broadcast_to(exchange, n) if numpy.ndim(exchange) == 0 else exchange, "exchange", True, "sample")
        if self.x is not None and (padded or len(self.x) != n):
            raise ValueError(f"exchange: {len(self.x)} of them for {n} samples; samples that are cut cannot be padded")
        most, slowest = float(self.c.max(initial=0.0)), float(self.v.min())
        if n and (most + fixed + (0.0 if exchange is None else float(self.x.max()))) * (float(n) + float(self.ranks) * steps) / slowest * _sum(self.v) == math.inf:
            raise ValueError(f"costs up to {most:g} by speeds from {slowest:g}: their sum is no finite number")
        self.wide = [1] * n
        if self.x is not None:
            self.lasts = {g: self._lasts(g) for g in (2 ** k for k in range(self.ranks.bit_length()))}
            self.least = {g: t.min(1).tolist() for g, t in self.lasts.items()}

    def search(self):
        """Divides by more and more micro-batches, until they are worth it no more: the seconds, the bins, the samples cut into bins."""
        n, best = len(self.c), (math.inf,)
        self.steps = self.least_steps
        if not self.padded and self.limited and len(self.order):  # each rank has room for its share
            size = _sum(self.s[[g == 1 for g in self.wide]])
            self.steps = max(self.steps, math.ceil(min(float(n), size / _sum(self.v) * float((self.v / self.m).max()) * (1 - _ROUNDING))))
        while (found := self.divide()) is None or found[0] < best[0] * (1 - _WORTH):
            best = found or best
            if found and (not self.limited and len(self.order) == n or self.steps >= n):
                break
            self.steps += 1
        return best

    def divide(self):
        """Divides by the present number of micro-batches. As search(); None if it does not fit."""
        self.speed, self.room = numpy.tile(self.v, self.steps), numpy.tile(self.m, self.steps)
        found = []
        fits = self._pin()
        for self.members in self._cut() if self.padded else self._place() if fits else []:
            self._fill()
            found.append((self._improve(), self.members, self.sample))
        return min(found, key=lambda f: f[0], default=None)

    # Samples that are cut over several ranks (context parallelism).

    def _lasts(self, g):
        """How long each group of g ranks takes for its parts of each sample; infinite where one lacks the memory."""
        speed, room = (x[:self.ranks // g * g].reshape(-1, g).min(1) for x in (self.v, self.m))
        cost = self.c / g + (self.x * (1 - 1 / g) if g > 1 else 0.0)
        return numpy.where(self.s[:, None] / g > room, math.inf, (self.fixed + cost[:, None]) / speed)

    def widen(self, limit):
        """Cuts samples over twice as many ranks while no group holds them, or while they last longer than the limit and that shortens them. False: none is
        cut further."""
        changed, self.longest = False, 0.0
        if self.x is None:
            if len(self.c) and self.s.max() > self.m.max():
                self._refuse(int(numpy.argmax(self.s > self.m.max())))
        else:
            for i, g in enumerate(self.wide):
                t = self.least[g][i]
                while 2 * g <= self.ranks and t > min(limit, sys.float_info.max):
                    further = self.least[2 * g][i]
                    if further >= t and t < math.inf:
                        break
                    t, g, changed = further, 2 * g, True
                self.wide[i], self.longest = g, max(self.longest, t)
                if t == math.inf:
                    self._refuse(i)
        self.order = numpy.lexsort((numpy.arange(len(self.c)), -self.s, -self.c))
        self.order = self.order[[self.wide[i] == 1 for i in self.order]] if changed or self.x is not None else self.order
        return changed

    def _refuse(self, i):
        where = " of each of so many ranks" if self.wide[i] > 1 else ""
        raise ValueError(f"sizes: sample {i} takes {self.s[i] / self.wide[i]:g}, and a micro-batch{where} holds {self.m.max():g}: leave it out, cut it, or raise memory")

    def _pin(self):
        """Gives the samples that are cut bins of their own; False: there are too few. Ranks that wait for one another after each slot get samples that last alike
        in one slot; with free counts the widest come first, so that all ranks of a sample come to it at once, where they are done first."""
        bins, ranks = self.ranks * self.steps, self.ranks
        self.sample, self.held, self.busy, self.count = numpy.full(bins, -1), numpy.zeros(bins), numpy.zeros(ranks), numpy.zeros(ranks, int)
        cut = [i for i, g in enumerate(self.wide) if g > 1]
        for i in sorted(cut, key=lambda i: (-self.wide[i] * self.free, -self.least[self.wide[i]][i], i)):
            g, found = self.wide[i], []
            for first, t in zip(range(0, ranks, g), self.lasts[g][i].tolist()):
                for row in range(self.steps if t < math.inf else 0):
                    if self.sample[row * ranks + first:row * ranks + first + g].max() < 0:
                        longer = max(0.0, t - self.held[row * ranks:(row + 1) * ranks].max())  # that the slot lasts
                        found.append((self.busy[first] + t if self.free else longer, t, first, row))
                        if self.free:
                            break
            if not found:
                return False
            _, t, first, row = min(found)
            at, of = slice(row * ranks + first, row * ranks + first + g), slice(first, first + g)
            self.sample[at], self.held[at] = i, t
            self.busy[of] += t
            self.count[of] += 1
        return True

    # The first division.

    def _durations(self):
        """What each bin lasts if the work could be divided at will, the longest first: samples that alone last longer make those of their slot longer, one a
        fastest rank. With free counts, samples that are cut leave a rank the rest of its time."""
        c, fastest = self.c[self.order], self.v.max()
        speed, at, pinned = _sum(self.v), 0, self.sample.reshape(-1, self.ranks) >= 0
        left, out = _sum(c) + self.fixed * self.ranks * self.steps, []
        for b in numpy.flatnonzero(self.sample >= 0):
            left += self.held[b] * self.speed[b] - self.fixed
        if self.free and self.count.any():
            return numpy.tile(numpy.maximum(0.0, left / speed - self.busy) / numpy.maximum(1, self.steps - self.count), self.steps)
        for k, held in enumerate(self.held.reshape(-1, self.ranks)):
            even, alone = left / (speed * (self.steps - k)), held.max()
            if at < len(c):
                alone = max(alone, (self.fixed + c[at]) / fastest)
            if alone <= even:
                out += [even] * (self.steps - k)
                break
            out.append(alone)
            at += int(((self.v == fastest) & ~pinned[k]).sum())
            left = max(0.0, left - alone * speed)
        return numpy.repeat(out, self.ranks)

    def _place(self):
        durations = self._durations()
        ahead = durations.max() - durations
        bins = self.ranks * self.steps
        self.members, load, used = [[] for _ in range(bins)], numpy.full(bins, float(self.fixed)), numpy.zeros(bins)
        for i in self.order:
            ends = numpy.where((self.sample < 0) & (used + self.s[i] <= self.room), ahead + (load + self.c[i]) / self.speed, math.inf)
            b = int(numpy.argmin(ends))
            if ends[b] == math.inf:
                return []
            load[b] += self.c[i]
            used[b] += self.s[i]
            self.members[b].append(int(i))
        return [self.members]

    def _cut(self):
        """Cuts the samples from the costliest down, within a slot the fastest rank first: so that each slot lasts as long in all ranks, and so that all bins
        last equally long, also with the slow ranks after all others. The first is a beam search: a slot may last more or less than an even share of what is left, and those beginnings are
        kept that leave the least."""
        n, speed, quick = len(self.order), _sum(self.v), sorted(range(self.ranks), key=lambda r: -self.v[r])
        self._c = self.c[self.order].tolist()
        self._s = numpy.maximum.accumulate(self.s[self.order][::-1])[::-1].tolist()  # the largest from there on
        self._speed, self._room = self.v.tolist(), self.m.tolist()
        work, c = numpy.cumsum([0.0, *self._c[::-1]])[::-1], numpy.append(self._c, 0.0)
        spent, at, counts = numpy.zeros(1), numpy.zeros(1, int), numpy.zeros((1, 0), int)  # seconds, samples taken, and how many each bin has
        for left in range(self.steps, 1, -1):
            even = (work[at] + self.fixed * self.ranks * left) / (speed * left)
            alone = numpy.where(at < n, (self.fixed + c[at]) / self.v[quick[0]], 0.0)
            durations = numpy.maximum(alone[:, None], even[:, None] * (1 + numpy.arange(-8, 17) / 32)).ravel()
            of = numpy.repeat(numpy.arange(len(at)), 25)
            took, to, new = self._takes(at[of], durations, quick, left * self.ranks)
            took += spent[of]
            best = numpy.lexsort((took, to))  # stable: of those alike the first
            best = best[numpy.append(True, numpy.diff(to[best]) > 0)]
            best = best[numpy.lexsort((to[best], took[best] + _PADDING * work[to[best]] / speed))][:_BEAM]
            spent, at, counts = took[best], to[best], numpy.hstack([counts[of[best]], new[best]])
        done = None, math.inf
        for k, first in enumerate(at.tolist()):
            # Not where even what is left lasts too long, or more than a duration that does not suffice.
            least = done[1] * (1 + 1e-6) - spent[k]
            if done[1] < math.inf and (work[first] / speed > least or self._take(first, least, quick, self.ranks)[1] < n):
                continue
            if (found := self._all(first, quick)) and spent[k] + found[0] < done[1]:
                done = counts[k].tolist() + found[2], spent[k] + found[0]
        cycle, slow = quick * self.steps, [r for r in quick for _ in range(self.steps)]
        out = [self._dealt(done[0], cycle, False)] if done[0] else []
        for ranks in [cycle, slow] if self.v.min() < self.v.max() else [cycle]:
            if even := self._all(0, ranks):
                out.append(self._dealt(even[2], ranks, True))
        return out

    def _take(self, at, duration, ranks, bins):
        """The seconds, the end and the counts of a bin of each rank, of up to a duration, of the samples from a place on, of which there are as many bins to fill."""
        c, s, n, took, counts, fixed, pace, most = self._c, self._s, len(self._c), 0.0, [], self.fixed, self._speed, self._room
        for r in ranks:
            bins -= 1
            if at == n:
                counts += [0] * (len(ranks) - len(counts))
                break
            each, speed, room = c[at], pace[r], most[r]
            spare = speed * duration - fixed
            if each * n <= spare or not each:
                count = n
            else:
                count = floor(spare / each + _ROUNDING) if spare > 0.0 else 0
            if count > n - at - bins:  # the others get one at least
                count = n - at - bins
            if count < 1:
                count = 1
            if s[at] * count > room:
                count = floor(room / s[at] + _ROUNDING)
            if count:
                last = (fixed + count * each) / speed
                if last > took:
                    took = last
            counts.append(count)
            at += count
        return took, at, counts

    def _takes(self, at, durations, ranks, bins):
        """As _take, of many places and durations at once."""
        n, took, counts = len(self._c), numpy.zeros(len(at)), []
        c, s = numpy.append(self._c, 0.0), numpy.append(self._s, 0.0)
        for r in ranks:
            bins -= 1
            each, room = c[at], numpy.maximum(0.0, self._speed[r] * durations - self.fixed)
            with numpy.errstate(divide="ignore", invalid="ignore"):
                count = numpy.where(each * n <= room, n, numpy.floor(room / each + _ROUNDING))
            count = numpy.maximum(1, numpy.minimum(count, n - at - bins))
            if (full := (size := s[at]) * count > self._room[r]).any():
                count[full] = numpy.floor(self._room[r] / size[full] + _ROUNDING)
            count[at == n] = 0
            took = numpy.maximum(took, numpy.where(count > 0, (self.fixed + count * each) / self._speed[r], 0.0))
            counts.append(count.astype(int))
            at = at + counts[-1]
        return took, at, numpy.stack(counts, 1)

    def _all(self, at, ranks):
        """As _take, by the shortest duration that leaves no sample."""
        n = len(self._c)
        if at == n:
            return 0.0, at, [0] * len(ranks)
        best = self._take(at, math.inf, ranks, len(ranks))
        if best[1] < n:
            return None
        low, high = 0.0, (self.fixed + self._c[at] * (n - at)) / float(self.v.min())
        for _ in range(30):
            middle = (low + high) / 2
            found = self._take(at, middle, ranks, len(ranks))
            low, high, best = (middle, high, best) if found[1] < n else (low, middle, found)
        return best

    def _dealt(self, counts, ranks, sort):
        """The bins of a cut for these ranks. sort: among ranks alike, those that last longest share a slot."""
        at, own, rows, members = 0, {}, [0] * self.ranks, [[] for _ in counts]
        for r, count in zip(ranks, counts):
            own.setdefault((self.v[r], self.m[r]), []).append((self._c[at] * count if count else 0.0, rows[r] * self.ranks + r, self.order[at:at + count].tolist()))
            rows[r] += 1
            at += count
        for bins in own.values():
            for (_, _, samples), b in zip(sorted(bins, key=lambda x: (-x[0] * sort, x[1])), sorted(b for _, b, _ in bins)):
                members[b] = samples
        return members

    # Exchanges.

    def _fill(self):
        """Gives a bin without samples, or with free counts a rank, the cheapest sample that another can spare."""
        width = self.ranks if self.free else len(self.members)
        for b in range(width):
            if self.members[b] or self.sample[b] >= 0 or self.free and (any(self.members[b::self.ranks]) or self.count[b]):
                continue
            for i in self.order[::-1]:
                a = next(k for k, m in enumerate(self.members) if i in m)
                if self.s[i] <= self.room[b] and sum(map(len, self.members[a % width::width])) + self.free * self.count[a % self.ranks] > 1:
                    self.members[a].remove(i)
                    self.members[b].append(int(i))
                    break

    def _price(self, samples, x):
        """What samples cost or take."""
        if self.padded:
            return len(samples) * max((x[i] for i in samples), default=0.0)
        return _sum(x[sorted(samples)])

    def _improve(self):
        """Exchanges samples of the slowest unit of each slot, until none of them gets better."""
        bins, n = len(self.members), len(self.c)
        units = self.ranks if self.free else bins
        unit = numpy.arange(bins) % units
        slot = numpy.arange(units) // self.ranks
        bin_of, end, rank = numpy.full(n, -1), numpy.array(self.wide) == 1, numpy.empty(n, int)
        rank[self.order] = numpy.arange(len(self.order))
        limited, speeds, place = bool(numpy.isfinite(self.m).any()), _sum(self.v), rank.tolist()
        number, load, used, tops = numpy.zeros(bins, int), numpy.zeros(bins), numpy.zeros(bins), numpy.zeros((2, 2, bins))  # tops: of costs and sizes, the two largest
        time, weighed = numpy.zeros(units), ((self.c.tolist(), load), (self.s.tolist(), used))[:1 + limited]

        def weigh(b):
            m = self.members[b]
            bin_of[m], number[b] = b, len(m)
            if self.padded and m:  # only the first and the last of a bin in order may move: others between do no better
                end[m] = False
                end[[min(m, key=place.__getitem__), max(m, key=place.__getitem__)]] = True
            if not self.padded:
                load[b], used[b] = self._price(m, self.c), self._price(m, self.s)
                return
            for k, (x, total) in enumerate(weighed):
                tops[k, :, b] = two = (sorted((x[i] for i in m), reverse=True) + [0.0, 0.0])[:2]
                total[b] = len(m) * two[0]

        def clock(u):
            time[u] = 0.0
            for b in range(u, bins, units):
                time[u] += (self.fixed + load[b]) / self.speed[b] if number[b] else self.held[b]

        for b in range(bins):
            weigh(b)
        for u in range(units):
            clock(u)
        null = numpy.full(bins, n)
        c, s = numpy.append(self.c, 0.0), numpy.append(self.s, 0.0)
        slots = units // self.ranks
        at = idle = 0
        while idle < slots:
            k, at, idle = at, (at + 1) % slots, idle + 1
            own = time[k * self.ranks:(k + 1) * self.ranks].copy()
            r = int(own.argmax())
            u, most, work = k * self.ranks + r, float(own[r]), _sum(own * self.v)
            if most <= work / speeds * (1 + _ENOUGH):
                continue
            own[r] = 0.0
            rest = own.max()
            # Each sample i of the unit, for each sample j of the others, or for none of a bin (j = n).
            i = numpy.concatenate([numpy.array(sorted(self.members[b]), int) for b in range(u, bins, units)])
            i = i[end[i]][:, None]
            others = numpy.flatnonzero((unit[bin_of] != u) & end)
            elsewhere = numpy.flatnonzero((unit != u) & (self.sample < 0))
            j = numpy.concatenate([others, null[elsewhere]])[None, :]
            to = numpy.concatenate([bin_of[others], elsewhere])[None, :]
            of = bin_of[i]
            back = numpy.where(j == n, 0, 1)  # samples that come for i
            source, target = self._after(0, load, c, of, i, j, number, tops, back), self._after(0, load, c, to, j, i, number, tops, 1, back)
            fits = True
            if limited:
                fits = (self._after(1, used, s, of, i, j, number, tops, back) <= self.room[of]) & (self._after(1, used, s, to, j, i, number, tops, 1, back) <= self.room[to])
            empty = number[of] + back == 1  # the bin has no sample left
            fits = fits & (~empty if not self.free else sum(number[u::units]) + self.free * self.count[u % self.ranks] + back > 1)
            old, new = (self.fixed + load[of]) / self.speed[of], numpy.where(empty, 0.0, (self.fixed + source) / self.speed[of])
            here = time[u] - old + new
            there = time[unit[to]] - numpy.where(number[to] > 0, (self.fixed + load[to]) / self.speed[to], 0.0) + (self.fixed + target) / self.speed[to]
            top = time.reshape(slots, self.ranks).max(1)
            same = slot[unit[to]] == k
            longest = numpy.maximum(here, there)
            gain = numpy.where(same, most - numpy.maximum(rest, longest), most - numpy.maximum(rest, here) - numpy.maximum(0.0, there - top[slot[unit[to]]]))
            gain = numpy.where(numpy.abs(gain) <= most * _ENOUGH / 10, 0.0, gain)
            less = most * (1 - _ENOUGH)  # without a gain, the unit leaves the slowest of its slot, and the other does not join them
            tie = numpy.where(same, longest < less, (here < less) & (there < top[slot[unit[to]]] * (1 - _ENOUGH)))
            gain = numpy.where(fits & ((gain > 0) | (gain == 0) & tie), gain, -1.0)
            best = gain.max(initial=-1.0)
            if best < 0:
                continue
            idle = 0
            x, y = numpy.unravel_index(numpy.argmin(numpy.where(gain == best, longest, math.inf)), gain.shape)
            a, b, i, j = int(of[x, 0]), int(to[0, y]), int(i[x, 0]), int(j[0, y])
            self.members[a].remove(i)
            self.members[b].append(i)
            if j < n:
                self.members[b].remove(j)
                self.members[a].append(j)
            for b in (a, b):
                weigh(b)
                clock(unit[b])
        return _sum(time.reshape(slots, self.ranks).max(1))

    def _after(self, which, price, x, b, i, j, number, tops, more, fewer=1):
        """What bins b cost (which = 0) or take (1) without samples i and with samples j; more and fewer: how many come and go."""
        if not self.padded:
            return price[b] - x[i] * fewer + x[j] * more
        first, second = tops[which, :, b] if numpy.ndim(b) == 0 else (tops[which, 0][b], tops[which, 1][b])
        largest = numpy.maximum(numpy.where((x[i] == first) & (fewer > 0), second, first), numpy.where(more > 0, x[j], 0.0))
        return (number[b] - fewer + more) * largest

    def result(self, _, members, sample):
        out = []
        for r in range(self.ranks):
            cut, own = [], []
            for m, i in zip(members[r::self.ranks], sample[r::self.ranks].tolist()):
                (cut if i >= 0 and self.free else own).append([i] if i >= 0 else sorted(m))
            if self.free:
                own = [m for m in own if m]
                if not self.padded and len(merged := self._merged(r, own)) < len(own):
                    own = merged
            if self.free or (sample < 0).all():  # the ranks of a sample that is cut have it in the same place
                own.sort(key=lambda m: -self._price(m, self.c))
            out.append(cut + own)
        return out

    def _merged(self, r, own):
        """As few bins as first fit finds."""
        out = []
        for i in sorted((i for m in own for i in m), key=lambda i: (-self.s[i], i)):
            for m in out:
                if self._price(m + [i], self.s) <= self.m[r]:
                    m.append(i)
                    break
            else:
                out.append([i])
        return [sorted(m) for m in out]


def _sum(x):
    """In order, as Go adds."""
    total = 0.0
    for v in x.tolist():
        total += v
    return total
