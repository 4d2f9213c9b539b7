"""A compiled model sees other sizes every few rounds, and is compiled again at most twice: for sizes that change, and for a single sample."""

import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import evenkeel
import fake_service
import processes

SHARES = [[64, 64], [70, 58], [80, 48], [33, 95], [1, 127], [100, 28], [127, 1], [60, 68]]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def tuned(data):
    ddp = DDP(Net())
    tuner = evenkeel.Tuner(ddp)
    return ddp, tuner, DataLoader(data, batch_sampler=tuner.batches(len(data), global_batch=128))


def equal(data):
    model = fully_shard(Net())
    tuner = evenkeel.EqualSteps(model)
    return model, tuner, tuner.loader(data, global_batch=128)


class TestCompiled(unittest.TestCase):
    def train(self, make):
        data = TensorDataset(torch.randn(64 * 128, 8), torch.randint(0, 3, (64 * 128,)))
        model, tuner, loader = make(data)
        compiled, sizes = torch.compile(model, backend="eager"), set()
        for x, y in tuner.steps(loader):
            sizes.add(len(x))
            (cross_entropy(compiled(x), y) * getattr(tuner, "scale", 1)).backward()
            if tuner.synchronised:
                model.zero_grad()
        self.assertGreaterEqual(len(sizes), len(SHARES))
        self.assertIn(torch._dynamo.utils.counters["stats"]["unique_graphs"], (2, 3))

    def test_graphs(self):
        for make in (tuned, equal):
            with self.subTest(make=make.__name__):
                service = fake_service.Service(lambda reports, _: [SHARES[len(reports) // 6 % len(SHARES)]])
                self.addCleanup(service.stop)

                def child(rank, port):
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
                    self.train(make)
                    dist.barrier()

                with mock.patch.dict(os.environ, {"EVENKEEL_URL": service.url}):
                    processes.run(self, 2, child)


if __name__ == "__main__":
    unittest.main()
