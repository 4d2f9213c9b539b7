"""Forward-only fine-tuning of the pretrained transformer's adapters, ours beside MeZO, FZOO and an evolution strategy, at equal forward passes.

    /usr/bin/python3 experiments/forward/torch/compare.py base.safetensors    # half an hour

A forward pass is one of 16 examples. Every method has two seeds to find its rate in powers of two, until the best has a worse one on both sides,
and is then run with five other seeds. All decay their rate by a cosine, and perturb by 1e-3.

- MeZO (Malladi and others, NeurIPS 2023): two passes along a normal direction, on one batch.
- FZOO (ICLR 2026): a clean pass and 15 along signs, on one batch, divided by the deviation of the 15 losses.
- ES (Qiu and others, evolution strategies at scale, 2025): a population of 30 normal perturbations on one batch, z-scored.
- ours: evenkeel.forward's own rounds and whole numbers, 16 processors (16 passes a step), two inputs of 8 examples for a pass. "pairs": eight
  directions, each with its own examples; "each": sixteen directions, on the same examples.
"""

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
    model = small.Transformer().eval()
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


OURS = {"ours, each": {}, "ours, pairs": {"estimator": "pairs"}}


def run(method, rate, seed, path, train, test, budget=BUDGET):
    """Accuracy, loss and processor seconds of a run."""
    begun = time.process_time()
    model, theta = ours(OURS[method], rate, seed, path, train, budget) if method in OURS else peer(method, rate, seed, path, train, budget)
    seconds = time.process_time() - begun
    with torch.no_grad():
        return (*(model.test(theta, *test) if theta is not None else (0.0, math.inf)), seconds)


def best(method, *where):
    """The rate of a grid in powers of two with the best mean accuracy over the tuning seeds."""
    got, top = {}, FIRST.get(method, 2**-6)
    while True:
        for rate in {top / 2, top, top * 2} - set(got):
            got[rate] = sum(run(method, rate, s, *where)[0] for s in TUNING)
        if max(got, key=got.get) == top:
            return top
        top = max(got, key=got.get)


def interval(values):
    """Mean and half the width of its 95% interval (Student, five values)."""
    m = sum(values) / len(values)
    d = math.sqrt(sum((v - m) ** 2 for v in values) / (len(values) - 1))
    return m, 2.776 * d / math.sqrt(len(values))


def main(path):
    torch.set_num_threads(1)
    where = path, *data()
    model, parts = adapters(path, 0)
    print(f"Before: accuracy {100 * model.test(flat(parts), *where[2])[0]:.1f}%.\n")
    print("| method | rate | forward passes | accuracy (95% interval) | less FZOO, paired | loss | processor seconds |\n|---|---|---|---|---|---|---|")
    fzoo = None
    for method in ("FZOO", "MeZO", "ES", *OURS):
        rate = best(method, *where)
        cells = [(rate, "", BUDGET)]
        if method in OURS:
            cells += [(rate, "", BUDGET // 2), (forward.Config(processors=16, **OURS[method]).complete(4096).learning_rate, " (default)", BUDGET)]
        for r, note, budget in cells:
            accuracies, losses, seconds = zip(*(run(method, r, s, *where, budget) for s in SEEDS))
            fzoo = fzoo or accuracies
            a, w = interval([100 * v for v in accuracies])
            less, d = interval([100 * (v - f) for v, f in zip(accuracies, fzoo)])
            print(f"| {method} | {r:.3g}{note} | {budget} | {a:.1f}% ({a - w:.1f} to {a + w:.1f}) | {less:+.1f} ({less - d:+.1f} to {less + d:+.1f}) | {interval(losses)[0]:.3f} | {interval(seconds)[0]:.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
