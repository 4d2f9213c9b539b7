#!/usr/bin/env python3
"""Epochs batched by evenkeel beside those of other systems at their best setting, at equal randomness, on eight equal ranks.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers lhotse online-dynamic-batching
    EVENKEEL=evenkeel /tmp/peers/bin/python experiments/bucket/compare.py [SAMPLES]

lhotse's DynamicBucketingSampler, ODB's grouping_data, transformers' LengthGroupedSampler and BatchRebalanceSampler are their own code; fairseq's rule (batch_by_size of
sorted samples, grouped shuffling, all steps kept) is written from its source. A batch of B samples padded to L tokens takes .02 + 4e-5 B L + 4e-9 B L^2 seconds, and
memory holds B L (1 + L/8192) <= 16,384. A rule with a limit of tokens gets the best of five that stay within memory.

Randomness is the share of pairs of samples in a step that share one in the next epoch, too. evenkeel's plans get the mixing with which no more pairs meet again than
with the other rule. BatchRebalanceSampler's steps are random; BatchLoader gets the same number of samples and micro-batches. Beside ODB, whose lengths are known late, stands
BatchLoader with as many samples a step as ODB's have. Each step adds the exchange of gradients: 0, 5 or 20% of a full batch of the median length."""

import importlib.metadata
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from even import SETS
from evenkeel.bucket import BatchLoader

RANKS, SHARES = 8, (0, .05, .2)
SAMPLES = int(sys.argv[1]) if len(sys.argv) > 1 else 6_400
FIXED, TOKEN, SQUARE, BEND, MEMORY = .02, 4e-5, 4e-9, 8192, 16384
BUDGETS = 6144, 8192, 10240, 12288, 16384
MIXING = 0, .002, .005, .01, .02, .04, .08, .16, .3, .6, 1


def seconds(length, batch):
    return FIXED + batch * length * (TOKEN + SQUARE * length)


def cap(length):
    return int(MEMORY / (length * (1 + length / BEND)))


class Epoch:
    """What the steps of an epoch take: a step is, for each rank, a list of micro-batches, all of which wait for one another."""

    def __init__(self, lengths, steps, memory=True):
        self.where, self.steps, self.time, self.fits = numpy.full(len(lengths), -1), len(steps), 0.0, True
        for k, ranks in enumerate(steps):
            for micro in itertools.zip_longest(*ranks, fillvalue=()):
                took = [0.0]
                for b in map(list, micro):
                    if len(b):
                        longest = int(lengths[b].max())
                        self.fits &= not memory or len(b) <= cap(longest)
                        took.append(seconds(longest, len(b)))
                        assert (self.where[b] < 0).all(), "a sample comes twice"
                        self.where[b] = k
                self.time += max(took)
        assert (self.where >= 0).all(), "a sample is lost"

    def again(self, other):
        """The share of pairs in a step here that share one there."""
        pairs = lambda x: sum(n * (n - 1) / 2 for n in numpy.unique(x, return_counts=True)[1].tolist())
        return pairs(self.where.astype(numpy.int64) * (other.where.max() + 1) + other.where) / pairs(self.where)


def dealt(batches):
    return [[[b] for b in batches[at:at + RANKS]] for at in range(0, len(batches), RANKS)]


def lhotse(lengths, budget, seed):
    from lhotse import CutSet, MonoCut
    from lhotse.dataset.sampling import DynamicBucketingSampler
    cuts = CutSet.from_cuts(MonoCut(id=str(i), start=0, duration=float(n), channel=0) for i, n in enumerate(lengths))
    samplers = [DynamicBucketingSampler(cuts, max_duration=budget, num_buckets=30, shuffle=True, world_size=RANKS, rank=r, seed=seed) for r in range(RANKS)]
    # The last step is filled up with samples that came before.
    return [[[[int(c.id) for c in b or () if "_dup" not in c.id]] for b in batches] for batches in itertools.zip_longest(*samplers)]


def fairseq(lengths, budget, seed):
    order, batches, at = numpy.argsort(lengths + numpy.random.RandomState(seed).rand(len(lengths)), kind="stable"), [], 0
    while at < len(order):
        n = 1
        while at + n < len(order) and (n + 1) * lengths[order[at + n]] <= budget:
            n += 1
        batches.append(order[at:at + n])
        at += n
    return dealt(batches)


def grouped(lengths, budget, seed):
    """One batch size for all, as the longest sample needs it."""
    import torch
    from transformers.trainer_pt_utils import LengthGroupedSampler
    size = cap(int(lengths.max()))
    order = list(LengthGroupedSampler(size * RANKS, lengths=lengths.tolist(), generator=torch.Generator().manual_seed(seed)))
    return dealt([order[at:at + size] for at in range(0, len(order), size)])


class Group:
    """torch.distributed for threads, as far as grouping_data uses it."""

    def __init__(self):
        self.barrier, self.told, self.own = threading.Barrier(RANKS), [None] * RANKS, threading.local()

    def get_world_size(self, group):
        return RANKS

    def get_rank(self, group):
        return self.own.rank

    def all_gather_into_tensor(self, out, told, group):
        import torch
        self.told[self.own.rank] = told
        self.barrier.wait()
        out.copy_(torch.cat(self.told))
        self.barrier.wait()


def odb(lengths, budget, seed, window=1024):
    """Windows of 1,024 samples of each rank's shard, without the warm-up of smaller ones."""
    import odb.grouping
    import torch
    dist = odb.grouping.dist = Group()
    order, queues, faults = numpy.random.RandomState(seed).permutation(len(lengths)), [[] for _ in range(RANKS)], []

    def rank(r):
        dist.own.rank, shard, left, done = r, order[r::RANKS].tolist(), [], False
        try:
            while not done:
                new, shard = shard[:window - len(left)], shard[window - len(left):]
                left += [{"input_ids": torch.empty(int(lengths[i]), dtype=torch.uint8), "i": i} for i in new]
                groups, left, done, _ = odb.grouping.grouping_data([left], budget, True, is_finished=not left, idx_budget=4096, join_mode=True)
                random.Random(seed * RANKS + r).shuffle(groups)
                queues[r] += [[s["i"] for s in g] for g in groups]
        except BaseException as e:
            faults.append(e)
            dist.barrier.abort()

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(RANKS)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if faults:
        raise faults[0]
    return [[[b] for b in step] for step in itertools.zip_longest(*queues, fillvalue=[])]


def rebalanced(lengths, each, seed):
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    class Same(BatchRebalanceSampler):
        QUADRATIC_COST_COEF = SQUARE / TOKEN

    samplers = [list(Same(lengths.tolist(), RANKS * each, RANKS, 4, seed=seed, rank=r, drop_last=False)) for r in range(RANKS)]
    return [[s[at:at + 4] for s in samplers] for at in range(0, max(map(len, samplers)), 4)]


def batches(lengths, each, seed, **more):
    """evenkeel's random batches."""
    loader = BatchLoader(range(len(lengths)), lengths, RANKS * each, cost=lambda n: n * (TOKEN + SQUARE * n), fixed=FIXED, rank=0, ranks=RANKS, seed=seed, **more)
    steps = [loader.step_samples(k, 0) for k in range(loader.steps)]
    return [[[samples[m].tolist() for m in rank] for rank in loader._divide(samples, lengths[samples])] for samples in steps]


def planned(lengths, folder):
    """evenkeel's planned epochs, by mixing."""
    def run(*args):
        subprocess.run([os.environ.get("EVENKEEL", "evenkeel"), "bucket", *args], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    with open(f"{folder}/lengths.txt", "w") as f:
        f.writelines(f"{n}\n" for n in lengths)
    longest = int(lengths.max())
    with open(f"{folder}/table.csv", "w") as f:
        f.write("length,batch,seconds,peak_bytes\n")
        for l in sorted({16, 64, 256, 1024, longest // 2, longest}):
            f.writelines(f"{l},{b},{seconds(l, b)!r},{b * l * (1 + l / BEND)}\n" for b in sorted({1, cap(l) // 2, cap(l)} - {0}))
    out = []
    for mixing in MIXING:
        run("plan", "--lengths", "lengths.txt", "--table", "table.csv", "--memory", str(MEMORY), "--ranks", str(RANKS), "--mixing", str(mixing), "--out", "plan.json")
        two = []
        for epoch in "01":
            run("schedule", "--plan", "plan.json", "--lengths", "lengths.txt", "--epoch", epoch, "--out", "epoch.jsonl")
            with open(f"{folder}/epoch.jsonl") as f:
                head, *lines, _ = map(json.loads, f)
            steps = [[[] for _ in range(RANKS)] for _ in range(head["steps"])]
            for line in lines:
                steps[line["step"]][line["rank"]].append(line["samples"])
            two.append(Epoch(lengths, steps))
        out.append((mixing, two[0], two[0].again(two[1])))
        assert two[0].fits
    return out


def best(cut, lengths, settings, full, memory=True):
    """For each share of exchange the best setting's epoch, with how many pairs meet again."""
    tried = [(Epoch(lengths, cut(lengths, s, 1), memory), s) for s in settings]
    out, again = [], {}
    for share in SHARES:
        e, s = min(((e, s) for e, s in tried if e.fits), key=lambda x: x[0].time + x[0].steps * share * full)
        if s not in again:
            again[s] = e.again(Epoch(lengths, cut(lengths, s, 2), memory))
        out.append((e, again[s]))
    return out


def main():
    print(", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("lhotse", "online-dynamic-batching", "transformers")))
    print("| lengths | rule | steps | meet again | evenkeel's steps | meet again | " + " | ".join(f"exchange {100 * s:g}%" for s in SHARES) + " |\n|---|---|---|---|---|---|---|---|---|")
    for kind, draw in SETS.items():
        r = random.Random(1)
        lengths = numpy.array([max(16, min(8192, int(draw(r)))) for _ in range(SAMPLES)])
        middle = int(numpy.median(lengths))
        full = seconds(middle, cap(middle))
        total = lambda e, share: e.time + e.steps * share * full
        with tempfile.TemporaryDirectory() as folder:
            plans = planned(lengths, folder)

        def row(rule, peers, ours, again):
            cells = [f"{total(o, s) / total(p, s):.3f}" for (p, _), o, s in zip(peers, ours, SHARES)]
            print(f"| {kind} | {rule} | {peers[0][0].steps} | {peers[0][1]:.3f} | {ours[0].steps} | {again:.3f} | {' | '.join(cells)} |", flush=True)

        for rule, cut, settings in (("lhotse", lhotse, BUDGETS), ("fairseq, grouped", fairseq, BUDGETS), ("group_by_length", grouped, (0,)), ("ODB", odb, BUDGETS)):
            peers = best(cut, lengths, settings, full)
            ours = []
            for share, (_, again) in zip(SHARES, peers):
                fair = [p for p in plans if p[2] <= again] or [min(plans, key=lambda p: p[2])]
                ours.append(min(fair, key=lambda p: total(p[1], share)))
            row(rule, peers, [o[1] for o in ours], ours[0][2])
            if rule == "ODB":
                each = max(1, round(SAMPLES / peers[0][0].steps / RANKS))
                late = [Epoch(lengths, batches(lengths, each, s, memory=min(BUDGETS[-1], *((cap(int(n)) + 1) * int(n) - 1 for n in numpy.unique(lengths))))) for s in (1, 2)]
                assert late[0].fits
                row("ODB, beside BatchLoader", peers, [late[0]] * 3, late[0].again(late[1]))
        peers = best(rebalanced, lengths, (32,), full, False)
        own = [Epoch(lengths, batches(lengths, 32, s, micro_batches=4), False) for s in (1, 2)]
        row("BatchRebalanceSampler", peers, [own[0]] * 3, own[0].again(own[1]))


if __name__ == "__main__":
    main()
