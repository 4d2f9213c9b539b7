"""python3 -m unittest discover -s python/tests, from the repository's root. The samples of deadline rounds, rank by rank: random rounds, without processes."""

import os
import random
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch

import test_sample_order
from evenkeel.tuner import deadline, micro_steps, sample_order
from evenkeel.tuner.client import Plan


def plan(rng, ranks, number):
    """Some ranks may be left out; once in a while rounds wait for all."""
    shares = [rng.choice([0, 0, 1, 3, 8, 13]) for _ in range(ranks)]
    if not any(shares):
        shares[rng.randrange(ranks)] = 4
    micro = [max(1, s // rng.randint(1, 3)) if s else 0 for s in shares]
    if rng.random() < 0.2:
        return Plan(number, shares, micro)
    return Plan(number, shares, micro, 1.0, 0.02, rng.random() < 0.3, 0.0, [1.0] * ranks, [max(m, 1) * rng.uniform(0.05, 0.5) for m in micro], [1] * ranks)


class Source(test_sample_order.Loader):
    def __next__(self):
        return torch.tensor(super().__next__())


class Worker(Source):
    """A loader with a worker, that takes 0.1 s to hand out a batch."""

    _num_workers = 1

    def __init__(self, batches, now, there):
        super().__init__(batches, 0)
        self.now, self._data_queue = now, types.SimpleNamespace(empty=lambda: not there)

    def __next__(self):
        self.now[0] += 0.1
        return super().__next__()


class TestInput(unittest.TestCase):
    def test_a_batch_that_is_there_is_not_waited_for(self):
        for there in (False, True):
            b, now = sample_order.Batches(80, 0, Plan(1, [8], [8]), 0), [0.0]
            w = micro_steps.MicroSteps(b, 0, 1, (), lambda: now[0])
            b.begin()
            w.epoch(Worker(b, now, there))
            for _ in range(5):
                w.begin()
                _, size = w.take(w.size())
                w.did(size, 0.0)
                b.completed(w.total)
            self.assertAlmostEqual(w.input.beyond(8, w.waited, 0.0), 0 if there else 0.1)


class TestDeadlineRounds(unittest.TestCase):
    def round(self, rng, w, now):
        """What one rank does in a round; memory may run out."""
        w.begin()
        used, first, size, fails = [], True, w.size(), rng.random() < 0.05
        while first or size:
            first = False
            piece, size = w.take(size)
            if fails and size > 1:
                fails, used, first = False, [], True
                w.again(size)
                size = w.size()
                continue
            used += piece.tolist()[:size] if size else []
            took = size * rng.uniform(0.02, 0.4)
            now[0] += took
            w.did(size, took)
            size = w.size()
        return used

    def test_every_sample_once(self):
        left_out = 0
        for seed in range(300):
            rng, number = random.Random(seed), 1
            ranks, length = rng.randint(1, 4), rng.randint(1, 150)
            first = plan(rng, ranks, number)
            samplers = [sample_order.Batches(length, r, first, seed, deal=True, chunk=micro_steps.chunk(first, r, 0)) for r in range(ranks)]
            clocks = [[0.0] for _ in samplers]
            works = [micro_steps.MicroSteps(b, 0, 1, (), lambda now=now: now[0]) for b, now in zip(samplers, clocks)]
            with self.subTest(seed=seed):
                for epoch in range(2):
                    seen, rounds = [], 0
                    for b, w in zip(samplers, works):
                        b.begin()
                        w.epoch(Source(b, rng.choice([0, 4, 8])))
                    while samplers[0].left:
                        rounds += 1
                        self.assertLess(rounds, 2000)
                        ran = samplers[0].plan(samplers[0].round)
                        used = [self.round(rng, w, now) for w, now in zip(works, clocks)]
                        self.assertTrue(any(used))
                        for own, share in zip(used, ran.shares):
                            self.assertFalse(own and not share, "a rank without a share has samples")
                            left_out += not share
                        seen += [i for own in used for i in own]
                        number += 1
                        new = plan(rng, ranks, number) if rng.random() < 0.3 else None
                        for b, w in zip(samplers, works):
                            b.hold(0)
                            if new:
                                b.adopt(new, b.round)
                                b.chunk = micro_steps.chunk(new, b.rank, 0)
                            b.release()
                            b.used([len(own) for own in used])
                    self.assertEqual(sorted(seen), list(range(length)))
        self.assertGreater(left_out, 500)


class TestDivide(unittest.TestCase):
    def test_by_hand(self):
        for share, limit, least, shapes, want in (
            (17, 8, 1, (), [8, 8, 1]),
            (17, 8, 2, (), [8, 7, 2]),
            (17, 8, 8, (), [8, 5, 4]),  # no two of 9 hold 8 each
            (3, 8, 4, (), [3]),
            (16, 8, 4, (), [8, 8]),
            (9, 8, 1, (2, 4, 8), [8, 1]),
            (15, 8, 1, (2, 4, 8), [8, 4, 2, 1]),
            (0, 8, 1, (), []),
        ):
            self.assertEqual(micro_steps.divide(share, deadline.Node(limit, least, list(shapes))), want)

    def test_properties(self):
        rng = random.Random(1)
        for _ in range(3000):
            share, limit = rng.randint(0, 60), rng.randint(1, 20)
            least = rng.randint(1, limit)
            sizes = micro_steps.divide(share, deadline.Node(limit, least))
            self.assertEqual(sum(sizes), share)
            self.assertTrue(all(1 <= s <= limit for s in sizes))
            self.assertLessEqual(len(sizes), -(-share // limit), "as few as there can be")
            if share >= least and limit >= 2 * least - 1:
                self.assertTrue(all(s >= least for s in sizes), (share, limit, least, sizes))


if __name__ == "__main__":
    unittest.main()
