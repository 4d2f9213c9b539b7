"""Online batching simulated: the grouping of evenkeel.bucket's online loader, and beside it ODB's and, where it is installed, lhotse's sampler.

    python3 experiments/bucket/online.py [--quick] [--only lhotse]

30,000 lengths, 8 ranks, setting A's cost: t = 0.08 + 4e-5 B L + 4e-9 B L^2, memory B L (1 + L/8192) <= 65,536. Every processed sample is told at once.
The score is apart from the grouping: the sum over steps of the slowest rank's formula time, over the offline lower bound (as in docs/guides/bucket.md)."""

import argparse
import importlib.util
import itertools
import math
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

from evenkeel.bucket.cost import Costs
from evenkeel.bucket.grouping import Grouping, Part
from evenkeel.bucket.pooled import Pool

OVERHEAD, TOKEN, SQUARE, BEND, MEMORY = .08, 4e-5, 4e-9, 8192, 65536


def lognormal(n, rng):
    return numpy.clip(numpy.round(400 * numpy.exp(.81 * rng.standard_normal(n))), 1, 8192).astype(int)


def pareto(n, rng):
    return numpy.clip(numpy.round(100 * (1 - rng.random(n)) ** (-1 / 1.05)), 1, 14000).astype(int)


def seconds(length, batch):
    return OVERHEAD + batch * length * (TOKEN + SQUARE * length)


def cap(length):
    return int(MEMORY / (length * (1 + length / BEND)))


def plan(longest):
    """What online loading reads of a plan that `evenkeel bucket plan` makes of trials up to this length."""
    memory = [{"length": longest, "fits": cap(longest)}]
    return {"predicts": {"seconds": [OVERHEAD, 0, TOKEN, SQUARE], "room": [MEMORY, 0, 1, 1 / BEND], "memory": memory}, "pad_to": 0, "batch_multiple": 0}


def bound(lengths, speeds):
    """Every sample at the least time per sample of its length or of a longer one that occurs."""
    least, total = math.inf, 0.0
    for length, n in sorted(zip(*numpy.unique(lengths, return_counts=True)), reverse=True):
        least = min(least, seconds(length, cap(length)) / cap(length))
        total += least * n
    return total / sum(speeds)


def online(lengths, window, speeds, seed, pool=False):
    """The steps of an epoch."""
    order = numpy.random.RandomState(seed).permutation(len(lengths))
    g = (Pool if pool else Grouping)(Costs(plan(int(max(lengths.max(), 2)))), speeds, window, order, seed=seed)
    steps = []
    while not g.finished():
        g.draw()
        for r in range(len(speeds)):
            g.hear(r, [(int(lengths[i]), 0) for i in g.coming[r]])
        if parts := g.step():
            steps.append(parts)
    return steps


def odb(lengths, ranks, window, budget, warm=True):
    """Online Dynamic Batching's grouping (arXiv 2606.19989) as its description has it, not its code: every rank has a shard, collects a window of
    samples, sorts it, cuts groups of at most `budget` padded tokens, shuffles them and takes one a step; the next window is collected when this one is
    used up. With warm-up the first windows are smaller: an eighth, then twice as many each time. Ranks that are through wait (join)."""
    queues = []
    for r in range(ranks):
        shard, groups, size, rng = numpy.arange(r, len(lengths), ranks), [], window // 8 if warm else window, numpy.random.RandomState(r)
        shard = rng.permutation(shard)
        while len(shard):
            now, shard = shard[:size], shard[size:]
            size = min(window, 2 * size)
            now = now[numpy.argsort(-lengths[now], kind="stable")]
            cuts, at = [], 0
            while at < len(now):
                longest = int(lengths[now[at]])
                n = max(1, min(budget // longest, cap(longest)))
                cuts.append(now[at:at + n])
                at += n
            rng.shuffle(cuts)
            groups += cuts
        queues.append(groups)
    steps = []
    for k in range(max(map(len, queues))):
        steps.append([Part(list(q[k]), 0, 0, lengths[q[k]].tolist()) if k < len(q) else Part([], 0, 0) for q in queues])
    return steps


def lhotse(lengths, ranks, limit):
    """The steps of lhotse's own DynamicBucketingSampler (pip install lhotse), 30 buckets, batches of up to `limit` tokens. It counts no padding, so a batch
    may run out of memory: then None."""
    from lhotse import CutSet, MonoCut
    from lhotse.dataset.sampling import DynamicBucketingSampler
    cuts = CutSet.from_cuts(MonoCut(id=str(i), start=0, duration=float(n), channel=0) for i, n in enumerate(lengths))
    samplers = [DynamicBucketingSampler(cuts, max_duration=limit, num_buckets=30, shuffle=True, world_size=ranks, rank=r, seed=1) for r in range(ranks)]
    steps = []
    for batches in itertools.zip_longest(*samplers):
        own = [[int(c.id) for c in b or () if "_dup" not in c.id] for b in batches]  # the last step is filled up with samples that came before
        if any(len(b) > cap(int(lengths[b].max())) for b in own if b):
            return None
        steps.append([Part(b, 0, 0, lengths[b].tolist()) for b in own])
    return steps


def score(steps, lengths, speeds):
    """The epoch over the bound, p99 of imbalance, padding, steps, and in which step each sample was. Every sample exactly once, within memory."""
    where = numpy.full(len(lengths), -1)
    epoch, computed, imbalance = 0.0, 0, []
    for k, parts in enumerate(steps):
        times = []
        for p, v in zip(parts, speeds):
            times.append(0.0)
            if len(p.positions):
                own = lengths[list(p.positions)]
                assert (where[list(p.positions)] < 0).all() and len(own) <= cap(int(own.max()))
                where[list(p.positions)] = k
                times[-1] = seconds(int(own.max()), len(own)) / v
                computed += int(own.max()) * len(own)
        epoch += max(times)
        imbalance.append(max(times) * sum(speeds) / sum(t * v for t, v in zip(times, speeds)))
    assert (where >= 0).all(), "not every sample"
    return {"of the bound": epoch / bound(lengths, speeds), "p99": float(numpy.quantile(imbalance, .99)), "padding": 1 - lengths.sum() / computed,
            "steps": len(steps), "where": where}


def meet_again(a, b):
    """The share of pairs in a step of a that share one of b too; and what it would be in random steps of b's sizes."""
    pairs = lambda x: sum(n * (n - 1) / 2 for n in numpy.unique(x, return_counts=True)[1].tolist())
    n = len(a)
    return pairs(a.astype(numpy.int64) * (b.max() + 1) + b) / pairs(a), pairs(b) / (n * (n - 1) / 2)


def lost(steps, lengths, speeds):
    """What the epoch takes beyond the work itself, over the bound: padding, fixed times, waiting."""
    least, padding, fixed, waiting = bound(lengths, [1]), 0.0, 0.0, 0.0
    for parts in steps:
        times = [seconds(max(p.lengths), len(p.lengths)) if p.positions else 0.0 for p in parts]
        own = numpy.concatenate([numpy.asarray(p.lengths, float) for p in parts])
        fixed += OVERHEAD * sum(bool(p.positions) for p in parts)
        padding += sum(times) - OVERHEAD * sum(bool(p.positions) for p in parts) - float((own * (TOKEN + SQUARE * own)).sum())
        waiting += max(t / v for t, v in zip(times, speeds)) * sum(speeds) - sum(times)
    return padding / least, fixed / least, waiting / least


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["lhotse"])
    args = parser.parse_args()
    n = 6000 if args.quick else 30000
    print("| lengths | grouping | of the bound (worst) | p99 (worst) | padding % | fixed times % | waiting % | steps | meet again | in random steps |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, draw in (("lognormal", lognormal), ("Pareto 1.05", pareto)):
        lengths = draw(n, numpy.random.default_rng(1))
        if args.only is None:
            ours(name, lengths)
            peer(name, "ODB's, 256 a rank", lengths, lambda budget: odb(lengths, 8, 256, budget))
            peer(name, "ODB's, 1024 a rank", lengths, lambda budget: odb(lengths, 8, 1024, budget))
            peer(name, "ODB's, 1024 a rank, no warm-up", lengths, lambda budget: odb(lengths, 8, 1024, budget, False))
        if importlib.util.find_spec("lhotse"):
            peer(name, "lhotse's, 30 buckets", lengths, lambda budget: lhotse(lengths, 8, budget))


def ours(name, lengths):
    for pool in (False, True):
        for window in (1024, 256):
            for slow in (1, .9, .5):
                speeds = [1] * 7 + [slow]
                rows = []
                for seed in range(2):
                    steps = online(lengths, window, speeds, seed, pool)
                    rows.append({**score(steps, lengths, speeds), "lost": lost(steps, lengths, speeds)})
                again = [meet_again(a["where"], b["where"]) for a, b in zip(rows, rows[1:])]
                mean = lambda k: sum(r[k] for r in rows) / len(rows)
                print(f"| {name} | window {window}" + (", pooled" if pool else "") + (f", one rank at {slow}" if slow < 1 else "") +
                      f" | {mean('of the bound'):.3f} ({max(r['of the bound'] for r in rows):.3f}) | {mean('p99'):.2f} ({max(r['p99'] for r in rows):.2f}) | "
                      + " | ".join(f"{100 * sum(r['lost'][k] for r in rows) / len(rows):.1f}" for k in range(3)) + f" | {mean('steps'):.0f} "
                      f"| {sum(a for a, _ in again) / len(again):.3f} | {sum(b for _, b in again) / len(again):.3f} |", flush=True)


def peer(name, rule, lengths, cut):
    """A peer's row: its best budget of tokens, on equal ranks and with one at half speed, of whose speed it knows nothing."""
    tried = {budget: cut(budget) for budget in (4096, 8192, 12288, 16384, 24576, 32768, 49152, 65536)}
    for speeds in ([1] * 8, [1] * 7 + [.5]):
        best = min(((score(steps, lengths, speeds), budget) for budget, steps in tried.items() if steps), key=lambda x: x[0]["of the bound"])
        print(f"| {name} | {rule}, {best[1]} tokens{', one rank at 0.5' if min(speeds) < 1 else ''} | {best[0]['of the bound']:.3f} "
              f"| {best[0]['p99']:.2f} | " + " | ".join(f"{100 * x:.1f}" for x in lost(tried[best[1]], lengths, speeds)) + f" | {best[0]['steps']} | | |", flush=True)


if __name__ == "__main__":
    main()
