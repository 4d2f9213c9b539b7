"""Steps and time to the same loss with one processor and with eight, each with a device of its own (emulated: time is counted in forward passes of
one device, and what a step adds to it is said by cost.py).

    /usr/bin/python3 experiments/forward/torch/scale.py base.safetensors

One processor tries both directions of a step of two, one after the other: two passes a step. Eight try one each. Constant rates in powers of two, the
best of each; the mean over three seeds of the passes of one device until the loss of 500 of the test's texts is below 0.62, seen every 16 passes.
"""

import sys

import torch

import compare
from evenkeel import forward
from evenkeel.forward import rounds

GOAL, MOST = 0.62, 800  # passes of one device


@torch.no_grad()
def passes(processors, rate, seed, path, train, test):
    """Passes of one device until the goal; None if they do not suffice."""
    model, parts = compare.adapters(path, seed)
    each = 2 if processors == 2 else 1
    c = forward.Config(processors=processors, steps=MOST // each, learning_rate=rate, key=seed, schedule="constant")
    r = forward.Replica(forward.prepare(c, compare.COUNT, parts), parts)
    ranks = range(processors)
    while not r.over():
        thetas = torch.stack([r.weights.move(r.trial(k), r.weights.entries.clone()).reshape(-1) for k in ranks]).float() / 2**24
        i = torch.stack([torch.cat(r.batch(k)) for k in ranks])
        x, y = train[0][i], train[1][i]
        two = torch.stack([model.losses(thetas, x[:, a], y[:, a]) for a in (slice(0, 8), slice(8, 16))], 1)
        at = r.step
        for k in ranks:
            r.put(k, rounds.frame(at, k, rounds.LOSSES, two[k].tolist()))
        if r.step % (16 // each) == 0:
            r.weights.write()
            if model.test(compare.flat(parts), *test)[1] < GOAL:
                return r.step * each
    return None


def main(path):
    torch.set_num_threads(1)
    train, test = compare.data()
    test = tuple(t[:500] for t in test)
    best = {}
    for processors, exponents in ((8, (-7, -6, -5)), (2, (-9, -8, -7))):
        for e in exponents:
            got = [passes(processors, 2.0**e, s, path, train, test) for s in (0, 1, 2)]
            print(f"{processors} directions, rate 2^{e}: passes until the loss is below {GOAL}: {got}", flush=True)
            best[processors] = min(best.get(processors, MOST), sum(g or MOST for g in got) / 3)  # at least so many, with None
    if best[8] < MOST:
        print(f"eight processors: at most {best[8] / best[2]:.3f} of the passes that one needs; target 1/6 = 0.167")


if __name__ == "__main__":
    main(sys.argv[1])
