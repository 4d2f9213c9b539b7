"""Faults injected into a job of four gloo ranks that the control service tunes: whether the right cause is named, and what is left of the throughput.

    go build -o evenkeel ./cmd/evenkeel
    EVENKEEL=./evenkeel python3 experiments/live/faults.py [--runs 20] [--kinds input,compute,network,none] [--seed 1] [--json]

Client, loader, all-reduce and service are real; a rank computes by sleeping for 2 ms a sample, with 5% noise, so that a few cores serve four ranks. After 25
rounds one random rank becomes 1.5 to 6 times as slow, for 100 rounds:

    input      its data set sleeps in __getitem__, with and without a worker
    compute    its forward pass sleeps longer, in proportion to its samples
    network    the kernel paces what its sockets send (SO_MAX_PACING_RATE, Linux): rounds of equal shares take so many times as long
    none       nothing happens, and a sample takes a tenth of the time, so that the exchange of gradients is a large part of a round

A cause is right if at the end the service names it for this rank and none for the others; without a fault, if none is named at any time. Throughput is that of
the last 40 rounds (median), over that of the best split by the true paces, with what rounds take beyond their sleep: before the fault or in these rounds,
whichever is less. Over a slow link equal shares are best: there it is over the first 10 rounds of the fault. Split is the time that ranks sleep in the best
split, over that in the split they have, whatever else the machine does. Slower than equal shares are rounds of the fault in which the mean of five is above
1.1 times what equal shares would take. The last case has no emulated compute: a tiny network and 6 ms a sample in the loader of rank 1, with equal shares and
tuned."""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import queue
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import evenkeel

RANKS, BATCH, PACE, NOISE = 4, 128, 0.002, 0.05
BEFORE, AFTER, TAIL = 25, 100, 40  # rounds
KINDS = ("input", "compute", "network", "none")
WIDTH = 500  # of the network, a megabyte of gradients


class Data(torch.utils.data.Dataset):
    def __init__(self, length, slow):
        self.length, self.slow = length, slow

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.slow.value:
            time.sleep(self.slow.value)
        return torch.zeros(WIDTH)


class Net(torch.nn.Module):
    def __init__(self, rank, width):
        super().__init__()
        self.net, self.pace, self.random = torch.nn.Linear(WIDTH, width), 0.0, random.Random(rank)

    def forward(self, x):
        time.sleep(self.pace * len(x) * self.random.lognormvariate(0, NOISE))
        return self.net(x)


def pace_sockets(rate):
    """Limits the bytes a second that each socket of this process sends."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as s:
            if s.type == socket.SOCK_STREAM:
                s.setsockopt(socket.SOL_SOCKET, 47, struct.pack("I", int(rate)))  # SO_MAX_PACING_RATE


def rank_of(case, rank, store, results):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    slow = multiprocessing.Value("d", 0.0)  # seconds a sample, which workers see
    net = Net(case["seed"] * RANKS + rank, case["width"])
    net.pace = case["pace"]
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    tuner = evenkeel.Tuner(ddp, local=False)
    rounds = case["before"] + case["after"]
    data = Data(BATCH * rounds, slow)
    ended, shares, share = [], [], 0
    loader = torch.utils.data.DataLoader(data, batch_sampler=tuner.batches(len(data), global_batch=BATCH), num_workers=case["workers"])

    def fault():
        if case["kind"] == "input":
            slow.value = case["sleep"]
        elif case["kind"] == "compute":
            net.pace *= case["size"]
        elif case["kind"] == "network":
            pace_sockets(case["rate"])

    if case["before"] == 0 and rank == case["rank"]:
        fault()
    dist.barrier()
    ended.append(time.perf_counter())
    for x in tuner.steps(loader):
        if tuner.counts:
            share += len(x)
        ddp(x).square().mean().backward()
        if tuner.synchronised:
            optimizer.step()
            optimizer.zero_grad()
            ended.append(time.perf_counter())
            shares.append(share)
            share = 0
            if len(shares) == case["before"] and rank == case["rank"]:
                fault()
    tuner.close()
    results.put((rank, [b - a for a, b in zip(ended, ended[1:])], shares))


def run(case, meanwhile=lambda: None):
    """Runs a case on all ranks; gives the rounds' seconds on rank 0, and the shares by rank. meanwhile is called again and again."""
    context = multiprocessing.get_context("fork")  # importing torch takes long
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        procs = [context.Process(target=rank_of, args=(case, r, os.path.join(folder, "store"), results)) for r in range(RANKS)]
        for p in procs:
            p.start()
        try:
            out, until = {}, time.monotonic() + 300
            while len(out) < RANKS:
                with contextlib.suppress(queue.Empty):
                    r, *rest = results.get(timeout=0.3)
                    out[r] = rest
                if time.monotonic() > until or any(p.exitcode for p in procs):
                    raise RuntimeError(f"{case}: a rank failed, or all hang")
                meanwhile()
        finally:
            for p in procs:
                p.join(timeout=10)
                p.kill()
    return out[0][0], [out[r][1] for r in range(RANKS)]


@contextlib.contextmanager
def service():
    """A service on this machine; gives its address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    p = subprocess.Popen([os.environ.get("EVENKEEL", "evenkeel"), "serve", "--listen", address], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/readyz"):
                break
            time.sleep(0.1)
        os.environ["EVENKEEL_URL"] = f"http://{address}"
        yield f"http://{address}"
    finally:
        os.environ.pop("EVENKEEL_URL", None)
        p.terminate()
        p.wait()


def causes(url, job):
    """What the service names, by rank."""
    try:
        answer = urllib.request.urlopen(f"{url}/v1/jobs/{job}")
    except urllib.error.HTTPError:  # it has not registered yet
        return []
    with answer:
        return [r.get("cause", "") for r in json.load(answer)["ranks"]]


def case_of(kind, seed, before=BEFORE, after=AFTER):
    rng = random.Random(f"{kind} {seed}")
    size, workers = math.exp(rng.uniform(math.log(1.5), math.log(6))), rng.randrange(2) if kind == "input" else 0
    case = {"kind": kind, "seed": seed, "rank": rng.randrange(RANKS), "size": size, "workers": workers, "pace": PACE, "width": WIDTH, "before": before, "after": after}
    if kind == "input":
        case["sleep"] = PACE * (size if workers else size - 1)  # a worker reads while the rank computes
    if kind == "none":
        case |= {"size": 1, "pace": PACE / 10, "after": 4 * after}
    if kind == "network":  # a ring sends the gradients nearly twice
        case["rate"] = 4 * WIDTH * (WIDTH + 1) * 2 * (RANKS - 1) / RANKS / ((size - 1) * PACE * BATCH / RANKS)
    return case


def slept(pace, size, n):
    """Seconds a round if the slow rank takes n samples and the others equal shares of the rest."""
    return pace * max(math.ceil((BATCH - n) / (RANKS - 1)), size * n)


def judge(case, url):
    job = os.environ["EVENKEEL_JOB"] = f"{case['kind']}-{case['seed']}"
    seen = []
    seconds, shares = run(case, lambda: seen.append(causes(url, job)))
    named, kind, rank, before, size = causes(url, job), case["kind"], case["rank"], case["before"], case["size"]
    if kind == "none":
        named = next((s for s in seen if any(s)), named)
    slow = 1 if kind == "network" else size  # at its work
    last = range(len(seconds) - min(TAIL, case["after"] // 2), len(seconds))
    tail = statistics.median(seconds[k] for k in last)
    paces = [case["pace"] * (slow if r == rank else 1) for r in range(RANKS)]
    beyond = min(
        statistics.median(seconds[5:before]) - case["pace"] * BATCH / RANKS,
        statistics.median(seconds[k] - max(p * s[k] for p, s in zip(paces, shares)) for k in last),
    )
    best = min(slept(case["pace"], slow, n) for n in range(BATCH)) + beyond
    equal = slept(case["pace"], slow, BATCH // RANKS) + beyond
    if kind == "network":
        best = equal = statistics.median(seconds[before + 1 : before + 11])
    split = statistics.median(min(slept(case["pace"], slow, n) for n in range(BATCH)) / max(p * s[k] for p, s in zip(paces, shares)) for k in last)
    late = sum(statistics.mean(seconds[k : k + 5]) > 1.1 * equal for k in range(before, len(seconds) - 4) if slow > 1)
    right = named == [kind if r == rank and kind != "none" else "" for r in range(RANKS)]
    return {**case, "named": named, "right": right, "of_best": best / tail, "of_equal": equal / tail, "split": split, "slower_than_equal": late, "seconds": seconds, "shares": shares}


def starved():
    """Samples a second of the job whose one loader takes 6 ms a sample: with equal shares, tuned."""
    case = {"kind": "input", "seed": 0, "rank": 1, "sleep": 0.006, "workers": 0, "pace": 0.0, "width": 3, "before": 0, "after": 60}
    os.environ["EVENKEEL_JOB"] = "starved"
    tuned, url = run(case)[0], os.environ.pop("EVENKEEL_URL")
    equal = run(case)[0]
    os.environ["EVENKEEL_URL"] = url
    return {"equal": BATCH * len(equal) / sum(equal), "tuned": BATCH * len(tuned) / sum(tuned), "named": causes(url, "starved")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=20, help="of each kind")
    p.add_argument("--kinds", default=",".join(KINDS), help="some of them")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    kinds = a.kinds.split(",")
    if set(kinds) - set(KINDS):
        p.error(f"--kinds {a.kinds}: give some of {','.join(KINDS)}")
    out, began = [], time.monotonic()
    with service() as url:
        for k in range(a.runs):
            for kind in kinds:
                out.append(judge(case_of(kind, a.seed + k), url))
                r, total = out[-1], a.runs * len(kinds)
                left = (time.monotonic() - began) / len(out) * (total - len(out))
                print(f"{len(out)}/{total} {kind}, rank {r['rank']}, {r['size']:.1f} times: {r['named']}, {r['of_best']:.2f} of the best; {left / 60:.0f} min left", file=sys.stderr, flush=True)
        tiny = starved()
    if a.json:
        json.dump({"runs": out, "starved": tiny}, sys.stdout)
        return
    print("fault     runs  right  of the best, median  least  split, median  least  slower than equal, rounds")
    for kind in kinds:
        of = [r for r in out if r["kind"] == kind]
        rates, splits = [r["of_best"] for r in of], [r["split"] for r in of]
        print(
            f"{kind:9} {len(of):4} {sum(r['right'] for r in of):6} {statistics.median(rates):20.2f} {min(rates):6.2f} {statistics.median(splits):14.2f} {min(splits):6.2f} "
            f"{max(r['slower_than_equal'] for r in of):26}"
        )
    for r in out:
        if not r["right"]:
            print(f"{r['kind']}, rank {r['rank']}, {r['size']:.1f} times, seed {r['seed']}: named {r['named']}")
    print(f"tiny network, 6 ms a sample on rank 1: equal shares {tiny['equal']:.0f} samples/s, tuned {tiny['tuned']:.0f}; named {tiny['named']}")


if __name__ == "__main__":
    main()
