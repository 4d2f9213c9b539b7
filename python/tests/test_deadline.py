import copy
import json
import math
import multiprocessing
import os
import random
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(ROOT, "internal", "vectors")]

import make_deadline_accumulation
import processes

from evenkeel.tuner import deadline

VECTORS = os.path.join(ROOT, "internal", "vectors", "deadline-accumulation.json")


def exported():
    """Sizes as evenkeel export writes them, with a deadline."""
    with open(os.path.join(ROOT, "agent", "export", "testdata", "deadline-json.golden")) as f:
        return json.load(f)


class TestFault(unittest.TestCase):
    with open(os.path.join(ROOT, "internal", "vectors", "deadline-text.json")) as f:  # Go's cluster.ParseDeadline is held to it, too
        GOOD, BAD = json.load(f).values()

    def test_by_hand(self):
        for d in self.GOOD:
            self.assertEqual(deadline.fault(d), "", d)
        for d in self.BAD + [5, 1.1, None, True, 11 * "1s" + 11 * "1s"]:
            self.assertNotEqual(deadline.fault(d), "", d)
        self.assertIn('give "5s" for seconds', deadline.fault("5"))
        self.assertIn('"110%"', deadline.fault("soon"))

    @unittest.skipUnless(os.environ.get("EVENKEEL"), "needs the command: set EVENKEEL to its path")
    def test_as_the_service(self):
        for d in self.GOOD + self.BAD:
            took = subprocess.run([os.environ["EVENKEEL"], "serve", f"--deadline={d}", "--", "true"], capture_output=True).returncode
            self.assertEqual(took == 0, deadline.fault(d) == "", d)


class TestAccumulation(unittest.TestCase):
    def test_vectors(self):
        with open(VECTORS) as f:
            cases = json.load(f)["cases"]
        self.assertGreater(len(cases), 70)
        for c in cases:
            node = deadline.Node(**c["node"])
            work = deadline.Accumulation(node, deadline.Order(**c["order"]))
            with self.subTest(c["name"]):
                for step in c["steps"]:
                    self.assertEqual(work.next(step["elapsed"]), step["size"])
                    if step["size"]:
                        work.done(step["size"], step["seconds"])
                self.assertEqual((work.samples, work.steps), (c["samples"], c["micro_steps"]))

    def test_vectors_are_those_of_the_rule(self):
        with open(VECTORS) as f:
            self.assertEqual(f.read(), make_deadline_accumulation.text())

    def test_refuses(self):
        for wrong in (lambda: deadline.Node(0), lambda: deadline.Node(2, least=3), lambda: deadline.Node(2, shapes=[4]),
                      lambda: deadline.Node(4, points=[[1, 2], [2, 1]]), lambda: deadline.Order(1, deadline=1)):
            self.assertRaises(ValueError, wrong)

    def test_a_clock_that_shows_nothing(self):
        work = deadline.Accumulation(deadline.Node(4), deadline.Order(8, 10, 1))
        work.next(0)
        work.done(4, 0.0)
        self.assertEqual(work.next(1), 4)
        self.assertEqual(work.next(11), 0)


class TestMore(unittest.TestCase):
    def test_by_hand(self):
        """As TestMoreAfterTheDeadline in Go: at a deadline of 10, then from when on."""
        for name, node, order, pace, at, want in (
            ("small ones", dict(limit=4), dict(overtime=1), 1, 10, [1] * 10),
            ("the least that it takes", dict(limit=4, least=3), dict(overtime=3), 1, 10, [3, 3]),
            ("the smallest shape", dict(limit=4, shapes=[2, 4]), dict(overtime=2), 1, 10, [2] * 5),
            ("too long", dict(limit=4, least=3), dict(overtime=2.9), 1, 10, []),
            ("too long at today's pace", dict(limit=4), dict(overtime=1), 1.5, 10.5, []),
            ("whole", dict(limit=4), dict(overtime=4, whole=True), 1, 10, [4, 4]),
            ("whole, a small share", dict(limit=4), dict(overtime=4, whole=True, share=2), 1, 10, [2] * 5),
            ("before the deadline", dict(limit=4), dict(overtime=1), 1, 9.99, []),
            ("the timeout is near", dict(limit=4), dict(overtime=1, timeout=14), 1, 10, [1] * 3),
            ("none", dict(limit=4), {}, 1, 10, []),
        ):
            with self.subTest(name):
                work = deadline.Accumulation(deadline.Node(**node), deadline.Order(**{"share": 8, "deadline": 10, "pace": 1, **order}))
                self.assertEqual(work.more(20), 0)
                elapsed, got = 0.0, []
                while size := work.next(elapsed):
                    elapsed += pace * size
                    work.done(size, pace * size)
                elapsed = at
                while size := work.more(elapsed):
                    got.append(size)
                    elapsed += pace * size
                    work.done(size, pace * size)
                self.assertEqual(got, want)


class TestSizes(unittest.TestCase):
    def test_rank(self):
        sizes = exported()
        node, order = deadline.rank(sizes, 1)
        self.assertEqual((node.limit, node.shapes, order.share, order.whole), (4, [2, 4], 272, False))
        self.assertEqual(order.reserve, sizes["deadline"]["reserve"])
        for r, n in enumerate(sizes["nodes"]):  # as predicted, a rank comes within a micro-step and the reserve of its share
            node, order = deadline.rank(sizes, r)
            work, elapsed = deadline.Accumulation(node, order), 0.0
            while size := work.next(elapsed):
                seconds = n["deadline"]["micro_step_seconds"] * size / n["micro_batch"]
                elapsed += seconds
                work.done(size, seconds)
            self.assertLessEqual(elapsed, n["deadline"]["seconds"])
            self.assertLessEqual(abs(work.samples - n["share"]), n["micro_batch"])
        self.assertEqual(order.overtime, 0)
        more = dict(sizes, deadline=dict(sizes["deadline"], overtime=0.1))
        self.assertAlmostEqual(deadline.rank(more, 0)[1].overtime, 0.1 * sizes["deadline"]["seconds"])
        self.assertAlmostEqual(deadline.rank(more, 0, 50)[1].overtime, 5)
        later = deadline.rank(sizes, 0, sizes["deadline"]["seconds"] + 5)[1]
        self.assertAlmostEqual(later.deadline, sizes["nodes"][0]["deadline"]["seconds"] + 5)

    def test_without_a_deadline(self):
        sizes = exported()
        del sizes["deadline"]
        sizes["nodes"].insert(0, {"name": "out", "share": 0})
        node, order = deadline.rank(sizes, 0)
        work = deadline.Accumulation(node, order)
        while size := work.next(0):
            work.done(size, 1)
        self.assertEqual((work.samples, work.steps), (178, 23))
        self.assertRaises(ValueError, lambda: deadline.rank(dict(sizes, version=2), 0))

    def test_the_mean_however_rounds_scatter(self):
        """As TestDeadlineHoldsTheMean in Go."""
        until, rng, rounds, total = deadline.Deadline({"deadline": {"seconds": 1.0, "auto": True}}), random.Random(1), 50_000, 0.0
        for _ in range(rounds):
            x = until.seconds / 2 * (0.3 if rng.random() < 0.3 else 1.3)
            total += x
            until.observe(x, 1)
        self.assertAlmostEqual(total / rounds, 1 - math.log(until.seconds) / until.RATE / rounds, places=9)
        self.assertLess(abs(total / rounds - 1), 0.001)

    def test_the_deadline_follows_the_samples(self):
        sizes, rng = exported(), random.Random(1)
        until, shares, mean = deadline.Deadline(sizes), [n["share"] for n in sizes["nodes"]], 0
        for n in range(400):
            total = 0
            for r in range(3):  # all are 40% slower than predicted, and noisy
                node, order = deadline.rank(sizes, r, until.seconds)
                work, elapsed, pace = deadline.Accumulation(node, order), 0.0, 1.4 * order.pace * rng.uniform(0.8, 1.2)
                while size := work.next(elapsed):
                    elapsed += size * pace
                    work.done(size, size * pace)
                total += work.samples
            until.observe(total, sum(shares))
            mean += total / 300 if n >= 100 else 0
        self.assertLess(abs(mean / sum(shares) - 1), 0.01)
        sizes["deadline"]["auto"] = False
        fixed = deadline.Deadline(sizes)
        fixed.observe(1, 600)
        self.assertEqual(fixed.seconds, sizes["deadline"]["seconds"])


class TestSamples(unittest.TestCase):
    def test_every_sample_once(self):
        rng = random.Random(3)
        for _ in range(1000):
            order = list(range(rng.randint(0, 60)))
            rng.shuffle(order)
            samples, seen = deadline.Samples(order), []
            most = [rng.randint(1, 12) for _ in range(rng.randint(1, 5))]
            while len(samples):
                left, blocks = len(samples), samples.blocks(most)
                self.assertEqual(sum(map(len, blocks)), min(left, sum(most)))
                self.assertTrue(all(len(b) <= m for b, m in zip(blocks, most)))
                counts = [rng.randint(0, len(b)) for b in blocks]
                seen += [s for b, c in zip(blocks, counts) for s in b[:c]]
                unused = [s for b, c in zip(blocks, counts) for s in b[c:]]
                samples.used(counts)
                rest = samples.blocks([len(samples)])[0]
                self.assertEqual(rest[:len(unused)], unused)  # first in the next round
                samples.used([0])
            self.assertEqual(sorted(seen), sorted(order))

    def test_refuses(self):
        samples = deadline.Samples(range(9))
        samples.blocks([2, 2])
        for counts in ([3, 0], [-1, 0], [1]):
            self.assertRaises(ValueError, lambda: samples.used(counts))


def guide():
    """train_round of the guide, as it stands there."""
    with open(os.path.join(ROOT, "docs", "guides", "trainers.md")) as f:
        blocks = re.findall(r"```python\n(.*?)```", f.read(), re.DOTALL)
    names = {}
    exec(next(b for b in blocks if "def train_round" in b), names)
    return names["train_round"]


def play(rank, port, results):
    """One of three ranks that trains two epochs with the guide's loop; each has its own pace, by a clock that only load moves."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3)).double()
    x, y = torch.randn(3000, 7).double(), torch.randint(3, (3000,))
    criterion = torch.nn.CrossEntropyLoss(reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes, now, rng = exported(), [0.0], random.Random(rank)

    def load(indices):
        n = sizes["nodes"][rank]
        now[0] += n["deadline"]["micro_step_seconds"] * len(indices) / n["micro_batch"] * rng.uniform(0.5, 2)
        return x[indices], y[indices]

    train_round, until = guide(), deadline.Deadline(sizes)
    worst, rounds, total = 0.0, [], 0
    for epoch in range(2):
        samples = deadline.Samples(torch.randperm(3000, generator=torch.Generator().manual_seed(epoch)).tolist())
        while len(samples):
            before, blocks = copy.deepcopy(model), copy.deepcopy(samples).blocks([4 * n["share"] for n in sizes["nodes"]])
            counts = train_round(model, criterion, optimizer, load, samples, until, sizes, clock=lambda: now[0])
            if not sum(counts):
                break
            union = [s for b, c in zip(blocks, counts) for s in b[:c]]
            before.zero_grad()
            torch.nn.functional.cross_entropy(before(x[union]), y[union]).backward()
            for p, q in zip(before.parameters(), model.parameters()):
                worst = max(worst, float((p.grad - q.grad).abs().max()))
            rounds.append(counts)
            total += sum(counts)
    results.put((rank, worst, rounds, total, [p.tolist() for p in model.parameters()]))
    dist.destroy_process_group()


def overtime(rank, port, results):
    """One of three ranks that trains an epoch with the guide's loop and overtime, by the real clock: each micro-step is a sleep, and in every
    round one rank in turn stalls within its first."""
    import datetime
    import time

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    other = torch.zeros(1, dtype=torch.long)
    store = dist.TCPStore("127.0.0.1", 0, 3, True, datetime.timedelta(seconds=60), False) if rank == 0 else None
    if store is not None:
        other[0] = store.port
    dist.broadcast(other, 0)
    store = store or dist.TCPStore("127.0.0.1", int(other), 3, False, datetime.timedelta(seconds=60), False)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3)).double()
    x, y = torch.randn(400, 7).double(), torch.randint(3, (400,))
    criterion, optimizer = torch.nn.CrossEntropyLoss(reduction="sum"), torch.optim.SGD(model.parameters(), lr=0.1)
    own = {"seconds": 0.04, "micro_step_seconds": 0.02, "least": 1}
    sizes = {"version": 3, "deadline": {"seconds": 0.04, "auto": False, "reserve": 0.02, "micro_steps": "cut", "overtime": 0.5},
             "nodes": [{"share": 8, "micro_batch": 4, "deadline": own} for _ in range(3)]}
    now = {"round": 0, "steps": []}

    def load(indices):
        stall = 0.1 if not now["steps"] and now["round"] % 3 == rank else 0
        now["steps"].append(len(indices))
        time.sleep(0.005 * len(indices) + stall)
        return x[indices], y[indices]

    train_round, until = guide(), deadline.Deadline(sizes)
    samples = deadline.Samples(torch.randperm(400, generator=torch.Generator().manual_seed(5)).tolist())
    worst, seen, late = 0.0, [], 0
    while len(samples):
        before, blocks = copy.deepcopy(model), copy.deepcopy(samples).blocks([32] * 3)
        now["steps"] = []
        counts = train_round(model, criterion, optimizer, load, samples, until, sizes, store=store, key=f"round {now['round']}")
        union = [s for b, c in zip(blocks, counts) for s in b[:c]]
        seen += union
        before.zero_grad()
        torch.nn.functional.cross_entropy(before(x[union]), y[union]).backward()
        for p, q in zip(before.parameters(), model.parameters()):
            worst = max(worst, float((p.grad - q.grad).abs().max()))
        if len(blocks[rank]) == 32 and now["round"] % 3 != rank:
            late += now["steps"][-3:] == [1, 1, 1]  # of overtime: until the deadline the last one at most is smaller than 4
        now["round"] += 1
    results.put((rank, worst, sorted(seen), late, [p.tolist() for p in model.parameters()]))
    dist.barrier()
    dist.destroy_process_group()


@unittest.skipUnless(os.environ.get("EVENKEEL_SLOW"), "slow: set EVENKEEL_SLOW=1 to run it")
class TestLoop(unittest.TestCase):
    def run_(self, target):
        try:
            import torch  # noqa: F401
        except ImportError as e:
            raise unittest.SkipTest(f"needs PyTorch: {e}")
        port = processes.free_port()
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        ranks = [context.Process(target=target, args=(r, port, results), daemon=True) for r in range(3)]
        for p in ranks:
            p.start()
        got = [results.get(timeout=120) for _ in ranks]
        for p in ranks:
            p.join(60)
            self.assertEqual(p.exitcode, 0)
        return got

    def test_overtime(self):
        """Ranks go on while one is late; gradients are those of one process on what all used, every sample counts once."""
        for rank, worst, seen, late, weights in (got := self.run_(overtime)):
            self.assertLess(worst, 1e-12)
            self.assertEqual(seen, list(range(400)))
            self.assertGreater(late, 0, f"rank {rank} never went on")
            self.assertEqual(weights, got[0][4])

    def test_gradients_are_the_mean_over_the_union(self):
        got = self.run_(play)
        _, worst, rounds, total, weights = got[0]
        self.assertLess(worst, 1e-12)
        self.assertEqual(total, 6000)  # every sample once an epoch: no more, no less
        self.assertGreater(len({tuple(c) for c in rounds}), 5)
        self.assertTrue(any(c != rounds[0][0] for c in rounds[0]))
        for other in got[1:]:
            self.assertEqual(other[2:], (rounds, total, weights))
            self.assertLess(other[1], 1e-12)


if __name__ == "__main__":
    unittest.main()
