"""A loop that is watched: the same weights, bit for bit, and a slow rank is named with its cause."""

import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

import evenkeel
import processes
from evenkeel.trainers import watch
from evenkeel.tuner import Usage
from evenkeel.tuner.round_vector import Did
from test_equal_steps import DATA, Slow, mlp

RANKS = 3


class Read(Dataset):
    """Each sample takes so many seconds to read."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 120

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return DATA[i][:2]


def fsdp2(net):
    for layer in net:
        fully_shard(layer, mesh=init_device_mesh("cpu", (RANKS,)))
    return fully_shard(net, mesh=init_device_mesh("cpu", (RANKS,)))


def train(model, loader, epochs, evaluate=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for x, y in loader:
            cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if evaluate is not None:
                with torch.no_grad():
                    model(evaluate)


class TestWatch(unittest.TestCase):
    def job(self, child):
        def start(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            child(rank)
            dist.barrier()

        processes.run(self, RANKS, start)

    def test_changes_nothing(self):
        def child(rank):
            for wrap in (DDP, fsdp2):
                weights = []
                for watched in (False, True):
                    torch.manual_seed(3)
                    model, lines = wrap(nn.Sequential(*mlp(), nn.Dropout(0.2))), []
                    loader = DataLoader(DATA[40 * rank :][:40], batch_size=4, shuffle=True, collate_fn=lambda b: (torch.stack([x for x, _, _ in b]), torch.tensor([y for _, y, _ in b])))
                    if watched:
                        loader = evenkeel.watch(model, loader, every=3, say=lines.append)
                        self.assertEqual((len(loader), loader.batch_size), (10, 4))
                    train(model, loader, 2, torch.ones(1, 6, dtype=torch.float64))
                    if watched:
                        loader.close()
                    weights.append([(p.to_local() if hasattr(p, "to_local") else p).detach().clone() for p in model.parameters()])
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(*weights)))
                self.assertEqual(len(lines), 6 if rank == 0 else 0)
                for k, line in enumerate(lines):
                    self.assertRegex(line, f"^evenkeel: steps {3 * k + 2} to {3 * k + 4}: .* a step: compute .*%")

        self.job(child)

    def faults(self, wrap, compute, data, workers=0):
        """The last line of a job whose rank 1 needs so many seconds for a sample."""

        def child(rank):
            model, lines = wrap(nn.Sequential(Slow(compute[rank]), nn.Linear(6, 3).double())), []
            loader = evenkeel.watch(model, DataLoader(Read(data[rank]), batch_size=6, num_workers=workers), every=9, say=lines.append)
            train(model, loader, 1)
            loader.close()
            if rank == 0:
                self.said(lines[-1], compute, data)

        self.job(child)

    def said(self, line, compute, data):
        causes = line.split(". ", 1)[1]
        if max(data) > 2 * min(data):
            self.assertRegex(causes, r"^Input: rank 1 \(.*/1\) waits for its data in \d\d% of its own time\.$")
        elif max(compute) > 2 * min(compute):
            self.assertRegex(causes, r"^Compute: rank 1 \(.*/1\) takes [23]\.\d times as long as is normal for a sample\.$")
        else:
            self.assertEqual(causes, "No rank is slow.")

    def test_names_the_cause(self):
        for wrap, compute, data, workers in (
            (DDP, [0.004] * 3, [0.0001] * 3, 0),
            (DDP, [0.004, 0.010, 0.004], [0.0001] * 3, 0),
            (fsdp2, [0.004, 0.010, 0.004], [0.0001] * 3, 1),
            (DDP, [0.004] * 3, [0.0001, 0.02, 0.0001], 0),
            (fsdp2, [0.001] * 3, [0.0001, 0.03, 0.0001], 1),
        ):
            with self.subTest(wrap=wrap.__name__, compute=compute, data=data):
                self.faults(wrap, compute, data, workers)

    def test_rules(self):
        def did(seconds, samples=100, data=0.0, link=0.0):
            return Did(seconds=seconds, samples=samples, input=data, link=link)

        even = ["a", "b", "c"]
        line = lambda blame, did, wall=10.0: blame.line(did, wall, 10)[0]  # noqa: E731
        two = watch.Blame(even, ["x", "x", "y"])
        self.assertEqual(line(two, [did(4), did(4), did(8)]), "1 s a step: compute 80%, input 0%, exchange and the rest 20%, 0.68 s with tuned sizes. No rank is slow.")
        self.assertRegex(line(two, [did(4), did(4), did(13)], 14), "93%.* Compute: rank 2 .c. takes 1.6 times")
        self.assertRegex(line(two, [did(8), did(8), did(16)], 18), "No rank is slow")  # all are slower, its device as the others
        self.assertRegex(line(two, [did(4), did(4), did(8, link=0.1)]), "No rank")
        self.assertRegex(line(two, [did(4, link=0.1), did(4, link=0.5), did(4, link=0.1)]), "exchange and the rest 60%. Network: rank 1 .b. takes 5 times")
        self.assertRegex(line(two, [did(9, link=0.1), did(9, link=0.5), did(9, link=0.1)]), "No rank")  # exchange is short
        self.assertRegex(line(two, [did(4, data=5), did(4, data=5), did(8)]), "Input: rank 0 .* Input: rank 1")
        self.assertRegex(line(watch.Blame(even, ["x"] * 3), [did(20), did(20), did(30)], 20), "compute 100%.* Compute: rank 2")
        hours = watch.Blame(even, ["x"] * 3)
        for k in range(4):
            said = line(hours, [did(1000), did(1000), did(1400)], 1500)
        self.assertRegex(said, "Machine: rank 2 .c. takes 1.4 times as long as is normal for a sample, for 1.7 hours: drain")
        self.assertNotRegex(line(hours, [did(1000)] * 3, 1500), "Machine")
        self.assertRegex(line(hours, [did(1000), did(1000), did(1400)], 1500), "Compute")

    def test_refused(self):
        with self.assertRaisesRegex(Usage, "torchrun"):
            evenkeel.watch(mlp())


if __name__ == "__main__":
    unittest.main()
