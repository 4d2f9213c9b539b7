"""Handwritten digits on ranks of unequal speed, tuned as the job runs, with micro-steps, memory that may run out, and resume:

    evenkeel serve -- torchrun --nproc_per_node 2 examples/pytorch/train.py --epochs 3

Any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT will do. Interrupted and started again, with any number of ranks, it goes on after
the newest checkpoint. --slow makes every second rank wait, as if its device were slower.
"""

import argparse
import csv
import gzip
import os
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "train", "data", "digits", "digits.csv.gz")


def digits():
    with gzip.open(DIGITS, "rt") as f:
        rows = torch.tensor([[int(v) for v in row] for row in csv.reader(f)], dtype=torch.float32)
    return rows[:, :64] / 16, rows[:, 64].long()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--global-batch", type=int, default=128)
    p.add_argument("--micro-batch", type=int, default=0)
    p.add_argument("--deadline", default="")
    p.add_argument("--slow", type=float, default=0.0, help="seconds a sample")
    p.add_argument("--checkpoint", default="digits.pt")
    p.add_argument("--stop-after", type=int, default=0, help="rounds; as if it were interrupted")
    a = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    x, y = digits()
    data, test = torch.utils.data.TensorDataset(x[:1500], y[:1500]), (x[1500:], y[1500:])
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    ddp = DDP(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)

    tuner = evenkeel.Tuner(ddp)
    parts = {"net": net, "optimizer": optimizer, "tuner": tuner}
    epoch = rounds = 0
    if os.path.exists(a.checkpoint):
        saved = torch.load(a.checkpoint)
        epoch, rounds = saved["epoch"], saved["rounds"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        if rank == 0:
            print(f"goes on in epoch {epoch}, after {rounds} rounds")
    batches = tuner.batches(len(data), a.global_batch, micro_batch=a.micro_batch, deadline=a.deadline)
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)

    while epoch < a.epochs:
        for inputs, labels in tuner.steps(loader):
            with tuner.halving():
                time.sleep(a.slow * (rank % 2) * len(inputs))
                cross_entropy(ddp(inputs), labels).backward()
            if tuner.synchronised:
                optimizer.step()
                optimizer.zero_grad()
                rounds += 1
                if rounds == a.stop_after:
                    break
        stopped = rounds == a.stop_after
        epoch += not stopped
        if rank == 0:
            state = {"epoch": epoch, "rounds": rounds, **{name: part.state_dict() for name, part in parts.items()}}
            torch.save(state, a.checkpoint + ".new")
            os.replace(a.checkpoint + ".new", a.checkpoint)
            with torch.no_grad():
                print(f"epoch {epoch}, {rounds} rounds: {(net(test[0]).argmax(1) == test[1]).float().mean():.0%} of the test set right", flush=True)
        if stopped:
            break
    dist.barrier()


if __name__ == "__main__":
    main()
