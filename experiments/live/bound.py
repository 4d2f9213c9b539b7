"""How much rounds with a deadline can gain over waiting for all on the devices of run.py deadline: a bound computed apart, from the devices' formulas alone.

    python3 experiments/live/bound.py [NOISE]

No rule can idle less than not at all, so no rule makes more samples a second than the ranks' rates add up to, but for the time of the all-reduce. Rounds that wait for all end with the slowest
of four ranks. Both are summed over the same draws of the noise; nothing is taken from job.py, run.py or the package.
"""

import math
import random
import sys

ALPHA, BETA, PACES, NETWORK, BATCH, DRAWS = 0.004, 0.0012, (1, 1.5, 2, 4), 0.005, 256, 200_000
SHARES = (124, 73, 48, 11)  # as run.py deadline gives them: 8 micro-steps each


def seconds(share, micro, pace):
    """Of a share in micro-steps of that many samples, the last one smaller, without noise."""
    full, rest = divmod(share, micro)
    return pace * (full * (ALPHA + BETA * micro) + (ALPHA + BETA * rest if rest else 0))


def main(noise):
    rng = random.Random(1)
    micro = [math.ceil(s / 8) for s in SHARES]
    own = [seconds(s, m, p) for s, m, p in zip(SHARES, micro, PACES)]
    rates = [m / (p * (ALPHA + BETA * m)) for m, p in zip(micro, PACES)]  # of full micro-steps: no micro-step is quicker
    waiting = rate = inverse = 0.0
    for _ in range(DRAWS):
        slow = [rng.lognormvariate(-(noise**2) / 2, noise) for _ in PACES]
        waiting += max(t * f for t, f in zip(own, slow)) / DRAWS
        now = sum(r / f for r, f in zip(rates, slow))
        rate += now / DRAWS
        inverse += 1 / now / DRAWS
    waits = BATCH / (waiting + NETWORK)
    mean, each = BATCH / (BATCH / rate + NETWORK), BATCH / (BATCH * inverse + NETWORK)
    print(f"noise {noise:.0%}: waiting for all {waits:.0f} samples/s, idle {1 - sum(own) / 4 / (waiting + NETWORK):.3f}")
    print(f"no idle time, rounds of equal duration, {BATCH} samples in the mean: {mean:.0f}, {mean / waits:.3f} times")
    print(f"no idle time, {BATCH} samples in every round: {each:.0f}, {each / waits:.3f} times")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.1)
