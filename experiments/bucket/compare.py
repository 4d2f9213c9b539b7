#!/usr/bin/env python3
"""Epochs batched by evenkeel beside those of other systems at their best setting, at equal randomness.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install torch transformers lhotse online-dynamic-batching
    EVENKEEL=evenkeel /tmp/peers/bin/python experiments/bucket/compare.py --prime-rl src/prime_rl/trainer/batch.py [--real]

lhotse's DynamicBucketingSampler, ODB's grouping_data, transformers' LengthGroupedSampler and BatchRebalanceSampler, and prime-rl's packer are their own code;
fairseq's rule (batch_by_size of sorted samples, grouped shuffling, all steps kept) is written from its source. A batch of B samples padded to L tokens takes
.02 + 4e-5 B L + 4e-9 B L^2 seconds, and memory holds B L (1 + L/8192) <= 16,384. Every rule gets the fastest of its settings whose batches stay within memory:
limits on tokens, and with lhotse numbers of buckets and its quadratic limit, with ODB windows.

Randomness is the share of pairs of samples in a step that share one in the next epoch, too, and the mean over samples of this share of their step-mates.
evenkeel's plans get the largest mixing with which neither is more than with the other rule. BatchRebalanceSampler's and prime-rl's steps are random;
BatchLoader gets the same number of samples and micro-batches, or tokens. Beside ODB, whose lengths are known late, stands BatchLoader, too, with as many
samples a step as ODB's have. A + marks where no plan is as random: the most random one stands there. Each step adds the exchange of gradients: 0, 5 or 20% of a full batch of the median length.

--real: three ranks on a small transformer; times are those of this machine's processor (one thread), of each batch's shape, or of its documents if it is packed,
in random order, the least of three. evenkeel and prime-rl know a fit to trials of other shapes; the limits on memory are 2,048 tokens."""

import argparse
import functools
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
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from even import SETS, SPEEDS, prime
from evenkeel.bucket import BatchLoader, Costs

SHARES = 0, .05, .2
MIXING, FINER = (0, .001, .003, .006, .01, .02, .03, .05, .08, .12, .2, .4, .7, 1), (.3, .5, .6, .8)


class Device:
    """What a batch takes, and what fits."""

    def __init__(self, fixed=.02, sample=0.0, token=4e-5, square=4e-9, memory=16384, bend=8192):
        self.fixed, self.sample, self.token, self.square, self.memory, self.bend = fixed, sample, token, square, memory, bend
        self.timed = {}  # by shape, where it was measured

    def cost(self, length):
        return self.sample + length * (self.token + self.square * length)

    def seconds(self, length, batch):
        return self.timed.get((length, batch)) or self.fixed + batch * self.cost(length)

    def cap(self, length):
        return int(self.memory / (length * (1 + length / self.bend)))

    def limits(self, lengths):
        """Limits on tokens: around the largest that fits at every length."""
        safe = min((self.cap(n) + 1) * n - 1 for n in numpy.unique(lengths).tolist())
        return [int(safe * x) for x in (.7, .85, 1, 1.1, 1.2, 1.35)]


class Epoch:
    """The steps of an epoch: for each rank, a list of micro-batches. free: ranks wait for one another at the end of a step only."""

    def __init__(self, lengths, steps, packed=False, free=False):
        self.where, self.lengths, self.packed, self.free = numpy.full(len(lengths), -1), lengths, packed, free
        self.steps = [[[numpy.asarray(b, int) for b in own if len(b)] for own in ranks] for ranks in steps]
        for k, ranks in enumerate(self.steps):
            for b in itertools.chain.from_iterable(ranks):
                if (self.where[b] >= 0).any():
                    raise SystemExit("a sample comes twice")
                self.where[b] = k
        if (self.where < 0).any():
            raise SystemExit("a sample is lost")

    def shapes(self):
        return [tuple(sorted(self.lengths[b].tolist())) if self.packed else (int(self.lengths[b].max()), len(b)) for b in itertools.chain.from_iterable(itertools.chain.from_iterable(self.steps))]

    def fits(self, device):
        return not self.exceeding(device)

    def exceeding(self, device):
        return sum(n > device.cap(longest) for longest, n in self.shapes())

    def batch(self, device, b):
        if not self.packed:
            return device.seconds(int(self.lengths[b].max()), len(b))
        return device.timed.get(tuple(sorted(self.lengths[b].tolist()))) or device.fixed + float(device.cost(self.lengths[b]).sum())

    def time(self, device, speeds, exchange=0.0):
        took = exchange * len(self.steps)
        for ranks in self.steps:
            each = [[self.batch(device, b) / v for b in own] for own, v in zip(ranks, speeds)]
            took += max(map(sum, each)) if self.free else sum(map(max, itertools.zip_longest(*each, fillvalue=0.0)))
        return took

    def work(self, device):
        """All batches, on one rank."""
        return sum(self.batch(device, b) for b in itertools.chain.from_iterable(itertools.chain.from_iterable(self.steps)))

    def again(self, other):
        """The share of pairs in a step here that share one there, and the mean over samples of that share of their step-mates."""
        both = self.where.astype(numpy.int64) * (other.where.max() + 1) + other.where
        sizes = lambda x: numpy.unique(x, return_inverse=True, return_counts=True)[1:]
        (own, n), (met, m) = sizes(self.where), sizes(both)
        return float((m * (m - 1)).sum() / max(1, (n * (n - 1)).sum())), float(((m[met] - 1) / numpy.maximum(1, n[own] - 1)).mean())


def dealt(batches, ranks):
    return [[[b] for b in batches[at:at + ranks]] for at in range(0, len(batches), ranks)]


@functools.lru_cache(1)
def cuts(lengths):
    from lhotse import CutSet, MonoCut
    return CutSet.from_cuts(MonoCut(id=str(i), start=0, duration=float(n), channel=0) for i, n in enumerate(lengths))


def lhotse(lengths, setting, ranks, seed):
    """Each rank draws the batches of all and takes its own; here they are drawn once. The last step's samples are divided anew."""
    from lhotse.dataset.sampling import DynamicBucketingSampler
    limit, buckets, bend = setting
    sampler = iter(DynamicBucketingSampler(cuts(tuple(lengths.tolist())), max_duration=limit, num_buckets=buckets, quadratic_duration=bend, shuffle=True, world_size=ranks, rank=0, seed=seed))
    steps = [[]]
    while True:
        try:
            batch = [int(c.id) for c in sampler._next_batch()]
        except StopIteration:
            break
        if len(steps[-1]) == ranks:
            steps.append([])
        steps[-1].append([batch])
    if len(steps[-1]) < ranks:
        last = sum((b for own in steps[-1] for b in own), [])
        steps[-1] = [[part.tolist()] for part in numpy.array_split(last, ranks)]
    return steps


def fairseq(lengths, limit, ranks, seed):
    order, batches, at = numpy.argsort(lengths + numpy.random.RandomState(seed).rand(len(lengths)), kind="stable"), [], 0
    while at < len(order):
        n = 1
        while at + n < len(order) and (n + 1) * lengths[order[at + n]] <= limit:
            n += 1
        batches.append(order[at:at + n])
        at += n
    return dealt(batches, ranks)


def grouped(lengths, size, ranks, seed):
    """One batch size for all, as the longest sample needs it."""
    import torch
    from transformers.trainer_pt_utils import LengthGroupedSampler
    order = list(LengthGroupedSampler(size * ranks, lengths=lengths.tolist(), generator=torch.Generator().manual_seed(seed)))
    return dealt([order[at:at + size] for at in range(0, len(order), size)], ranks)


class Group:
    """torch.distributed for threads, as far as grouping_data uses it."""

    def __init__(self, ranks):
        self.ranks, self.barrier, self.told, self.own = ranks, threading.Barrier(ranks), [None] * ranks, threading.local()

    def get_world_size(self, group):
        return self.ranks

    def get_rank(self, group):
        return self.own.rank

    def all_gather_into_tensor(self, out, told, group):
        import torch
        self.told[self.own.rank] = told
        self.barrier.wait()
        out.copy_(torch.cat(self.told))
        self.barrier.wait()


def odb(lengths, setting, ranks, seed):
    """Windows of each rank's shard, without the warm-up of smaller ones."""
    import odb.grouping
    import torch
    limit, window = setting
    dist = odb.grouping.dist = Group(ranks)
    order, queues, faults = numpy.random.RandomState(seed).permutation(len(lengths)), [[] for _ in range(ranks)], []

    def rank(r):
        dist.own.rank, shard, left, done = r, order[r::ranks].tolist(), [], False
        try:
            while not done:
                new, shard = shard[:window - len(left)], shard[window - len(left):]
                left += [{"input_ids": torch.empty(int(lengths[i]), dtype=torch.uint8), "i": i} for i in new]
                groups, left, done, _ = odb.grouping.grouping_data([left], limit, True, is_finished=not left, idx_budget=4096, join_mode=True)
                random.Random(seed * ranks + r).shuffle(groups)
                queues[r] += [[s["i"] for s in g] for g in groups]
        except BaseException as e:
            faults.append(e)
            dist.barrier.abort()

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(ranks)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if faults:
        raise faults[0]
    return [[[b] for b in step] for step in itertools.zip_longest(*queues, fillvalue=[])]


def rebalanced(device):
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    class Same(BatchRebalanceSampler):
        QUADRATIC_COST_COEF = device.square / device.token

    def cut(lengths, each, ranks, seed):
        samplers = [list(Same(lengths.tolist(), ranks * each, ranks, 4, seed=seed, rank=r, drop_last=False)) for r in range(ranks)]
        return [[s[at:at + 4] for s in samplers] for at in range(0, max(map(len, samplers)), 4)]

    return cut


def random_batches(device, speeds, lengths, each, seed, **more):
    """evenkeel's."""
    loader = BatchLoader(range(len(lengths)), lengths, len(speeds) * each, cost=device.cost, fixed=device.fixed, rank=0, ranks=len(speeds), speeds=speeds, seed=seed, **more)
    steps = [loader.step_samples(k, 0) for k in range(loader.steps)]
    return [[[samples[m].tolist() for m in rank] for rank in loader._divide(samples, lengths[samples])] for samples in steps], steps


def planned(lengths, device, speeds, folder, finer):
    """evenkeel's planned epochs by mixing, each with how many meet again, and the lower bound."""
    def run(*args):
        return subprocess.run([os.environ.get("EVENKEEL", "evenkeel"), "bucket", *args], cwd=folder, check=True, stdout=subprocess.PIPE).stdout

    with open(f"{folder}/lengths.txt", "w") as f:
        f.writelines(f"{n}\n" for n in lengths)
    longest = int(lengths.max())
    with open(f"{folder}/table.csv", "w") as f:
        f.write("length,batch,seconds,peak_bytes\n")
        for l in sorted({longest // 64 + 1, longest // 16, longest // 8, longest // 4, longest // 2, longest}):
            f.writelines(f"{l},{b},{device.fixed + b * device.cost(l)!r},{b * l * (1 + l / device.bend)}\n" for b in sorted({1, device.cap(l) // 2, device.cap(l)} - {0}))
    out = []
    for mixing in MIXING + FINER * finer:
        plan = json.loads(run("plan", "--lengths", "lengths.txt", "--table", "table.csv", "--memory", str(device.memory), "--speeds", ",".join(map(str, speeds)),
                              "--mixing", str(mixing), "--out", "plan.json", "--json"))
        two = []
        for epoch in "01":
            run("schedule", "--plan", "plan.json", "--lengths", "lengths.txt", "--epoch", epoch, "--out", "epoch.jsonl")
            with open(f"{folder}/epoch.jsonl") as f:
                head, *lines, _ = map(json.loads, f)
            steps = [[[] for _ in speeds] for _ in range(head["steps"])]
            for line in lines:
                steps[line["step"]][line["rank"]].append(line["samples"])
            two.append(Epoch(lengths, steps, free=True))
        if not two[0].fits(device):
            raise SystemExit("a planned batch exceeds the memory")
        out.append((two[0], two[0].again(two[1]), mixing))
    return out, plan["lower_bound_seconds"]


def compare(lengths, device, speeds, packer, finer):
    """For each rule, and each share of exchange, its epoch and evenkeel's; and the lower bound."""
    ranks = len(speeds)
    middle = int(numpy.median(lengths))
    exchange = [s * (device.fixed + device.cap(middle) * device.cost(middle)) for s in SHARES]
    with tempfile.TemporaryDirectory() as folder:
        plans, bound = planned(lengths, device, speeds, folder, finer)
    limits = device.limits(lengths)
    rules = {
        "lhotse": (lhotse, [(float(device.memory * x), k, None if device.bend == math.inf else float(device.bend)) for x in (.3, .5, .6, .7, .8, .9) for k in (30, 100)]),
        "fairseq, grouped": (fairseq, limits),
        "group_by_length": (grouped, [device.cap(int(lengths.max()))]),
        "ODB": (odb, [(limit, w) for limit in limits[1:] for w in (1024, len(lengths))]),
    }
    out = {}
    for rule, (cut, settings) in rules.items():
        tried = [(Epoch(lengths, cut(lengths, s, ranks, 1)), s) for s in settings]
        least = min(e.exceeding(device) for e, _ in tried)  # 0 if any setting fits
        tried = [t for t in tried if t[0].exceeding(device) == least]
        rows, again = [], {}
        for x in exchange:
            peer, s = min(tried, key=lambda t: t[0].time(device, speeds, x))
            if s not in again:
                again[s] = peer.again(Epoch(lengths, cut(lengths, s, ranks, 2)))
            fair = [p for p in plans if p[1][0] <= again[s][0] and p[1][1] <= again[s][1]]
            peer.more_random = not fair
            fair = fair or [min(plans, key=lambda p: p[1])]
            own = min(fair, key=lambda p: p[0].time(device, speeds, x))
            rows.append((peer, own[0], x))
            print("#", rule, s, len(peer.steps), "steps, again", again[s], "| mixing", own[2], len(own[0].steps), own[1], file=sys.stderr, flush=True)
        out[rule] = rows
        if rule == "ODB":
            share = min(again[s]) if finer else 1 / len(rows[0][0].steps)  # of the samples in a step; in random steps as many meet again
            each = max(1, round(len(lengths) * share / ranks))
            late = Epoch(lengths, random_batches(device, speeds, lengths, each, 1, memory=limits[2])[0])
            out["ODB beside BatchLoader"] = [(p, late, x) for p, _, x in rows]
            print("# late:", each, "samples of a rank in", len(late.steps), "steps", file=sys.stderr)
    peer = Epoch(lengths, rebalanced(device)(lengths, 32, ranks, 1))
    own = Epoch(lengths, random_batches(device, speeds, lengths, 32, 1, micro_batches=4)[0])
    out["transformers"] = [(peer, own, x) for x in exchange]
    if packer:
        out["prime-rl"] = [(*packs(lengths, device, speeds, packer), x) for x in exchange]
    return out, bound


def packs(lengths, device, speeds, packer):
    """prime-rl's epoch and evenkeel's, of the same random steps."""
    parts, steps = random_batches(device, speeds, lengths, 32, 1, memory=device.memory, packed=True)
    peer = [[[samples[m] for m in own] for own in packer(lengths[samples].tolist(), len(speeds))] for samples in steps]
    return Epoch(lengths, peer, packed=True), Epoch(lengths, parts, packed=True)


def table(heads, rows):
    print("\n| rule | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for rule, cells in rows.items():
        print(f"| {rule} | " + " | ".join(cells) + " |", flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--prime-rl", help="its trainer/batch.py")
    args.add_argument("--samples", type=int, default=8_000)
    args.add_argument("--real", action="store_true")
    args.add_argument("--speeds", choices=SPEEDS, help="only these")
    args.add_argument("--set", choices=SETS, help="only this")
    args.add_argument("--finer", action="store_true", help="more mixings; BatchLoader has so many samples a step that as many meet again as with ODB")
    args = args.parse_args()
    print(", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("lhotse", "online-dynamic-batching", "transformers")))
    if args.real:
        return real(args)
    packer = args.prime_rl and prime(args.prime_rl)
    for name, speeds in SPEEDS.items():
        if args.speeds not in (None, name):
            continue
        rows = {}
        for kind, draw in SETS.items():
            if args.set not in (None, kind):
                continue
            r = random.Random(1)
            lengths, device = numpy.array([max(16, min(8192, int(draw(r)))) for _ in range(args.samples)]), Device()
            found, bound = compare(lengths, device, speeds, packer, args.finer)
            for rule, cells in found.items():
                ratio = " ".join(f"{own.time(device, speeds, x) / peer.time(device, speeds, x):.3f}" for peer, own, x in cells)
                over = "" if rule == "prime-rl" else " ({:.3f}, {:.3f})".format(*(e.time(device, speeds) / bound for e in cells[0][:2]))
                rows.setdefault(rule, []).append(ratio + over + "*" * bool(rule not in ("transformers", "prime-rl") and cells[0][0].exceeding(device)))
                rows[rule][-1] += "+" * (rule != "ODB beside BatchLoader" and getattr(cells[0][0], "more_random", False))
                print("##", name, kind, rule, rows[rule][-1], file=sys.stderr, flush=True)
        print(f"\n{name}: evenkeel's epoch over the rule's, with exchange of {', '.join(f'{s:.0%}' for s in SHARES)} (without exchange, the rule and evenkeel over the lower bound)")
        table([args.set] if args.set else list(SETS), rows)


def real(args):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(1)
    linear = torch.nn.Linear
    embedding, head, layers = torch.nn.Embedding(100, 64), linear(64, 100), [[linear(64, 192), linear(64, 64), linear(64, 256), linear(256, 64)] for _ in range(2)]
    parameters = [p for m in (embedding, head, *sum(layers, [])) for p in m.parameters()]

    def step(*shape):
        """Of (length, batch), or packed of documents of these lengths."""
        packed = len(shape) == 1
        x = embedding(torch.zeros((1, sum(shape[0])) if packed else shape[::-1], dtype=torch.long))
        for qkv, out, up, down in layers:
            each = [part.unflatten(2, (3, 4, 16)).permute(2, 0, 3, 1, 4) for part in qkv(x).split(list(shape[0]) if packed else shape[0], 1)]
            x = torch.layer_norm(x + out(torch.cat([torch.nn.functional.scaled_dot_product_attention(*e).transpose(1, 2).flatten(2) for e in each], 1)), (64,))
            x = torch.layer_norm(x + down(up(x).relu()), (64,))
        head(x).square().mean().backward()
        for p in parameters:
            p.grad = None

    def timed(*shape):
        begun = time.process_time()
        step(*shape)
        return time.process_time() - begun

    speeds, rows = [1.0] * 3, {}
    kinds = [args.set] if args.set else ["lognormal .8", "pareto 1.05"]
    for kind in kinds:
        r = random.Random(1)
        lengths = numpy.array([max(8, min(1024, int(SETS[kind](r) / 8))) for _ in range(args.samples)])
        tried = [(n, b) for n in sorted({*numpy.quantile(lengths, (.1, .3, .5, .7, .9)).astype(int).tolist(), int(lengths.max())})
                 for b in sorted({1, max(1, 1000 // n), max(1, 2048 // n)})]
        devices = {}  # real, and as fitted
        for packed in (False, True):
            costs = Costs([(n, b, min(timed((n,) * b) if packed else timed(n, b) for _ in range(5)), None) for n, b in tried])
            print(f"# {kind}{', packed' * packed}: {costs!r}", flush=True)
            devices[packed] = [Device(*costs.weights, 2048, math.inf) for _ in range(2)]
        found, _ = compare(lengths, devices[False][0], speeds, None, args.finer)
        if args.prime_rl:
            device = devices[True][0]
            middle = int(numpy.median(lengths))
            pair = packs(lengths, device, speeds, prime(args.prime_rl, 2048, lambda ns: sum(map(device.cost, ns))))
            found["prime-rl"] = [(*pair, s * (device.fixed + device.cap(middle) * device.cost(middle))) for s in SHARES]
        for packed, (device, _) in devices.items():
            shapes = sorted({s for cells in found.values() for pair in cells for e in pair[:2] if e.packed == packed for s in e.shapes()})
            print(f"# {len(shapes)} shapes{', packed' * packed}", flush=True)
            for _ in range(3):
                random.Random(2).shuffle(shapes)
                for s in shapes:
                    device.timed[s] = min(device.timed.get(s, 1e9), timed(s) if packed else timed(*s))
        for rule, cells in found.items():
            for d in devices[cells[0][0].packed]:
                print(f"# {rule}, {'measured' if d.timed else 'predicted'}:", *(f"{e.time(d, speeds):.3f} s in {len(e.steps)} steps, of which ranks work {e.work(d) / len(speeds):.3f}" for e in cells[0][:2]), file=sys.stderr)
            cell = [f"{cells[0][k].time(devices[cells[0][0].packed][0], speeds):.1f}" for k in (0, 1)]
            rows.setdefault(rule, []).append(" ".join(cell) + " | " + " ".join(f"{own.time(d, speeds, x) / peer.time(d, speeds, x):.3f}" for d in devices[cells[0][0].packed] for peer, own, x in cells))
    print("\nthe rule's epoch and evenkeel's, real seconds without exchange | evenkeel's over the rule's, with each exchange: real, then predicted")
    table([x for kind in kinds for x in (kind, "")], rows)


if __name__ == "__main__":
    main()
