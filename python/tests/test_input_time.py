"""How long a rank's rounds take because of its data: against a simulated loader, whose pace is known."""

import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

from evenkeel.tuner.input_time import InputTime


class Loader:
    """Reads as a DataLoader does, two batches ahead for each worker; load are its seconds a sample."""

    def __init__(self, workers, load):
        self.workers, self.load, self.free, self.ready, self.drawn = workers, load, [0.0] * workers, [], 0

    def next(self, now, sizes):
        """When the next batch, of sizes[k] samples for the kth, is there."""
        if not self.workers:
            self.drawn += 1
            return now + self.load * sizes(self.drawn - 1)
        while len(self.ready) < 2 * self.workers:
            w = self.drawn % self.workers
            self.free[w] = max(self.free[w], now) + self.load * sizes(self.drawn)
            self.ready.append(self.free[w])
            self.drawn += 1
        return max(now, self.ready.pop(0))


def rounds(input_, loader, compute, others, shares):
    """The seconds that are told for each round, which lasts at least others seconds."""
    now, told = 0.0, []
    for k, n in enumerate(shares):
        began = now
        now = loader.next(now, lambda k: shares[min(k, len(shares) - 1)])
        input_.handed(now, now - began, n)
        told.append(input_.beyond(n, now - began, compute * n))
        now = max(now + compute * n, began + others)
    return told


class TestInputTime(unittest.TestCase):
    def test_in_the_loop(self):
        for t, n in zip(rounds(InputTime(0), Loader(0, 0.006), 0.001, 0.1, [10, 20, 5]), (10, 20, 5)):
            self.assertAlmostEqual(t, 0.006 * n)

    def test_workers_that_keep_up(self):
        for workers in (1, 2, 4):
            told = rounds(InputTime(workers), Loader(workers, 0.001 * workers), 0.002, 0.0, [10] * 40)
            self.assertEqual(told[-1], 0)

    def test_workers_that_do_not(self):
        """Their pace stays known when the share is so small that the loop no longer waits."""
        for workers in (1, 2, 4):
            told = rounds(InputTime(workers), Loader(workers, 0.003 * workers), 0.001, 0.0, [30] * 40)
            self.assertAlmostEqual(told[-1], 0.002 * 30, delta=0.006)
            told = rounds(InputTime(workers), Loader(workers, 0.003 * workers), 0.001, 0.05, [30] * 40 + [12] * 40)
            self.assertTrue(0.001 * 12 < told[-1] <= 0.05 - 0.001 * 12, told[-1])  # between what is true, about, and what is seen

    def test_workers_that_recover(self):
        i = InputTime(1)
        slow, fast = Loader(1, 0.003), Loader(1, 0.0001)
        rounds(i, slow, 0.001, 0.05, [30] * 10)
        i._last = None
        self.assertLessEqual(rounds(i, fast, 0.001, 0.04, [30] * 40)[-1], 0.04 - 0.001 * 30 + 1e-3)

    def test_shares_by_it_settle_at_the_best(self):
        """Two ranks that compute alike; the loader of one is slower. Shares in proportion to the paces that are told come to rest near the best."""
        for workers in (0, 1, 2, 4):
            rng = random.Random(workers)
            loader, input_, share, now, history, sizes = Loader(workers, 0.003 * max(workers, 1)), InputTime(workers), 50, 0.0, [], []
            for k in range(150):
                sizes.append(share)
                arrived = loader.next(now, lambda k: sizes[min(k, len(sizes) - 1)])
                waited, computed = arrived - now, 0.001 * share * rng.uniform(0.95, 1.05)
                input_.handed(arrived, waited, share)
                other = 0.001 * (100 - share) * rng.uniform(0.95, 1.05)
                paces = other / (100 - share), (computed + input_.beyond(share, waited, computed)) / share
                end = max(arrived + computed, now + other)
                history.append(end - now)
                now = end
                share = min(max(round(0.7 * share + 0.3 * 100 * paces[0] / sum(paces)), 1), 99)
            best = min(max(0.001 * (100 - n), 0.003 * n + (0 if workers else 0.001 * n)) for n in range(1, 100))
            self.assertLess(sum(history[-50:]) / 50, 1.1 * best, (workers, share))


if __name__ == "__main__":
    unittest.main()
