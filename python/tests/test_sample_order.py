"""python3 -m unittest discover -s python/tests, from the repository's root. Which samples the ranks take: properties, without processes."""

import collections
import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import numpy
import torch

from evenkeel.tuner import sample_order
from evenkeel.tuner.client import Plan, uniform


def plan(rng, ranks, number, batch=None):
    shares = [rng.choice([0, 1, 2, 3, 5, 8, 13]) for _ in range(ranks)]
    if not any(shares):
        shares[rng.randrange(ranks)] = 4
    return Plan(number, shares, [max(1, s // 2) for s in shares])


class Loader:
    """A DataLoader as far as the order sees it: it draws so many batches before the first is handed out, and one with each."""

    def __init__(self, batches, ahead):
        self.source, self.ahead, self.drawn = iter(batches), ahead, collections.deque()

    def __next__(self):
        while len(self.drawn) <= self.ahead:
            some = next(self.source, None)
            if some is None:
                break
            self.drawn.append(some)
        return self.drawn.popleft()


class TestWaiting(unittest.TestCase):
    def epoch(self, rng, ranks, samplers, late=0, rounds=10**9):
        """One epoch, or some rounds of it: every rank with a loader of its own depth, new sizes at random. The samples, by round."""
        loaders, out, number = [Loader(b, rng.choice([0, 4, 8])) for b in samplers], [], 100
        told = None
        while samplers[0].left and len(out) < rounds:
            batch = [next(loader) for loader in loaders]
            drawn = [b.arrived() for b in samplers]
            self.assertEqual(len({(d.total, d.plan.number, d.round) for d in drawn}), 1, "ranks disagree")
            self.assertEqual(sum(d.samples for d in drawn), drawn[0].total)
            for d, some, r in zip(drawn, batch, range(ranks)):
                self.assertLessEqual(d.samples, d.plan.shares[r])
                self.assertTrue(len(some) == d.samples if d.samples else 1 <= len(some) <= 2, (some, d))
            out.append([i for d, some in zip(drawn, batch) for i in some[: d.samples]])
            promised, before = max([b.hold(late) for b in samplers]), told
            number += 1
            told = (plan(rng, ranks, number), promised) if rng.random() < 0.5 else None
            now = before if late else told
            for b in samplers:
                if not late:
                    b.release()
                if now:
                    b.adopt(*now)
                b.completed(drawn[0].total)
        if late and told:
            for b in samplers:
                b.adopt(*told)
        for b in samplers:
            b.release()
        return out

    def test_every_sample_once(self):
        for seed in range(1000):  # size histories
            rng = random.Random(seed)
            ranks, length, late = rng.randint(1, 5), rng.randint(1, 200), seed % 2
            first = plan(rng, ranks, 1)
            samplers = [sample_order.Batches(length, r, first, seed) for r in range(ranks)]
            seen = []
            with self.subTest(seed=seed):
                for _ in range(2):
                    for b in samplers:
                        b.begin()
                    took = [i for some in self.epoch(rng, ranks, samplers, late) for i in some]
                    self.assertEqual(sorted(took), list(range(length)))
                    seen.append(took)
                if length > 20:
                    self.assertNotEqual(*seen, "epochs have one order")

    def test_costs(self):
        """Samples of unequal cost under random sizes: each comes once an epoch, in a round of the order's next global batch, in few micro-steps, also where
        other ranks go on from a file."""
        for seed in range(40):
            rng = random.Random(seed)
            length, steps = rng.randint(1, 120), rng.randint(1, 6)
            costs = numpy.array([rng.choice([0.0, 1.0, rng.lognormvariate(0, 2)]) for _ in range(length)])
            took, state, whole = [], None, sample_order.Batches(length, 0, uniform(1, [0]), seed)
            while True:
                ranks, number = rng.randint(1, 5), 1
                now = plan(rng, ranks, number)
                samplers = [sample_order.Batches(length, r, now, seed, costs=costs, micro_steps=steps) for r in range(ranks)]
                for b in samplers:
                    if state:
                        b.load_state_dict(state)
                if not samplers[0].left:
                    break
                for b in samplers:
                    b.begin()
                loaders = [iter(b) for b in samplers]
                for _ in range(rng.randint(1, 8)):
                    if not samplers[0].left:
                        break
                    total, some = min(sum(now.shares), samplers[0].left), []
                    for r, (b, loader) in enumerate(zip(samplers, loaders)):
                        own, drawn = next(loader), b.arrived()
                        self.assertEqual(drawn.total, total)
                        self.assertTrue(bool(drawn.own) <= drawn.work <= now.shares[r] and len(own) == max(drawn.samples, 1))
                        own = own[: drawn.samples]
                        for _ in range(steps):
                            if len(own) == drawn.own:
                                break
                            own += next(loader)
                            b.arrived()
                        self.assertEqual(len(own), drawn.own)
                        some += own
                    self.assertEqual(sorted(some), sorted(whole._left[len(took) : len(took) + total].tolist()))
                    took += some
                    if rng.random() < 0.5:
                        now = plan(rng, ranks, number := number + 1)
                        for b in samplers:
                            b.adopt(now, b.round)
                    for b in samplers:
                        b.completed(total)
                state = samplers[0].state_dict()
                self.assertTrue(all(b.state_dict() == state for b in samplers))
            self.assertEqual(sorted(took), list(range(length)))

    def test_resume_with_other_ranks(self):
        for seed in range(200):
            rng = random.Random(seed)
            ranks, length = rng.randint(1, 5), rng.randint(30, 200)
            samplers = [sample_order.Batches(length, r, plan(random.Random(seed), ranks, 1), seed) for r in range(ranks)]
            took = []
            for _ in range(3):  # stopped twice in the midst of it, by another number of ranks each time
                if samplers[0].left:
                    for b in samplers:
                        b.begin()
                    took += [i for some in self.epoch(rng, len(samplers), samplers, 0, rng.randint(0, 5)) for i in some]
                states = [b.state_dict() for b in samplers]
                self.assertTrue(all(s == states[0] for s in states))
                ranks = rng.randint(1, 5)
                first = plan(rng, ranks, 1)
                samplers = [sample_order.Batches(length, r, first, seed) for r in range(ranks)]
                for b in samplers:
                    b.load_state_dict(states[0])
            if samplers[0].left:
                for b in samplers:
                    b.begin()
                took += [i for some in self.epoch(rng, ranks, samplers) for i in some]
            self.assertEqual(sorted(took), list(range(length)))

    def test_the_global_batches_are_those_of_one_process(self):
        """Whatever the sizes: so a run is the same job with another number of ranks."""
        whole = sample_order.Batches(100, 0, uniform(16, [0]), seed=3)
        whole.begin()
        several = [sample_order.Batches(100, r, Plan(0, [9, 0, 7], [9, 1, 7]), seed=3) for r in range(3)]
        for b in several:
            b.begin()
        parts = [self.counted(b) for b in several]
        for some, *of_ranks in zip(whole, *parts):
            self.assertEqual(some, [i for p in of_ranks for i in p])

    @staticmethod
    def counted(b):
        for some in b:
            yield some[: b.arrived().samples]

    def test_sixteen_of_three(self):
        """torchft #302: 16 over 3 ranks with micro-batches of 4 is to be 16, not 12 or 24."""
        p = uniform(16, [4, 4, 4])
        self.assertEqual((p.shares, p.micro_batches), ([6, 5, 5], [4, 4, 4]))
        of_ranks = [sample_order.Batches(20, r, p) for r in range(3)]
        for b in of_ranks:
            b.begin()
        self.assertEqual([[len(some) for some in self.counted(b)] for b in of_ranks], [[6, 2], [5, 1], [5, 1]])  # what is left is cut in proportion

    def test_begun_anew_in_mid_epoch(self):
        """What completed rounds have used does not come again: in another loop, from a file into a sampler that has run, under a deadline."""
        b = sample_order.Batches(20, 0, uniform(4, [0]), shuffle=False)
        b.begin()
        for _ in range(2):
            b.completed(4)
        state = b.state_dict()
        b.begin()
        self.assertEqual(sum(self.counted(b), []), list(range(8, 20)))
        b.completed(4)
        b.load_state_dict(state)
        self.assertEqual(b.left, 12)
        b.begin()
        self.assertEqual(sum(self.counted(b), []), list(range(8, 20)))
        timed = sample_order.Batches(20, 0, uniform(4, [0]), shuffle=False, deal=True, chunk=3)
        timed.load_state_dict(state)
        for used in (0, 5):
            timed.begin()
            if used:
                timed.used([used])
            self.assertEqual(timed.left, 12 - used)
        timed.begin()
        self.assertEqual(timed.left, 7)
        source, some = iter(timed), []
        while len(some) < 7:
            batch = next(source)
            some += batch[: timed.arrived().samples]
        self.assertEqual(some, list(range(13, 20)))

    def test_a_loader_that_draws_while_ranks_agree(self):
        b = sample_order.Batches(100, 0, Plan(0, [2, 2], [2, 2]))
        b.begin()
        source = iter(b)
        next(source)
        b.hold(0)
        with self.assertRaisesRegex(RuntimeError, "plain DataLoader"):
            next(source)

    def test_other_job(self):
        b = sample_order.Batches(10, 0, uniform(4, [0]))
        with self.assertRaisesRegex(ValueError, "length 10, this one has 11"):
            sample_order.Batches(11, 0, uniform(4, [0])).load_state_dict(b.state_dict())

    def test_length(self):
        b = sample_order.Batches(17, 0, uniform(4, [0]))
        self.assertEqual(len(b), 5)
        b.begin()
        b.completed(4)
        self.assertEqual(len(b), 4)


    def test_drop_last(self):
        """An epoch ends where a whole round does not fit, also after it was resumed there; whatever a loader draws ahead."""
        for deal in (False, True):
            b = sample_order.Batches(17, 0, uniform(4, [0]), shuffle=False, deal=deal, chunk=4, drop_last=True)
            for epoch in range(2):
                self.assertEqual(len(b), 4)
                b.begin()
                loader, rounds = Loader(b, 3), 0
                while b.left:
                    self.assertEqual(next(loader), list(range(4 * rounds, 4 * rounds + 4)))
                    b.arrived()
                    b.used([4]) if deal else b.completed(4)
                    rounds += 1
                self.assertEqual((rounds, b.epoch), (4, epoch))
            again = sample_order.Batches(17, 0, uniform(4, [0]), shuffle=False, deal=deal, chunk=4, drop_last=True)
            again.load_state_dict(b.state_dict())
            again.begin()
            self.assertEqual((again.epoch, again.left), (2, 17))

    def test_micro_steps_are_batches(self):
        """Each share comes in micro-batches, at most as large as fits."""
        b = sample_order.Batches(20, 0, uniform(11, [0]), shuffle=False)
        b.divide = lambda plan, share: [4] * (share // 4) + [share % 4] * (share % 4 > 0)
        b.begin()
        batches, drawn = list(b), []
        while b._queue:
            drawn.append(b.arrived())
        self.assertEqual([len(x) for x in batches], [4, 4, 3, 4, 4, 1])
        self.assertEqual(sum(batches, []), list(range(20)))
        self.assertEqual([(d.samples, d.own, d.total, d.round) for d in drawn], [(4, 11, 11, 0), (4, 11, 11, 0), (3, 11, 11, 0), (4, 9, 9, 1), (4, 9, 9, 1), (1, 9, 9, 1)])


class TestDealing(unittest.TestCase):
    def test_every_sample_once(self):
        for seed in range(1000):
            rng = random.Random(seed)
            ranks, length = rng.randint(1, 5), rng.randint(1, 300)
            first = plan(rng, ranks, 1)
            samplers = [sample_order.Batches(length, r, first, seed, deal=True, chunk=rng.randint(1, 4)) for r in range(ranks)]
            took, rounds = [], 0
            with self.subTest(seed=seed):
                for b in samplers:
                    b.begin()
                feeds = [Feed(b, rng.choice([0, 4, 8])) for b in samplers]
                while samplers[0].left:
                    last = samplers[0].last()
                    counts = []
                    for b, feed in zip(samplers, feeds):
                        n = b.own if last else min(b.own, rng.randint(1, max(1, 2 * b.plan(b.round).shares[b.rank])))
                        counts.append(n)
                        took += feed.take(n)
                    if rng.random() < 0.3:
                        new = plan(rng, ranks, 100 + rounds)
                        for b in samplers:
                            b.adopt(new, rounds)
                    for b in samplers:
                        b.used(counts)
                    rounds += 1
                    if rng.random() < 0.1:  # begins anew, with other ranks
                        state, ranks = samplers[0].state_dict(), rng.randint(1, 5)
                        first, rounds = plan(rng, ranks, 1), 0
                        samplers = [sample_order.Batches(length, r, first, seed, deal=True, chunk=2) for r in range(ranks)]
                        for b in samplers:
                            b.load_state_dict(state)
                        if samplers[0].left:
                            for b in samplers:
                                b.begin()
                        feeds = [Feed(b, 4) for b in samplers]
                self.assertEqual(sorted(took), list(range(length)))

    def test_dealt_out_before_a_rank_runs_out(self):
        b = sample_order.Batches(1000, 0, Plan(0, [10, 10], [10, 10]), deal=True, chunk=5)
        b.begin()
        for _ in range(24):
            b.used([20, 10])  # rank 0 is twice as fast as believed
            self.assertGreaterEqual(min(len(p) - u for p, u in zip(b._parts, b._used)), 20)
        with self.assertRaisesRegex(ValueError, "rank 0 used 999 samples"):
            b.used([999, 0])


class Feed:
    """What a rank loads, and keeps until it uses it."""

    def __init__(self, batches, ahead):
        self.batches, self.loader, self.kept, self.deal = batches, Loader(batches, ahead), [], 0

    def take(self, n):
        if self.deal != self.batches.deal:
            self.deal, self.kept = self.batches.deal, []
        while len(self.kept) < n:
            some, drawn = next(self.loader), self.batches.arrived()
            if drawn.deal == self.deal:
                self.kept += some[: drawn.samples]
        out, self.kept = self.kept[:n], self.kept[n:]
        return out


class TestSplit(unittest.TestCase):
    def test_by_hand(self):
        self.assertEqual(sample_order.split(4, [6, 5, 5]), [2, 1, 1])
        self.assertEqual(sample_order.split(5, [1, 1, 0]), [3, 2, 0])
        self.assertEqual(sample_order.split(0, [1, 2]), [0, 0])
        self.assertEqual(sample_order.split(7, [10, 1, 1]), [6, 1, 0])  # 5.83, 0.58, 0.58


if __name__ == "__main__":
    unittest.main()
