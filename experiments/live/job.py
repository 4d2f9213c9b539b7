"""A small job under DistributedDataParallel on emulated devices, with the sizes of one policy; run.py starts it. Rank 0 writes what happened to --out.

A rank SLEEPS, in the backward pass of its first layer, until its emulated device would be done with the micro-step: (alpha + beta samples) times its pace
and noise. Extra work on two cores would be no mixed cluster. With --virtual nobody sleeps: each rank's clock is that of its emulated device, and
a round ends for all when the last is done, plus --network. Hooks, sampler, service and all-reduce are the same; other work on the machine changes nothing.
With --quota a rank computes for as long as it takes, under a cgroup's quota of processor time: that share of a processor, over its pace (root; other work on the machine counts).
"""

import argparse
import atexit
import csv
import gzip
import json
import os
import random
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

import torch
import torch.distributed as dist

import evenkeel
import policies
from evenkeel import client

SPREAD = 24  # times that the digits are in the data of one epoch


class Digits(torch.utils.data.Dataset):
    def __init__(self, rows, repeat):
        self.x = torch.tensor([r[:64] for r in rows], dtype=torch.float32) / 16
        self.y = torch.tensor([r[64] for r in rows])
        self.repeat = repeat

    def __len__(self):
        return len(self.y) * self.repeat

    def __getitem__(self, i):
        return i % len(self.y)

    def batch(self, places):
        """Loading is to take no time beside the emulated devices."""
        return self.x[places], self.y[places]


def digits():
    with gzip.open(os.path.join(ROOT, "train", "data", "digits", "digits.csv.gz"), "rt") as f:
        rows = [[int(v) for v in r] for r in csv.reader(f) if len(r) == 65]
    return rows[:1500], rows[1500:]


class Device:
    """The emulated device of this rank: when it is done with a micro-step."""

    def __init__(self, a, rank):
        self.a, self.rank, self.number = a, rank, -1
        self.next()

    def next(self):
        """The next round."""
        a, self.number = self.a, self.number + 1
        rng = random.Random(f"{a.seed} {self.rank} {self.number}")
        self.factor = rng.lognormvariate(-(a.noise**2) / 2, a.noise) if a.noise else 1.0
        paces = list(a.paces)
        if a.swap and self.number >= a.swap:
            paces[0], paces[-1] = paces[-1], paces[0]
        self.factor *= paces[self.rank]
        for back in range(4):  # a burst that began in one of the rounds before and still lasts
            begun = random.Random(f"burst {a.seed} {self.rank} {self.number - back}")
            if begun.random() < a.bursts and begun.randint(1, 4) > back:
                self.factor *= 5
                break

    def seconds(self, samples):
        return (self.a.alpha + self.a.beta * samples) * self.factor


class Clock:
    """Of the emulated device."""

    now = 0.0

    def __call__(self):
        return self.now

    def pass_until(self, until):
        self.now = max(self.now, until)


class Wall:
    def __call__(self):
        return time.perf_counter()

    def pass_until(self, until):
        time.sleep(max(0.0, until - time.perf_counter()))


def limit(share):
    """Puts this process into a cgroup that gets a share of one processor, in periods of 10 ms; version 1 or 2."""
    one = os.path.isdir("/sys/fs/cgroup/cpu")
    root = "/sys/fs/cgroup/cpu" if one else "/sys/fs/cgroup"
    own = os.path.join(root, f"evenkeel-live-{os.getpid()}")
    os.mkdir(own)

    def put(path, value):
        with open(path, "w") as f:
            f.write(str(value))

    def leave():
        put(os.path.join(root, "cgroup.procs"), os.getpid())
        os.rmdir(own)

    atexit.register(leave)
    period, quota = 10_000, max(round(10_000 * share), 1000)  # the least that the kernel takes
    if one:
        put(os.path.join(own, "cpu.cfs_period_us"), period)
        put(os.path.join(own, "cpu.cfs_quota_us"), quota)
    else:
        put(os.path.join(own, "cpu.max"), f"{quota} {period}")
    put(os.path.join(own, "cgroup.procs"), os.getpid())


class Working(torch.nn.Module):
    """Much to compute, little to send: one layer, many times."""

    TIMES = 24

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 256), torch.nn.Linear(256, 10)

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.TIMES):
            x = x + torch.relu(self.again(x)) / self.TIMES
        return self.last(x)


class Emulated(torch.nn.Module):
    def __init__(self, device, clock):
        super().__init__()
        self.first, self.rest = torch.nn.Linear(64, 64), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.device, self.clock = device, clock

    def forward(self, x):
        until = self.clock() + self.device.seconds(len(x))
        h = self.first(x)

        def sleep(g):
            self.clock.pass_until(until)
            return g

        if self.training:
            h.register_hook(sleep)
        return self.rest(h)


def together(tuner, clock, network):
    """A round ends on all clocks when the last rank is done, and the service has decided before the next begins."""
    exchange = tuner._exchange
    finish = exchange.finish

    def then(r):
        now = torch.tensor([clock.now], dtype=torch.float64)
        dist.all_reduce(now, dist.ReduceOp.MAX)
        clock.now = float(now) + network
        finish(r)
        counts, began = getattr(exchange._client, "counts", {}), time.perf_counter()
        while counts.get("decisions", 0) < counts.get("offered", 0) and time.perf_counter() < began + 5:
            time.sleep(0.0005)

    exchange.finish = then


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--policy", default="served")  # served: that of EVENKEEL_URL; none: without a service
    p.add_argument("--paces", type=float, nargs="+", default=[1, 1.5, 2, 4])
    p.add_argument("--alpha", type=float, default=0.004)
    p.add_argument("--beta", type=float, default=0.0006)
    p.add_argument("--noise", type=float, default=0.0)
    p.add_argument("--bursts", type=float, default=0.0)  # share of rounds in which one begins: 5 times as slow, for 1 to 4 rounds
    p.add_argument("--swap", type=int, default=0)  # the round in which first and last rank swap paces
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=1)  # micro-steps of a share
    p.add_argument("--deadline", default="")
    p.add_argument("--shares", type=int, nargs="+")
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--samples", type=int, default=0)  # end after so many instead
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rate", type=float, default=0.2)
    p.add_argument("--virtual", action="store_true")
    p.add_argument("--network", type=float, default=0.005)
    p.add_argument("--quota", type=float, default=0.0)
    p.add_argument("--processor", action="store_true")  # the tuner's clock is this thread's processor time
    p.add_argument("--out", required=True)
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(a.seed)
    train, test = digits()
    data, device = Digits(train, SPREAD), Device(a, rank)
    clock = Clock() if a.virtual else Wall()
    net = Working() if a.quota else Emulated(device, clock)
    if a.quota:
        limit(a.quota / a.paces[rank])
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=a.rate)
    log = []
    policies.install(a, log, clock)

    tuner = evenkeel.Tuner(ddp, time.thread_time if a.processor else clock)
    if a.virtual:
        together(tuner, clock, a.network)
    shares = a.shares or [a.batch // ranks] * ranks
    micro = -(-shares[rank] // a.steps) if a.steps > 1 else 0
    batches = tuner.batches(len(data), a.batch, micro_batch=micro, deadline=a.deadline, seed=a.seed)
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches, collate_fn=data.batch)
    times, own, over = [clock()], [], False
    while not over:
        for x, y in tuner.steps(loader):
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
            if tuner.synchronised:
                optimizer.step()
                optimizer.zero_grad()
                device.next()
                times.append(clock())
                own.append(tuner.own_seconds)
                over = len(times) > a.rounds
                if a.samples:  # all ranks know how many there were
                    over = len(data) * (batches.epoch + 1) - batches.left >= a.samples
                if over:
                    break
    tuner.close()
    net.eval()
    with torch.no_grad():
        of_test = Digits(test, 1)
        out = net(of_test.x)
        loss, right = float(torch.nn.functional.cross_entropy(out, of_test.y)), float((out.argmax(1) == of_test.y).float().mean())
    if rank == 0:
        c = tuner._exchange._client
        result = {
            "rounds": log, "loss": loss, "accuracy": right, "own": own, "times": times,
            "counts": dict(getattr(c, "counts", {})), "problem": getattr(c, "problem", ""),
        }  # fmt: skip
        with open(a.out, "w") as f:
            json.dump(result, f)
    dist.barrier()


if __name__ == "__main__":
    main()
