"""What evenkeel.watch costs a loop: milliseconds of a processor's time for a step with and without it, in turn; the least of 20 blocks of 40 steps."""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel
import processes

UNITS, WIDTH, BATCH = 24, 128, 64


def fsdp2(net):
    for layer in net:
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    return fully_shard(net, mesh=init_device_mesh("cpu", (1,)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{processes.free_port()}", rank=0, world_size=1)
    data = [torch.randn(BATCH, WIDTH) for _ in range(40)]
    for wrap in (DDP, fsdp2):
        model = wrap(nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(UNITS)]))
        optimizer, least = torch.optim.SGD(model.parameters(), lr=0.01), {}
        for _ in range(20):
            for watched in (False, True):
                loader = evenkeel.watch(model, data, every=10, say=lambda _: None) if watched else data
                began = time.process_time()
                for x in loader:
                    model(x).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                least[watched] = min(least.get(watched, 1e9), (time.process_time() - began) / len(data))
                if watched:
                    loader.close()
        print(f"{wrap.__name__}: {1e3 * least[False]:.2f} ms, watched {1e3 * least[True]:.2f} ms")
