"""Sizes without a service: in simulated jobs, against the best sizes in hindsight and proportional control."""

import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

from evenkeel.tuner import local
from evenkeel.tuner.client import uniform


def best(batch, paces):
    """By trying, sample by sample: who would end first with one more gets it."""
    shares = [1] * len(paces)
    for _ in range(batch - len(paces)):
        r = min(range(len(paces)), key=lambda r: paces[r] * (shares[r] + 1))
        shares[r] += 1
    return max(p * s for p, s in zip(paces, shares))


def job(decide, paces_at, noise, rounds=200, batch=128, seed=1):
    """The seconds of a job's rounds, over the best ones. decide(times, shares) -> shares."""
    rng, took, ideal = random.Random(seed), 0.0, 0.0
    ranks = len(paces_at(0))
    shares = uniform(batch, [0] * ranks).shares
    for k in range(rounds):
        paces = paces_at(k)
        times = [p * s * rng.lognormvariate(-noise**2 / 2, noise) for p, s in zip(paces, shares)]
        took += max(times)
        ideal += best(batch, paces)
        shares = decide(times, shares)
    return took / ideal


def local_client(ranks, batch=128):
    c = local.LocalClient(batch, [0] * ranks)

    def decide(times, shares):
        c.offer({"ranks": [{"seconds": t, "samples": s, "out_of_memory": 0} for t, s in zip(times, shares)]}, c.newest)
        return c.newest.shares

    return decide


def proportional(times, shares):
    """Ten lines by hand."""
    speeds = [s / t for s, t in zip(shares, times)]
    new = [max(1, round(128 * v / sum(speeds))) for v in speeds]
    new[max(range(len(new)), key=lambda r: new[r])] += 128 - sum(new)
    return new


class TestLocal(unittest.TestCase):
    PACES = [1.0, 1.5, 2.0, 4.0]

    def swap(self, k):
        return self.PACES if k < 100 else [4.0, 1.5, 2.0, 1.0]

    def test_against_the_best_and_by_hand(self):
        for noise, most in ((0.0, 1.03), (0.1, 1.14), (0.3, 1.42)):
            own = sum(job(local_client(4), self.swap, noise, seed=s) for s in range(10)) / 10
            other = sum(job(proportional, self.swap, noise, seed=s) for s in range(10)) / 10
            self.assertLess(own, most, noise)
            self.assertLess(own, other * (1.01 if not noise else 0.99), noise)

    def test_fill_is_the_best(self):
        rng = random.Random(1)
        for _ in range(2000):
            paces = [rng.lognormvariate(0, 1.5) for _ in range(rng.randint(1, 9))]
            batch = rng.randint(len(paces), 300)
            shares = local.fill(batch, paces, 1, [0] * len(paces))
            self.assertEqual(sum(shares), batch)
            self.assertGreaterEqual(min(shares), 1)
            self.assertAlmostEqual(max(p * s for p, s in zip(paces, shares)), best(batch, paces))
        self.assertEqual(sum(local.fill(2, [1.0, 1.0, 1.0], 1, [0, 0, 0])), 2)

    def test_fill_within_limits(self):
        """Against moving one sample at a time as long as that is sooner."""
        rng = random.Random(2)
        for _ in range(1000):
            ranks, least = rng.randint(2, 6), rng.randint(1, 3)
            paces = [rng.choice((rng.lognormvariate(0, 1.5), 1.0, 2.0)) for _ in range(ranks)]  # several may end at once
            most = [rng.choice((0, rng.randint(least, 40))) for _ in range(ranks)]
            batch = rng.randint(least * ranks, min(200, max(least * ranks, sum(m or 200 for m in most))))
            shares = local.fill(batch, paces, least, most)
            self.assertEqual(sum(shares), batch)
            slowest = max(p * s for p, s in zip(paces, shares))
            late = [r for r in range(ranks) if paces[r] * shares[r] >= slowest * (1 - 1e-12) and shares[r] > least]
            for r in range(ranks):
                self.assertTrue(shares[r] >= least and (not most[r] or shares[r] <= most[r]))
                if late and r not in late and (not most[r] or shares[r] < most[r]):
                    self.assertGreaterEqual(paces[r] * (shares[r] + 1), slowest * (1 - 1e-12))

    def test_memory(self):
        c = local.LocalClient(16, [0, 6])
        self.assertEqual((c.newest.shares, c.newest.micro_batches), ([8, 8], [8, 6]))
        own = {"seconds": 1.0, "samples": 8, "out_of_memory": 0}
        c.offer({"ranks": [own, own]}, c.newest)
        c.offer({"ranks": [own, own]}, c.newest)
        self.assertEqual(c.newest.number, 1)
        c.offer({"ranks": [own, {**own, "out_of_memory": 6}]}, c.newest)
        self.assertEqual((c.newest.number, c.newest.micro_batches), (2, [8, 3]))


if __name__ == "__main__":
    unittest.main()
