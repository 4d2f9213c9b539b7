"""What batches of samples cost: trials of training steps, and a formula that fits them."""

import csv
import gc
import itertools
import math
import re
import statistics
import time

import numpy
import torch
import torch.distributed as dist

from ..profile import write
from .late import Exchange
from .schedule import ScheduleError

WARM, TIMED = 1, 3  # runs of a trial that warm up; that count


class Costs:
    """Seconds of a batch of B samples of L tokens: a + b B + c B L + d B L^2, fitted to a table of trials as stepcost in Go does.

    costs(lengths)   seconds that samples of these lengths add to a batch, for BatchLoader(cost=costs, fixed=costs.fixed)
    fixed            seconds of a batch beside its samples: a
    memory           tokens that fit at every length that ran out of memory, one number per rank where there are several; None: nothing ran out of memory
    speeds           of the ranks, relative to the first; None: trials of one rank alone
    error, worst     mean and largest relative error of the fit on the trials"""

    def __init__(self, trials, others=()):
        """trials: (length, batch, seconds or None if out of memory, peak bytes or None), and those of the other ranks."""
        self.trials = sorted(trials, key=lambda t: t[:2])
        ran = numpy.array([t[:3] for t in self.trials if t[2] is not None], float).reshape(-1, 3)
        if not len(ran):
            raise ScheduleError("no trial ran: every one is out of memory")
        self.weights, self.error, self.worst = _fit(*ran.T)
        self.fixed = self.weights[0]
        fit = [_tokens(t) for t in (self.trials, *others)]
        self.memory = (fit if others else fit[0]) if any(t[2] is None for one in (self.trials, *others) for t in one) else None
        own = {t[:2]: t[2] for t in self.trials if t[2]}
        self.speeds = [1.0] if others else None
        for rank, other in enumerate(others, 1):
            same = [own[t[:2]] / t[2] for t in other if t[2] and t[:2] in own]
            if not same:
                raise ScheduleError(f"rank {rank} ran no trial that rank 0 ran: one of them is out of memory")
            self.speeds.append(statistics.median(same))

    def __call__(self, lengths):
        n, w = numpy.asarray(lengths, float), self.weights
        return w[1] + n * (w[2] + n * w[3])

    def write(self, path):
        """Writes the trials as a table for `evenkeel bucket plan`."""
        write(str(path), ("length", "batch", "seconds", "peak_bytes"), self.trials)

    def __repr__(self):
        a, b, c, d = self.weights
        return f"<{a:.4g} s + n ({b:.3g} + {c:.3g} L + {d:.3g} L^2) s for n samples of L tokens; {self.error:.1%} off {len(self.trials)} trials, at worst {self.worst:.1%}>"


def measured(path):
    """The costs of a table of trials, a CSV."""
    try:
        with open(path, newline="") as f:
            return Costs([(int(r["length"]), int(r["batch"]), float(r["seconds"]) if r["seconds"] else None, None) for r in csv.DictReader(f)])
    except OSError as e:
        raise ScheduleError(f"table: {e}") from None
    except (KeyError, TypeError, ValueError) as e:
        raise ScheduleError(f"{path}: not a table of length,batch,seconds,peak_bytes: {e}") from None


def profile(step, lengths, *, shapes=8, longest=2.0, most=4096):
    """Times training steps in this process and fits their cost.

    step(length, batch)   runs a training step of a batch of so many samples of a length; with the optimizer's state in memory, as in training
    lengths               those of the data set; steps are tried at `shapes` of them, each standing for as many tokens
    longest, most         batches grow up to about so many seconds, and up to so many samples

    Out of memory is found out by running into it; on a CPU `longest` ends the trials before. With torch.distributed, all ranks call it and get the same
    costs, those of rank 0, with the speed and the memory of each: so step() must not communicate. Call it before the model is wrapped."""
    lengths = numpy.sort(numpy.asarray(lengths))
    if not len(lengths) or not ((lengths >= 1) & (lengths < math.inf)).all():
        raise ScheduleError("lengths: give those of the data set, each from 1")
    if not dist.is_available() or not dist.is_initialized():
        return Costs(_search(step, lengths, shapes, longest, most))
    first, *others = Exchange(dist.get_rank(), dist.get_world_size()).gather(lambda: _search(step, lengths, shapes, longest, most))
    return Costs(first, others)


def _search(step, lengths, shapes, longest, most):
    """The trials: at each length, the largest batch that fits, and a half, a quarter and one sample of it."""
    sums = numpy.cumsum(lengths, dtype=float)
    tried = sorted({int(lengths[min(len(lengths) - 1, numpy.searchsorted(sums, sums[-1] * k / shapes))]) for k in range(1, shapes)} | {int(lengths[-1])})
    trials, tokens, each = [], tried[-1], math.inf  # each: seconds of a sample of the length before; a shorter one takes no longer
    for length in reversed(tried):
        fits, out = 0, most + 1
        batch = max(1, min(most, tokens // length, int(2 * longest / each)))  # as many tokens as fitted at longer lengths
        while True:
            seconds, peak = _trial(step, length, batch)
            trials.append((length, batch, seconds, peak))
            if seconds is None:
                out = batch
            else:
                fits, each = batch, seconds / batch
            if out - fits <= max(1, fits // 8) or seconds is not None and seconds > longest / 2:
                break
            batch = min(2 * fits, most) if out > most else (fits + out) // 2
        tokens = max(tokens, fits * length)
        for less in {1, fits // 4, fits // 2} - {t[1] for t in trials if t[0] == length} - {0}:
            trials.append((length, less, *_trial(step, length, less)))
    return trials


def _trial(step, length, batch):
    """Median seconds and the peak bytes of a step, each None if out of memory or not known."""
    cuda, times = torch.cuda.is_available(), []
    wait = torch.cuda.synchronize if cuda else lambda: None
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    try:
        for _ in range(WARM + TIMED):
            wait()
            begun = time.perf_counter()
            step(length, batch)
            wait()
            times.append(time.perf_counter() - begun)
    except RuntimeError as e:  # torch.OutOfMemoryError, and what cuBLAS and the CPU's allocator raise
        if not re.search("out of memory|(not enough|allocate) memory|ALLOC_FAILED", str(e)):
            raise
        times = None
    if times is None:  # outside of the handler, whose exception holds tensors
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
        return None, None
    return statistics.median(times[WARM:]), torch.cuda.max_memory_allocated() if cuda else None


def _tokens(trials):
    """The tokens that fit at every length; those that ran out of memory say so, by less than one sample where it did alone."""
    ran = {}
    for length, batch, seconds, _ in trials:
        if seconds is not None:
            ran[length] = max(ran.get(length, 0), length * batch)
    return float(min((ran.get(t[0], t[0] - 1) for t in trials if t[2] is None), default=max(ran.values(), default=0)))


def _fit(length, batch, seconds):
    """The weights of 1, B, B L and B L^2, and the errors. As leastSquares in stepcost."""
    terms = numpy.stack([numpy.ones_like(batch), batch, batch * length, batch * length * length], 1)
    scale, n, best = terms.max(0), len(terms), (math.inf, None)
    for kept in itertools.chain.from_iterable(itertools.combinations(range(4), k) for k in range(1, min(4, max(1, n - 1)) + 1)):
        kept, weights, v = list(kept), numpy.zeros(4), seconds
        for _ in range(2):  # weighed by the measurements, then by the first fit
            found = numpy.linalg.lstsq(terms[:, kept] / scale[kept] / v[:, None], seconds / v, rcond=None)[0] / scale[kept]
            if not (found > 0).all():
                break
            weights[kept] = found
            v = terms @ weights
        else:
            error = abs(v / seconds - 1)
            bic = n * math.log((error ** 2).mean() + 1e-16) + sum(k > 0 for k in kept) * math.log(n)
            best = min(best, (bic, (weights.tolist(), float(error.mean()), float(error.max()))), key=lambda b: b[0])
    return best[1]
