"""Equal micro-steps of unequal sizes under each of torch's wrappers: after each round the gradient is that of one process with all samples of the round,
every sample is drawn once an epoch, and sizes follow the ranks' paces."""

import collections
import copy
import os
import random
import subprocess
import sys
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel
import fake_service
import processes
from evenkeel.trainers.equal_order import EqualOrder
from evenkeel.tuner import Usage

LENGTH, RANKS, BATCH = 130, 4, 24  # the last round of an epoch has 10 samples
SIZES = (([13, 5, 2, 4],), ([11, 0, 9, 4],), ([1, 1, 21, 1],), ([6, 6, 6, 6],))
GROUPS = (([18, 6],), ([24, 0],), ([2, 22],), ([12, 12],))  # two of two ranks


def sample(i):
    g = torch.Generator().manual_seed(i)
    return torch.randn(6, generator=g, dtype=torch.float64), int(torch.randint(0, 3, (), generator=g)), i


DATA = [sample(i) for i in range(LENGTH)]


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 3)).double()


def ddp(net):
    return DDP(net)


def fsdp2(net, mesh=None):
    mesh = mesh or init_device_mesh("cpu", (RANKS,))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def hsdp(net):
    return fsdp2(net, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def fsdp1(net):
    return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))


def gradients(model):
    """Of all parameters, in one tensor, on all ranks alike."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()
    grads = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()]
    return torch.cat([g.flatten() for g in grads])


def weights(batch):
    """Tokens of each sample, some have none."""
    return batch[2] % 4


def tokens(batch):
    return float(weights(batch).sum())


class TestGradients(unittest.TestCase):
    def train(self, wrap, micro_steps, weighted, rank):
        plain = mlp()
        model = wrap(copy.deepcopy(plain))
        if micro_steps:
            tuner = evenkeel.EqualSteps(model)
            loader = tuner.loader(DATA, global_batch=BATCH, micro_steps=micro_steps, num_workers=2 * (micro_steps > 1))
        else:
            tuner = evenkeel.GroupSteps(model)
            loader = tuner.loader(DATA, global_batch=BATCH, num_workers=2 * weighted)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        its = torch.optim.SGD(plain.parameters(), lr=0.1)
        seen, plans = [], set()
        for _ in range(2):
            union = []
            for batch in tuner.steps(loader, tokens if weighted else None):
                x, y, i = batch
                if tuner.size:
                    union += i.tolist()
                    self.assertEqual(len(i), tuner.size)
                loss = cross_entropy(model(x), y, reduction="none" if weighted else "mean")
                if weighted:
                    w = weights(batch)
                    loss = (loss * w).sum() / max(float(w.sum()), 1)
                (loss * tuner.scale).backward()
                if not tuner.synchronised:
                    continue
                plans.add(tuple(tuner.order.counts(tuner.order.round)))
                everyone = [None] * RANKS
                dist.all_gather_object(everyone, union)
                samples = sum(everyone, [])
                seen += samples
                x, y = torch.stack([DATA[i][0] for i in samples]), torch.tensor([DATA[i][1] for i in samples])
                each = cross_entropy(plain(x), y, reduction="none")
                w = weights([0, 0, torch.tensor(samples)]) if weighted else torch.ones(len(samples))
                ((each * w).sum() / w.sum()).backward()
                one, own = torch.cat([p.grad.flatten() for p in plain.parameters()]), gradients(model)
                self.assertLess(float((own - one).norm() / one.norm()), 1e-12)
                optimizer.step(), optimizer.zero_grad(), its.step(), its.zero_grad()
                union = []
        tuner.close()
        counts = collections.Counter(seen)
        self.assertEqual((set(counts.values()), len(counts)), ({2}, LENGTH))
        self.assertGreater(len(plans), 2)

    def test_union(self):
        for wrap, micro_steps, weighted in ((ddp, 1, False), (fsdp2, 3, True), (hsdp, 2, False), (hsdp, 0, True), (hsdp, 0, False), (fsdp1, 2, False)):
            with self.subTest(wrap=wrap.__name__, micro_steps=micro_steps, weighted=weighted):
                sizes = SIZES if micro_steps else GROUPS
                service = fake_service.Service(lambda reports, _, sizes=sizes: sizes[len(reports) // 2 % len(sizes)])
                self.addCleanup(service.stop)

                def child(rank, port):
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
                    self.train(wrap, micro_steps, weighted, rank)
                    dist.barrier()

                with mock.patch.dict(os.environ, {"EVENKEEL_URL": service.url}):
                    processes.run(self, RANKS, child)
                self.assertEqual({r[1].get("equal_steps", 0) for r in service.registered}, {micro_steps})
                self.assertGreater(len(service.reports), 6)


class Slow(nn.Module):
    """A layer of a rank that needs so many seconds a sample."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.inner = seconds, nn.Linear(6, 6).double()

    def forward(self, x):
        time.sleep(self.seconds * len(x))
        return self.inner(x)


class TestSizes(unittest.TestCase):
    PACES = [0.001, 0.001, 0.002, 0.004]

    def test_follow_paces_without_waits(self):
        """Under full sharding all ranks take as long as the slowest in each unit. Sizes follow each one's own pace."""

        def child(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            net = nn.Sequential(Slow(self.PACES[rank]), Slow(self.PACES[rank]), nn.Linear(6, 3).double())
            for layer in net:
                fully_shard(layer, mesh=init_device_mesh("cpu", (RANKS,)))
            tuner = evenkeel.EqualSteps(fully_shard(net, mesh=init_device_mesh("cpu", (RANKS,))))
            loader = tuner.loader(DATA, global_batch=66, micro_steps=2, micro_batch=10 if rank == 0 else 0)
            for _ in range(5):
                for x, y, _ in tuner.steps(loader):
                    (cross_entropy(net(x), y) * tuner.scale).backward()
            for wrong in (-1.0, float("nan"), float("inf")):
                with self.assertRaisesRegex(Usage, "numbers from 0"):
                    next(tuner.steps(loader, lambda _: wrong))
            shares = tuner.order.plan(tuner.order.round).shares
            self.assertEqual(shares[0], 20)  # by memory
            for r, best in enumerate((20, 26.3, 13.1, 6.6)):
                self.assertAlmostEqual(shares[r], best, delta=0.2 * best, msg=shares)
            dist.barrier()

        with mock.patch.dict(os.environ):
            os.environ.pop("EVENKEEL_URL", None)
            processes.run(self, RANKS, child)

    def test_no_time_is_longer_than_the_round(self):
        """Backward passes are reckoned, at twice the forward passes. Here they take no time."""
        service = fake_service.Service(lambda reports, _: [[20, 20, 16, 10]])
        self.addCleanup(service.stop)

        def child(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            net = DDP(nn.Sequential(Slow(self.PACES[rank]), nn.Linear(6, 3).double()))
            tuner = evenkeel.EqualSteps(net)
            loader = tuner.loader(DATA, global_batch=66)
            for _ in range(3):
                for x, y, _ in tuner.steps(loader):
                    (cross_entropy(net(x), y) * tuner.scale).backward()
            with self.assertRaisesRegex(Usage, "iterate the same one"):
                tuner.loader(DATA, global_batch=66)
            tuner.close()
            dist.barrier()

        with mock.patch.dict(os.environ, {"EVENKEEL_URL": service.url}):
            processes.run(self, RANKS, child)
        self.assertGreater(len(service.reports), 3)
        for r in service.reports:
            longest = max(own["seconds"] for own in r["ranks"])
            self.assertGreater(longest, 0.03)
            self.assertLessEqual(longest, r["wait_seconds"] * (1 + 1e-9))


OUT_OF_MEMORY = """
import sys
sys.path[:0] = sys.argv[1:]
import torch, evenkeel
torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:{}", rank=0, world_size=1)
net = torch.nn.Linear(2, 1)
tuner = evenkeel.EqualSteps(net)
for k, (x,) in enumerate(tuner.steps(tuner.loader(torch.utils.data.TensorDataset(torch.randn(20, 2)), global_batch=9))):
    if k == 1:
        raise torch.OutOfMemoryError("enough")
    (net(x).mean() * tuner.scale).backward()
"""


class TestMemory(unittest.TestCase):
    def test_says_what_fits(self):
        done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY.format(processes.free_port()), os.path.join(HERE, "..")], capture_output=True, text=True)
        self.assertIn("rank 0 has no memory for a micro-step of 9 samples: give loader(micro_batch=4)", done.stderr)
        self.assertIn("OutOfMemoryError: enough", done.stderr)


class TestOrder(unittest.TestCase):
    class Plan:
        def __init__(self, shares):
            self.shares = shares

    def test_each_sample_once_whatever_the_sizes(self):
        rng = random.Random(1)
        for _ in range(200):
            ranks, steps = rng.randint(1, 5), rng.randint(1, 4)
            batch, length, drop = rng.randint(ranks, 40), rng.randint(40, 200), rng.random() < 0.3
            orders = [EqualOrder(length, batch, steps, seed=3, drop_last=drop) for _ in range(ranks)]

            def cuts():
                at = [0, *sorted(rng.randint(0, batch) for _ in range(ranks - 1)), batch]
                return [b - a for a, b in zip(at, at[1:])]

            first = self.Plan(cuts())
            for r, o in enumerate(orders):
                o.begin(r, first)
            for epoch in range(2):
                ahead = [rng.randint(0, 3 * steps) for _ in range(ranks)]  # that a loader draws ahead
                drawn = [iter(o) for o in orders]
                seen, taken = [], [[next(d, None) for _ in range(a)] for d, a in zip(drawn, ahead)]
                for k in range(orders[0].rounds):
                    totals = {tuple(o.counts(epoch * o.rounds + k)) for o in orders}
                    self.assertEqual(len(totals), 1)
                    for o, d, early in zip(orders, drawn, taken):
                        for n in o.sizes(epoch * o.rounds + k):
                            got = early.pop(0) if early else next(d)
                            self.assertEqual(len(got), max(n, 1))
                            seen += got[:n]
                        o.round += 1
                    plan, newest = self.Plan(cuts()), max(o.hold() for o in orders)
                    for d, early in zip(drawn, taken):  # a loader hands out a round while the vector is on its way
                        early += [b for _ in range(rng.randint(0, steps)) if len(early) < 4 * steps and (b := next(d, None)) is not None]
                    for o in orders:
                        o.adopt(plan, newest)
                        o.release()
                expected = orders[0].rounds * batch if drop else length
                self.assertEqual((len(seen), len(set(seen))), (expected, expected))

    def test_draws_one_round_while_sizes_are_on_their_way(self):
        o = EqualOrder(50, 10, 2)
        o.begin(0, self.Plan([4, 6]))
        drawn = iter(o)
        next(drawn), next(drawn)
        self.assertEqual(o.hold(), 1)
        next(drawn), next(drawn)
        with self.assertRaisesRegex(RuntimeError, "plain DataLoader"):
            next(drawn)

    def test_resumes_in_the_order(self):
        whole, rest = EqualOrder(50, 10, 2), EqualOrder(50, 10, 2)
        for o in (whole, rest):
            o.begin(0, self.Plan([4, 6]))
        rest.round = 3
        self.assertEqual(list(rest), list(whole)[6:])
        skipped = EqualOrder(50, 10, 2)
        skipped.begin(0, self.Plan([4, 6]))
        skipped.round = 8
        skipped.set_epoch(1)
        whole.round = 5
        self.assertEqual(list(skipped), list(whole))


class TestUsage(unittest.TestCase):
    def test_one_tuner(self):
        """Whichever comes first, and whoever owns the loop."""

        def child(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=1)
            net = DDP(mlp())
            equal = evenkeel.EqualSteps(net)
            loader = equal.loader(DATA, global_batch=8)
            evenkeel.Tuner(net)
            for again in (lambda: evenkeel.EqualSteps(net), lambda: iter(loader)):
                with self.assertRaisesRegex(Usage, "leave one of the two out"):
                    again()

        processes.run(self, 1, child)

    def test_wrong_arguments(self):
        tuner = evenkeel.EqualSteps(mlp())
        for arguments, word in (({"batch_size": 8}, "batch_size"), ({"global_batch": 0}, "global_batch 0"), ({"global_batch": 200, "drop_last": True}, "130 samples")):
            with self.assertRaisesRegex(Usage, word):
                tuner.loader(DATA, **{"global_batch": 8, **arguments})
        with self.assertRaisesRegex(Usage, "generator: .* map-style"):
            tuner.loader((d for d in DATA), global_batch=8)
        with self.assertRaisesRegex(Usage, "torchrun"):
            iter(tuner.loader(DATA, global_batch=8))
        with self.assertRaisesRegex(Usage, "global_batch 9"):
            tuner.load_state_dict({**tuner.state_dict(), "global_batch": 9})


if __name__ == "__main__":
    unittest.main()
