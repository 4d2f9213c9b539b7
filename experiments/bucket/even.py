#!/usr/bin/env python3
"""How long batches of random samples last on unequal ranks, divided by evenkeel.bucket.partition and by other systems: their own code, not rewritten.

    python experiments/bucket/even.py --prime-rl src/prime_rl/trainer/batch.py --slime slime/utils --verl verl

The file and folders are those of the projects' repositories; "changed" is their code with the lines of docs/guides/bucket.md. transformers is the one installed. A batch
has so many samples for each rank. Packed, a micro-batch holds 16,384 tokens; padded, ranks make four micro-batches. A sample of n tokens costs n + n*n/8192. The time of a batch is the sum over micro-batches of the
slowest rank; it is divided by the larger of the work over the sum of speeds and the longest sample on the fastest rank. Means of 20 batches of
each set of lengths, the same for all rules, with the half width of a 95% interval.

--long: lengths are four times as long, up to 131,072; a rank's memory holds 32,768 tokens, and samples are cut over several ranks, each of which pays
n/8 (1 - 1/g) for a sample cut over g. Beside it stands the scheduler of Megatron-Core's hybrid context parallelism, which runs sample after sample, at the fastest of
its lengths a rank; the time is that of its groups, after each of which all ranks wait."""

import argparse
import ast
import copy
import heapq
import math
import os
import random
import re
import statistics
import sys
import time
import types
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../python"), os.path.join(HERE, "../../python/tests")]
import numpy
import pages
from evenkeel.bucket.partition import partition

TOKENS, MICRO, BATCHES = 16384, 4, 20
SETS = {
    "lognormal .8": lambda r: r.lognormvariate(math.log(400), .8),
    "lognormal 1.2": lambda r: r.lognormvariate(math.log(800), 1.2),
    "lognormal 1.7": lambda r: r.lognormvariate(math.log(380), 1.7),
    "pareto 1.05": lambda r: 150 * r.paretovariate(1.05),
    "two peaks": lambda r: r.gauss(300, 60) if r.random() < .9 else r.gauss(6000, 800),
    "uniform": lambda r: r.uniform(100, 4000),
}
SPEEDS = {"8 equal": [1.0] * 8, "1, 1, 1, 0.5": [1.0, 1.0, 1.0, .5], "4 of 1, 4 of 0.4": [1.0] * 4 + [.4] * 4}


def cost(n):
    return n + n * n / 8192


def load(path, *names, speeds=None, **space):
    """Functions and classes of a file whose imports are not installed. speeds: with the lines that the guide changes."""
    space |= {"heapq": heapq, "dataclass": dataclass, "field": field, "__name__": __name__, "bucket": types.SimpleNamespace(partition=partition), "speeds": speeds}
    with open(path) as f:
        text = f.read()
    if speeds is not None:
        with open(os.path.join(pages.GUIDES, "bucket.md")) as f:
            text, _ = pages.patched(text, next(d for d in re.findall(r"```diff\n(.*?)```", f.read(), re.S) if d[1:].split("\n")[0] in text))
    tree = ast.parse(text)
    tree.body = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in names]
    tree.body.insert(0, ast.parse("from __future__ import annotations").body[0])
    exec(compile(tree, path, "exec"), space)
    return space


class Sample:
    """What prime-rl packs, and what it makes of several."""

    mm_kwargs = routed_experts = None

    def __init__(self, own, lengths):
        self.own, self.sequence_lengths, self.seq_lens, self.input_ids = own, lengths, lengths, range(sum(lengths))


def prime(path, tokens=TOKENS, price=lambda ns: sum(8192 * n + n * n for n in ns), speeds=None):
    names = ("_WeightedSet", "_KKState", "_karmarkar_karp", "_partition_loads", "_refine_by_swapping", "balanced_partition", "_MicroBatchBin", "_is_multimodal_sample", "_expand_bins_by_splitting",
             "packed_samples_into_micro_bs", "_make_dummy_batch", "_pad_group_for_distribution", "_distribute_group", "prepare_batch")
    peer = load(path, *names, speeds=speeds, copy=copy, prepare_sample=lambda s, _: s, pad_micro_batch=lambda m, _: m, _assert_token_arrays_aligned=lambda m: None,
                _materialize_bin=lambda content: Sample(sum((s.own for s in content.samples), []), [len(s.input_ids) for s in content.samples]))

    def divide(lengths, ranks):
        parts = peer["prepare_batch"]([Sample([i], [n]) for i, n in enumerate(lengths)], tokens, ranks, price)
        return [[[] if hasattr(m, "loss_mask") else m.own for m in own] for own in parts]  # those have no loss, and are not counted

    return divide


def slime(folder, speeds=None):
    names = "karmarkar_karp", "get_seqlen_balanced_partitions", "first_fit_pack", "_split_bin_by_tokens", "expand_bins_by_splitting"
    peer = load(os.path.join(folder, "seqlen_balancing.py"), *names)
    peer = load(os.path.join(folder, "dp_schedule.py"), "_calculate_workloads", "_pack_step_into_mbs", "build_dp_schedule", speeds=speeds,
                calculate_fwd_flops=lambda ns, _: sum(8192 * n + n * n for n in ns), **{k: peer[k] for k in names})
    args = types.SimpleNamespace(use_dynamic_batch_size=True, max_tokens_per_gpu=TOKENS, balance_by_flops=False, balance_data=speeds is None)

    def divide(lengths, ranks):
        own, parts, *_ = peer["build_dp_schedule"](args, {"dp_size": ranks, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}, lengths,
                                                   global_batch_size=len(lengths), rollout_indices=range(len(lengths)))
        return [[[rank[k] for k in m] for m in p] for rank, p in zip(own, parts)]

    return divide


class Batch:
    """What verl gives to its ranks."""

    def __init__(self, lengths):
        import torch
        self.batch = {"attention_mask": torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]}

    def reorder(self, order):
        self.order = order.tolist()


def verl(folder, speeds=None):
    import torch
    names = "karmarkar_karp", "get_seqlen_balanced_partitions", "log_seqlen_unbalance"
    peer = load(os.path.join(folder, "utils/seqlen_balancing.py"), *names)
    trainer = load(os.path.join(folder, "trainer/ppo/ray_trainer.py"), "_balance_batch", speeds=speeds, torch=torch, calculate_workload=lambda n: 8192 * n + n * n, **{k: peer[k] for k in names})

    def divide(lengths, ranks):
        batch = Batch(lengths)
        trainer["_balance_batch"](types.SimpleNamespace(_get_dp_size=lambda *_: ranks, actor_rollout_wg=None), batch, {})
        work, own = [8192 * n + n * n for n in lengths], numpy.reshape(batch.order, (ranks, -1)).tolist()
        steps = max(math.ceil(sum(lengths[i] for i in p) / TOKENS) for p in own)
        while True:  # its micro-batches may exceed the limit, and are then made anew with one more
            out = [[[p[k] for k in m] for m in peer["get_seqlen_balanced_partitions"]([work[i] for i in p], steps, False)] for p in own]
            if all(sum(lengths[i] for i in m) <= TOKENS for p in out for m in p):
                return out
            steps += 1

    return divide


def transformers(lengths, ranks):
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    class Same(BatchRebalanceSampler):
        QUADRATIC_COST_COEF = 1 / 8192

    return Same(lengths, len(lengths), ranks, MICRO)._assign(range(len(lengths)), lengths)


def seconds(parts, lengths, speeds, padded, free):
    """Aligned as it is best for each rule: every rank's longest micro-batches together. free: ranks wait at the end alone."""
    rows = []
    for p, v in zip(parts, speeds):
        each = [(len(m) * cost(max(lengths[i] for i in m)) if padded else sum(cost(lengths[i]) for i in m)) / v if m else 0.0 for m in p]
        rows.append(sorted(each, reverse=True))
    steps = max(map(len, rows))
    if free:
        return max(map(sum, rows)), steps
    return sum(max(r[k] if k < len(r) else 0.0 for r in rows) for k in range(steps)), steps


def megatron(lengths, speeds):
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler
    best = math.inf
    for most in (32768, 16384, 8192, 4096, 2048):
        try:
            groups = BalancedCPScheduler(most, types.SimpleNamespace(size=lambda: len(speeds))).get_groups_and_subsamples(list(enumerate(lengths)), None)[1]
        except (AssertionError, IndexError, UnboundLocalError) as e:
            print("# Megatron-Core", most, type(e).__name__, e, file=sys.stderr)
            continue
        if {i for g in groups for rank in g for i in rank} != set(range(len(lengths))):
            print("# Megatron-Core", most, "lost a sample", file=sys.stderr)
            continue
        best = min(best, sum(shared(lengths, speeds, [[[i] for i in rank] for rank in g]) for g in groups))
    return best


def shared(lengths, speeds, parts):
    """The time until all ranks have done their micro-batches in order; ranks begin together what they share."""
    of, clock, at = {}, [0.0] * len(speeds), [0] * len(speeds)
    for r, p in enumerate(parts):
        for i in (i for m in p for i in m):
            of.setdefault(i, []).append(r)
    while any(a < len(p) for a, p in zip(at, parts)):
        ready = [r for r, p in enumerate(parts) if at[r] < len(p) and all(at[q] < len(parts[q]) and parts[q][at[q]] == p[at[r]] for q in of[p[at[r]][0]])]
        ranks = of[parts[ready[0]][at[ready[0]]][0]]
        m, g = parts[ready[0]][at[ready[0]]], len(ranks)
        end = max(clock[q] for q in ranks) + sum(cost(lengths[i]) / g + lengths[i] / 8 * (1 - 1 / g) for i in m) / min(speeds[q] for q in ranks)
        for q in ranks:
            clock[q], at[q] = end, at[q] + 1
    return max(clock)


def long(args):
    print("speeds | lengths | Megatron-Core | evenkeel, free counts | equal counts | ms")
    for name, speeds in ((s, SPEEDS[s]) for s in args.speeds):
        for kind, draw in SETS.items():
            r, rows, took = random.Random(1), ([], [], []), 0.0
            for _ in range(args.batches):
                lengths = [max(16, min(131072, int(4 * draw(r)))) for _ in range(args.each * len(speeds))]
                costs = [cost(n) for n in lengths]
                bound = sum(costs) / sum(speeds)
                rows[0].append(megatron(lengths, speeds) / bound)
                for k, counts in enumerate(("free", "equal"), 1):
                    begun = time.process_time()
                    parts = partition(costs, speeds, counts, sizes=lengths, memory=32768, exchange=[n / 8 for n in lengths])
                    took += time.process_time() - begun
                    slots = [[[m] for m in slot] for slot in zip(*parts)] if counts == "equal" else [parts]
                    if {i for p in parts for m in p for i in m} != set(range(len(lengths))):
                        raise SystemExit("evenkeel lost a sample")
                    rows[k].append(sum(shared(lengths, speeds, [[m for m in p if m] for p in slot]) for slot in slots) / bound)
            print(f"{name} | {kind} |", " | ".join(f"{statistics.mean(x):.4f} ±{1.96 * statistics.stdev(x) / len(x) ** .5:.4f}" for x in rows), f"| {500 * took / args.batches:.0f}", flush=True)


def least(costs, bins):
    """The least work of so many padded micro-batches of all samples: neighbours in the order of their costs, by dynamic programming."""
    c = numpy.sort(costs)[::-1]
    best, n = numpy.concatenate([[0.0], numpy.full(len(c), math.inf)]), numpy.arange(len(c) + 1)
    work = numpy.where(n[None] > n[:-1, None], (n[None] - n[:-1, None]) * c[:, None], math.inf)  # from, to
    for _ in range(bins):
        best = numpy.minimum(best, (best[:-1, None] + work).min(0))
    return best[-1]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--prime-rl")
    args.add_argument("--slime")
    args.add_argument("--verl")
    args.add_argument("--batches", type=int, default=BATCHES)
    args.add_argument("--speeds", choices=SPEEDS, nargs="+", default=list(SPEEDS))
    args.add_argument("--long", action="store_true", help="samples are cut over several ranks")
    args.add_argument("--free", action="store_true", help="ranks wait for one another at the end of a batch, not after each micro-batch; packed alone")
    args.add_argument("--kind", choices=("packed", "padded"), nargs="+", default=("packed", "padded"), help="of micro-batches")
    args.add_argument("--each", type=int, default=32, help="samples of a rank in a batch")
    args = args.parse_args()
    if args.long:
        return long(args)
    peers = [(name, rule, path) for name, rule, path in (("prime-rl", prime, args.prime_rl), ("slime", slime, args.slime), ("verl", verl, args.verl)) if path]
    for padded in (k == "padded" for k in args.kind if k == "packed" or not args.free):
        for name, speeds in ((s, SPEEDS[s]) for s in args.speeds):
            rules = {"transformers": transformers} if padded else {peer + more: rule(path, speeds=v) for peer, rule, path in peers for more, v in (("", None), (", changed", speeds))}
            print("padded" if padded else "packed", "| speeds | lengths |", " | ".join([*rules, "evenkeel"] + ["least with padding"] * padded), "| micro-batches | ms")
            for kind, draw in SETS.items():
                r, rows, took, steps = random.Random(1), {k: [] for k in [*rules, "evenkeel"]}, 0.0, []
                pads = []
                for _ in range(args.batches):
                    lengths = [max(16, min(8192, int(draw(r)))) for _ in range(args.each * len(speeds))]
                    costs = [cost(n) for n in lengths]
                    bound = max(sum(costs) / sum(speeds), max(costs) / max(speeds))
                    for rule, divide in rules.items():
                        parts = divide(lengths, len(speeds))
                        if sorted(i for p in parts for m in p for i in m) != list(range(len(lengths))) or "verl" in rule and {sum(map(len, p)) for p in parts} != {args.each}:
                            raise SystemExit(f"{rule} lost a sample")
                        rows[rule].append(seconds(parts, lengths, speeds, padded, args.free)[0] / bound)
                    begun = time.process_time()
                    more = {"micro_batches": MICRO, "padded": True} if padded else {"sizes": lengths, "memory": TOKENS}
                    parts = partition(costs, speeds, "free" if args.free else "equal", **more)
                    took += time.process_time() - begun
                    if sorted(i for p in parts for m in p for i in m) != list(range(len(lengths))) or not args.free and len({len(p) for p in parts}) > 1:
                        raise SystemExit("evenkeel lost a sample, or counts differ")
                    s, k = seconds(parts, lengths, speeds, padded, args.free)
                    rows["evenkeel"].append(s / bound)
                    if padded:
                        pads.append(max(least(costs, k * len(speeds)) / sum(speeds), max(costs) / max(speeds)) / bound)
                    steps.append(k)
                cells = [f"{statistics.mean(x):.4f} ±{1.96 * statistics.stdev(x) / len(x) ** .5:.4f}" for x in rows.values()]
                cells += [f"{statistics.mean(pads):.4f}"] if padded else []
                print(f"{name} | {kind} |", " | ".join(cells), f"| {statistics.mean(steps):.1f} | {1000 * took / args.batches:.0f}", flush=True)


if __name__ == "__main__":
    main()
