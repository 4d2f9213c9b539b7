"""HSDP whose shard groups differ in micro-steps. That gradients are those of one process is in test_equal_steps.py; here are sizes, paces and order."""

import os
import random
import statistics
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import evenkeel
import fake_service
import processes
from evenkeel.trainers.group_steps import GroupOrder
from evenkeel.tuner import Usage
from test_equal_steps import DATA, RANKS, Slow, hsdp, mlp

PACES = [0.005, 0.005, 0.015, 0.005]  # of a sample in the forward pass of a layer; a group is as slow as its slowest rank


def slow(rank, times=1):
    net = nn.Sequential(Slow(times * PACES[rank]), Slow(times * PACES[rank]), nn.Linear(6, 3).double())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def train(tuner, loader, net, epochs):
    """The sizes of this rank's micro-steps, by rounds."""
    rounds = [[]]
    for _ in range(epochs):
        for x, y, _ in tuner.steps(loader):
            (cross_entropy(net(x), y) * tuner.scale).backward()
            rounds[-1].append(tuner.size)
            if tuner.synchronised:
                rounds.append([])
    return rounds[:-1]


class TestSizes(unittest.TestCase):
    def test_a_group_is_as_slow_as_its_slowest_rank(self):
        def child(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            net = slow(rank, 3)
            tuner = evenkeel.GroupSteps(net)
            loader = tuner.loader(DATA, global_batch=64, micro_batch=2, drop_last=True)
            with self.assertRaises(TypeError):
                len(loader)
            rounds = train(tuner, loader, net, 4)
            self.assertEqual(rounds[0], [2] * 8)  # equal at first
            self.assertAlmostEqual(len(rounds[-1]), 12 if rank < 2 else 4, delta=1, msg=rounds)  # 1 to 3
            dist.barrier()

        with mock.patch.dict(os.environ):
            os.environ.pop("EVENKEEL_URL", None)
            processes.run(self, RANKS, child)

    def test_what_the_service_sees(self):
        service = fake_service.Service(lambda reports, _: [[12, 4]] if len(reports) > 2 else [[8, 8]])
        self.addCleanup(service.stop)

        def child(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            net = slow(rank, 4)
            tuner = evenkeel.GroupSteps(net)
            rounds = train(tuner, tuner.loader(DATA, global_batch=16, drop_last=True), net, 1)
            self.assertEqual(rounds[-1], [1] * (6 if rank < 2 else 2))
            tuner.close()
            dist.barrier()

        with mock.patch.dict(os.environ, {"EVENKEEL_URL": service.url}):
            processes.run(self, RANKS, child)
        registered = service.registered[-1][1]
        self.assertEqual([r["micro_batch"] for r in registered["ranks"]], 2 * [{"least": 2, "most": 2, "sizes": [2]}])
        for report in service.reports[1:]:
            a, b = report["ranks"]
            self.assertIn((a["samples"], a["micro_steps"], b["samples"], b["micro_steps"]), ((8, 4, 8, 4), (12, 6, 4, 2)))
            for own, pace in ((a, 0.02), (b, 0.06)):  # two layers, for each sample of a rank
                self.assertGreaterEqual(own["seconds"], 0.9 * pace * own["samples"])
                self.assertLessEqual(own["seconds"], report["wait_seconds"] * (1 + 1e-9))
        ratios = [r["ranks"][1]["seconds"] / r["ranks"][0]["seconds"] for r in service.reports if r["ranks"][0]["samples"] == 8]
        self.assertGreater(statistics.median(ratios), 1.7)


class TestOrder(unittest.TestCase):
    class Plan:
        def __init__(self, shares):
            self.shares = shares

    def test_each_sample_once_and_full_micro_steps(self):
        rng = random.Random(2)
        for _ in range(200):
            n, cards, micro = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 3)
            unit = cards * micro
            batch, length = unit * rng.randint(n, 12), rng.randint(50, 200)
            ranks = list(range(n * cards))
            if rng.random() < 0.5:
                rng.shuffle(ranks)
            groups = [ranks[g * cards : (g + 1) * cards] for g in range(n)]
            at = [0, *sorted(rng.randint(0, batch // unit) for _ in range(n - 1)), batch // unit]
            shares = [unit * (b - a) for a, b in zip(at, at[1:])]
            if rng.random() < 0.2 and n > 1:  # not in micro-steps
                shares = [shares[0] - 1, shares[1] + 1, *shares[2:]] if shares[0] else shares
            orders = [GroupOrder(length, batch, micro, groups, seed=3) for _ in ranks]
            for r, o in enumerate(orders):
                o.begin(r, self.Plan(shares + [0] * (len(ranks) - n)))
            drawn, seen = [list(o) for o in orders], []
            for k in range(orders[0].rounds):
                sizes = [o.sizes(k) for o in orders]
                for g in groups:
                    self.assertEqual(len({len(sizes[r]) for r in g}), 1)
                if (k + 1) * batch <= length:
                    self.assertLessEqual({s for own in sizes for s in own}, {0, micro})
                for own, batches in zip(sizes, drawn):
                    self.assertLessEqual(max(own), micro)
                    for s in own:
                        seen += batches.pop(0)[:s]
            self.assertEqual(sorted(seen), list(range(length)))
            self.assertFalse(any(drawn))


class TestUsage(unittest.TestCase):
    def test_what_cannot_be(self):
        def child(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            flat = mlp()
            fully_shard(flat, mesh=init_device_mesh("cpu", (RANKS,)))
            for wrong in (mlp(), flat):
                with self.assertRaisesRegex(Usage, "two dimensions.*EqualSteps"):
                    evenkeel.GroupSteps(wrong)
            tuner = evenkeel.GroupSteps(hsdp(mlp()))
            for batch, micro, word in ((30, 2, "multiple of 4.* 2 groups"), (4, 2, "multiple of 4"), (16, 0, "micro_batch 0"), ("8", 1, "global_batch '8'")):
                with self.assertRaisesRegex(Usage, word):
                    tuner.loader(DATA, global_batch=batch, micro_batch=micro)
            loader = tuner.loader(DATA, global_batch=16, seed=rank)
            with self.assertRaisesRegex(Usage, "'seed': 1.* on rank 1"):
                iter(loader)

        with mock.patch.dict(os.environ):
            os.environ.pop("EVENKEEL_URL", None)
            processes.run(self, RANKS, child)


if __name__ == "__main__":
    unittest.main()
