"""Forward-only fine-tuning of the pretrained transformer's adapters, ours beside MeZO, FZOO and an evolution strategy, at equal forward passes.

    /usr/bin/python3 experiments/forward/torch/compare.py base.safetensors runs.jsonl --minutes 7    # again until it says that all is there
    /usr/bin/python3 experiments/forward/torch/compare.py base.safetensors runs.jsonl --table

A forward pass is one of 16 examples. Every method has two seeds to find its rate in powers of two, until the best has a worse one on both sides,
and is then run with five other seeds. All decay their rate by a cosine, and perturb by 1e-3.

- MeZO (Malladi and others, NeurIPS 2023): two passes along a normal direction, on one batch.
- FZOO (ICLR 2026): a clean pass and 15 along signs, on one batch, divided by the deviation of the 15 losses.
- ES (Qiu and others, evolution strategies at scale, 2025): a population of 30 normal perturbations on one batch, z-scored.
- ours: evenkeel.forward's own rounds and whole numbers, 16 processors (16 passes a step), two inputs of 8 examples for a pass. "pairs": eight
  directions, each with its own examples, or all with the same; "each": sixteen directions, on the same examples.
"""

import argparse
import json
import math
import os
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "python"))

import small  # noqa: E402
from batched import Batched  # noqa: E402
from evenkeel import forward  # noqa: E402
from evenkeel.forward import rounds  # noqa: E402
from evenkeel.checkpoint.interchange import from_safetensors  # noqa: E402

BUDGET, BATCH, EPSILON, COUNT = 4000, 16, 1e-3, 20000
TUNING, SEEDS = (100, 101), (0, 1, 2, 3, 4)
FIRST = {"MeZO": 2**-11, "FZOO": 2**-6, "ES": 2**-5}  # where the search begins; ours at 2^-6


def data():
    train, test = ([small.shifted(h) for h in hs] for hs in zip(*map(small.halves, small.texts())))
    return small.pieces(train, COUNT, 1), small.pieces(test, 4000, 2)


def adapters(path, seed):
    model = small.Transformer()
    from_safetensors(path, model)
    return Batched(model.state_dict()), forward.lora(model, ("query", "value"), seed=seed)


def flat(parts):
    return torch.cat([p.parameter.detach().reshape(-1) for p in parts])


@torch.no_grad()
def peer(method, rate, seed, path, train, budget):
    model, parts = adapters(path, seed)
    theta, g, used = flat(parts), torch.Generator().manual_seed(seed), 0
    n = len(theta)
    while used < budget:
        f = rate * 0.5 * (1 + math.cos(math.pi * used / budget))
        i = torch.randint(COUNT, (BATCH,), generator=g)
        x, y = train[0][i], train[1][i]

        def losses(thetas):
            return model.losses(thetas, x.expand(len(thetas), -1, -1), y.expand(len(thetas), -1))

        if method == "MeZO":
            z = torch.randn(n, generator=g)
            l = losses(torch.stack((theta + EPSILON * z, theta - EPSILON * z)))
            theta, used = theta - f * (l[0] - l[1]) / (2 * EPSILON) * z, used + 2
        elif method == "FZOO":
            z = torch.randint(2, (15, n), generator=g) * 2.0 - 1
            l = losses(torch.cat((theta[None], theta + EPSILON * z)))
            theta, used = theta - f * ((l[1:] - l[0]) / l[1:].std()) @ z / 15, used + 16
        else:
            z = torch.randn(30, n, generator=g)
            l = losses(theta + EPSILON * z)
            theta, used = theta - f * ((l - l.mean()) / (l.std() + 1e-8)) @ z / 30, used + 30
        if not torch.isfinite(theta).all():
            return model, None
    return model, theta


@torch.no_grad()
def ours(settings, rate, seed, path, train, budget):
    model, parts = adapters(path, seed)
    c = forward.Config(processors=16, steps=budget // 16, epsilon=EPSILON, learning_rate=rate, key=seed, **settings)
    r = forward.Replica(forward.prepare(c, COUNT, parts), parts)
    try:
        while not r.over():
            thetas = torch.stack([r.weights.move(r.trial(k), r.weights.entries.clone()).reshape(-1) for k in range(16)]).float() / 2**24
            i = torch.stack([torch.cat(r.batch(k)) for k in range(16)])
            x, y = train[0][i], train[1][i]
            two = torch.stack([model.losses(thetas, x[:, a], y[:, a]) for a in (slice(0, 8), slice(8, 16))], 1)
            at = r.step
            for k in range(16):
                r.put(k, rounds.frame(at, k, rounds.LOSSES, two[k].tolist()))
    except OverflowError:
        return model, None
    r.weights.write()
    return model, flat(parts)


OURS = {"ours, each": {}, "ours, pairs": {"estimator": "pairs"}, "ours, pairs, shared": {"estimator": "pairs", "shared": True}}


def run(method, rate, seed, path, train, test, budget):
    begun = time.process_time()
    if method in OURS:
        model, theta = ours(OURS[method], rate, seed, path, train, budget)
    else:
        model, theta = peer(method, rate, seed, path, train, budget)
    seconds = time.process_time() - begun
    with torch.no_grad():
        accuracy, loss = model.test(theta, *test) if theta is not None else (0.0, math.inf)
    return {"method": method, "rate": rate, "seed": seed, "budget": budget, "accuracy": round(accuracy, 5), "loss": round(loss, 5), "seconds": round(seconds, 1)}


def best(rows, method):
    """The rate with the best mean accuracy over the tuning seeds, and what is to be run before that is known."""
    got = {}
    for r in rows:
        if r["method"] == method and r["seed"] in TUNING and r["budget"] == BUDGET:
            got.setdefault(r["rate"], {})[r["seed"]] = r
    first = FIRST.get(method, 2**-6)
    want = {first / 2, first, first * 2}
    while True:
        todo = [(rate, s) for rate in sorted(want) for s in TUNING if s not in got.get(rate, {})]
        if todo:
            return None, todo
        top = max(want, key=lambda rate: sum(r["accuracy"] for r in got[rate].values()))
        wider = want | {top / 2, top * 2}
        if wider == want:
            return top, []
        want = wider


def todo(rows, methods):
    """The runs that are missing."""
    have = {(r["method"], r["rate"], r["seed"], r["budget"]) for r in rows}
    for m in methods:
        rate, search = best(rows, m)
        yield from ((m, rate_, s, BUDGET) for rate_, s in search)
        if rate is None:
            continue
        jobs = [(m, rate, s, b) for b in ((BUDGET, BUDGET // 2) if m in OURS else (BUDGET,)) for s in SEEDS]
        if m in ("ours, each", "ours, pairs"):  # and at the rate that a run has by default
            jobs += [(m, forward.Config(processors=16, **OURS[m]).complete(4096).learning_rate, s, BUDGET) for s in SEEDS]
        yield from (job for job in jobs if job not in have)


def interval(values):
    """Mean and half the width of its 95% interval (Student, five values)."""
    m = sum(values) / len(values)
    d = math.sqrt(sum((v - m) ** 2 for v in values) / (len(values) - 1))
    return m, 2.776 * d / math.sqrt(len(values))


def table(rows, methods, path, test):
    model, parts = adapters(path, 0)
    print(f"Before: accuracy {100 * model.test(flat(parts), *test)[0]:.1f}%.\n")
    print("| method | rate | forward passes | accuracy (95% interval) | less FZOO, paired | loss | processor seconds |\n|---|---|---|---|---|---|---|")
    cells = {}
    for r in rows:
        if r["seed"] in SEEDS:
            cells.setdefault((r["method"], r["rate"], r["budget"]), {})[r["seed"]] = r
    cells = {k: v for k, v in cells.items() if len(v) == len(SEEDS)}
    fzoo = next((v for (m, _, _), v in cells.items() if m == "FZOO"), None)
    for m in methods:
        rate = best(rows, m)[0]
        for (_, r, budget), runs in sorted(((k, v) for k, v in cells.items() if k[0] == m), key=lambda c: (-c[0][2], c[0][1] != rate)):
            (a, w) = interval([100 * v["accuracy"] for v in runs.values()])
            less = "" if fzoo is None else "{:+.1f} ({:+.1f} to {:+.1f})".format(*(lambda d, w: (d, d - w, d + w))(*interval([100 * (runs[s]["accuracy"] - fzoo[s]["accuracy"]) for s in SEEDS])))
            note = " (search unfinished)" if rate is None else "" if r == rate else " (default)"
            print(f"| {m} | {r:.3g}{note} | {budget} | {a:.1f}% ({a - w:.1f} to {a + w:.1f}) | {less} | {interval([v['loss'] for v in runs.values()])[0]:.3f} | {interval([v['seconds'] for v in runs.values()])[0]:.0f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("base")
    p.add_argument("runs")
    p.add_argument("--minutes", type=float, default=1e9)
    p.add_argument("--table", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    train, test = data()
    methods = ["ours, each", "MeZO", "FZOO", "ES", "ours, pairs", "ours, pairs, shared"]
    rows = []
    if os.path.exists(a.runs):
        with open(a.runs, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
    if a.table:
        return table(rows, methods, a.base, test)
    until = time.monotonic() + 60 * a.minutes
    while time.monotonic() < until:
        job = next(todo(rows, methods), None)
        if job is None:
            print("all is there")
            return
        rows.append(run(*job[:3], a.base, train, test, job[3]))
        print(rows[-1], flush=True)
        with open(a.runs, "a", encoding="utf-8") as f:
            f.write(json.dumps(rows[-1]) + "\n")


if __name__ == "__main__":
    main()
