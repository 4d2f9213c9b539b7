"""Samples per second of whole jobs: equal shares, ten lines of proportional control by hand, the tuner without and with its service, and the best sizes
in hindsight. Four gloo ranks emulate devices of paces 1, 1.5, 2 and 4 by sleeping; in the middle of the job the first and the last change places.
Each rank's rounds have lognormal noise. Contenders of one seed have the same noise, and run one after the other.

    go build -o /tmp/evenkeel ./cmd/evenkeel
    EVENKEEL=/tmp/evenkeel python experiments/live/control.py [--seeds 5] [--rounds 90] [--noise 0 0.1 0.3] [--json]
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel
import processes
from faults import service

PACES = [1.0, 1.5, 2.0, 4.0]
BATCH, SECONDS = 128, 0.001  # of a global batch; of a sample at pace 1
CONTENDERS = ("equal", "control", "local", "service", "deadline", "best")


class Device:
    """Emulates one rank's device by sleeping."""

    def __init__(self, rank, job):
        self.rank, self.job, self.round = rank, job, 0

    def pace(self, rank):
        return PACES[::-1][rank] if rank in (0, 3) and self.round >= self.job.rounds // 2 else PACES[rank]

    def compute(self, samples):
        noise = random.Random(f"{self.job.seed} {self.rank} {self.round}").lognormvariate(-self.job.noise**2 / 2, self.job.noise)
        time.sleep(SECONDS * self.pace(self.rank) * noise * samples)


def start():
    dist.barrier()
    return time.perf_counter()


def by_hand(job, device, ddp, optimizer, x, y):
    """Plain DDP; when it began. job.contender: equal, control or best."""
    rank, started = device.rank, start()
    shares = [BATCH // 4] * 4
    for device.round in range(job.rounds):
        if job.contender == "best":
            speeds = [1 / device.pace(r) for r in range(4)]
            shares = [round(BATCH * v / sum(speeds)) for v in speeds]
            shares[0] += BATCH - sum(shares)
        at = device.round * BATCH % len(x) + sum(shares[:rank])
        own = slice(at, at + shares[rank])
        began = time.perf_counter()
        device.compute(shares[rank])
        loss = cross_entropy(ddp(x[own]), y[own]) * shares[rank] * 4 / BATCH
        took = time.perf_counter() - began
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if job.contender == "control":
            speeds = [torch.zeros(()) for _ in range(4)]
            dist.all_gather(speeds, torch.tensor(shares[rank] / took))
            whole = float(sum(speeds))
            shares = [max(1, round(BATCH * float(v) / whole)) for v in speeds]
            shares[shares.index(max(shares))] += BATCH - sum(shares)
    return started


def tuned(job, device, ddp, optimizer, x, y):
    """Under the tuner; when it began, after it had registered."""
    tuner = evenkeel.Tuner(ddp)
    deadline = {"micro_batch": 8, "deadline": "auto"} if job.contender == "deadline" else {}
    batches = tuner.batches(len(x), global_batch=BATCH, **deadline)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_sampler=batches)
    started = start()
    for inputs, labels in tuner.steps(loader):
        checking = not batches.round  # the gradient check computes, too; a rank without a share does not
        device.compute(len(inputs) if tuner.counts or checking else 0)
        cross_entropy(ddp(inputs), labels).backward()
        if tuner.synchronised:
            optimizer.step()
            optimizer.zero_grad()
            device.round += 1
    return started


def child(job, rank, port, results):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=4)
    torch.manual_seed(1)
    x = torch.randn(job.rounds * BATCH, 64)
    y = (x @ torch.randn(64, 10)).argmax(1)
    ddp = DDP(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    started = (by_hand if job.contender in ("equal", "control", "best") else tuned)(job, Device(rank, job), ddp, optimizer, x, y)
    dist.barrier()
    if rank == 0:
        results.put(len(x) / (time.perf_counter() - started))
    dist.destroy_process_group()


def run(job, url):
    """Samples per second of one job."""
    os.environ.pop("EVENKEEL_URL", None)
    if job.contender in ("service", "deadline"):
        os.environ |= {"EVENKEEL_URL": url, "EVENKEEL_JOB": f"{job.contender}-{job.noise}-{job.seed}"}
    context, port = multiprocessing.get_context("fork"), processes.free_port()
    results = context.Queue()
    ranks = [context.Process(target=child, args=(job, r, port, results)) for r in range(4)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    if any(p.exitcode for p in ranks):
        sys.exit(f"{job.contender}: a rank failed")
    return results.get()


def interval(ratios):
    """The geometric mean, and half of its 95% interval as a share of it."""
    logs = [math.log(r) for r in ratios]
    if len(logs) < 2:
        return ratios[0], math.nan
    t = {2: 12.7, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}.get(len(logs), 2.0)
    return math.exp(statistics.fmean(logs)), t * statistics.stdev(logs) / len(logs) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=90)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--json", action="store_true")
    job = parser.parse_args()
    began, done, rows = time.monotonic(), 0, []
    if not job.json:
        print(f"torch {torch.__version__}, {job.rounds} rounds of {BATCH} samples, {job.seeds} seeds; over control: geometric mean and 95% interval of pairs")
    with service() if {"service", "deadline"} & set(job.only) else contextlib.nullcontext() as url:
        noises = job.noise
        for job.noise in noises:
            found = {c: [] for c in job.only}
            for job.seed in range(job.seeds):
                for job.contender in job.only:
                    found[job.contender].append(run(job, url))
                done += 1
                left = (time.monotonic() - began) / done * (job.seeds * len(noises) - done)
                print(f"noise {job.noise}, seed {job.seed + 1} of {job.seeds}; at most {left:.0f} s left  ", end="\r", file=sys.stderr, flush=True)
            base = found.get("control") or found[job.only[0]]
            for c, speeds in found.items():
                mean, half = interval([s / b for s, b in zip(speeds, base)])
                rows.append({"noise": job.noise, "contender": c, "samples_per_second": statistics.fmean(speeds), "over_control": mean, "interval": half})
                if not job.json:
                    print(f"noise {job.noise:.0%}  {c:9s} {rows[-1]['samples_per_second']:6.0f} samples/s  {mean:.3f} ±{half:.3f}", flush=True)
    print(file=sys.stderr)
    if job.json:
        print(json.dumps({"torch": torch.__version__, "seeds": job.seeds, "rounds": job.rounds, "rows": rows}))


if __name__ == "__main__":
    main()
