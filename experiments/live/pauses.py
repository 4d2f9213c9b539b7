"""What a save of one rank costs four ranks under gloo when it is announced: seconds of the rounds that it delays, beside those of other rounds and of the
same rounds unannounced. A sample takes 5 ms and a round has 160; rank 0 saves after every fourth round, for the first argument's seconds."""

import os
import statistics
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]

import torch

import processes
import test_tuner

ROUNDS, EVERY, FIRST = 80, 4, 12


def job(rank, port, save, announced, path):
    job = test_tuner.Job(rank, 4, port, net=torch.nn.Linear(8, 3).double(), local=True)
    job.data = torch.utils.data.TensorDataset(torch.randn(1600, 8).double(), torch.zeros(1600, dtype=torch.int64), torch.arange(1600))
    loader = torch.utils.data.DataLoader(job.data, batch_sampler=job.tuner.batches(1600, global_batch=160))
    took, began = [], time.perf_counter()
    while len(took) < ROUNDS:
        for x, y, _ in job.tuner.steps(loader):
            if rank == 0 and announced and len(took) % EVERY == 0:
                job.tuner.expect("save", after=EVERY)
            time.sleep(0.005 * len(x))
            test_tuner.cross_entropy(job.ddp(x), y).backward()
            if job.tuner.synchronised:
                job.optimizer.step()
                job.optimizer.zero_grad()
                took.append(time.perf_counter() - began)
                began = time.perf_counter()
                if rank == 0 and len(took) % EVERY == 1:
                    time.sleep(save)
    if rank == 1:  # the saving rank's clock has no wait in it
        with open(path, "w", encoding="utf-8") as f:
            f.write(" ".join(map(str, took)))


if __name__ == "__main__":
    save, path = float(sys.argv[1]), os.path.join(tempfile.mkdtemp(), "rounds")
    rows = {}
    for announced in (False, True) * 3:
        processes.run(unittest.TestCase(), 4, lambda rank, port, announced=announced: job(rank, port, save, announced, path))
        took = list(map(float, open(path, encoding="utf-8").read().split()))
        for k, t in enumerate(took[FIRST:], FIRST):
            rows.setdefault((announced, k % EVERY == 1), []).append(t)
    plain, cost, told = (statistics.mean(rows[k]) for k in ((False, False), (False, True), (True, True)))
    ideal = plain + save / 4
    print(f"a round takes {plain:.4f} s, after a save {cost:.4f} s, announced {told:.4f} s; divided by an oracle {ideal:.4f} s: {(cost - told) / (cost - ideal):.2f} of what can be saved")
