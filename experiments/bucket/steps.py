"""Steps of a DDP job of three ranks, one of them twice as fast: evenkeel.bucket's loader beside a loader that shuffles and fills batches up to a
limit of padded tokens. Real loader, workers, collation and all-reduce; a rank's compute is a sleep as long as its emulated device would take.

    EVENKEEL=evenkeel /usr/bin/python3 experiments/bucket/steps.py [--runs 3]

What a plan predicts is its own figure (plan.json) for it, and for the other loader the same cost of its batches."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests"), HERE]

import online  # noqa: E402  setting A's cost
import processes  # noqa: E402
from evenkeel.bucket import Loader  # noqa: E402

SPEEDS, SAMPLES, QUICKER, WORDS = (1, 1, 2), 6_000, 4, 1000
EVENKEEL = os.environ.get("EVENKEEL", "evenkeel")


def seconds(length, batch, speed):
    return online.seconds(length, batch) / QUICKER / speed


class Texts(torch.utils.data.Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.from_numpy(numpy.random.RandomState(i).randint(1, WORDS, self.lengths[i]))


def collate(texts):
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)


class Bag(torch.nn.Module):
    """Next to nothing to compute, so that the sleep is the device's time: the mean embedding of the first tokens."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.EmbeddingBag(WORDS, 16), torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.out(self.embed(x[:, :8]))


def token_batches(lengths, seed, most):
    """Samples in random order, while the padded batch has at most so many tokens and fits into memory."""
    order, batches, longest = numpy.random.RandomState(seed).permutation(len(lengths)), [[]], 0
    for i in map(int, order):
        longest = max(longest, lengths[i])
        size = len(batches[-1]) + 1
        if batches[-1] and (longest * size > most or size > online.cap(longest)):
            batches.append([])
            longest = lengths[i]
        batches[-1].append(i)
    return batches


def dealt(batches, ranks):
    """As many for each rank, as DistributedSampler does: the last step is filled up with batches from the front."""
    return batches + batches[: -len(batches) % ranks]


def predicted(lengths, batches):
    steps = zip(*(batches[r :: len(SPEEDS)] for r in range(len(SPEEDS))))
    return sum(max(seconds(max(lengths[i] for i in b), len(b), v) for b, v in zip(step, SPEEDS)) for step in steps)


def child(rank, port, lengths, plan, most, workers, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(SPEEDS))
    ddp = torch.nn.parallel.DistributedDataParallel(Bag())
    data = Texts(lengths)
    found = {}

    def step(x, n, since):
        loss = ddp(x).square().mean()
        time.sleep(max(0.0, since + (seconds(x.shape[1], n, SPEEDS[rank]) if n else 0) - time.perf_counter()))
        loss.backward()

    ours = Loader(data, lengths, plan, cache=os.path.dirname(plan), collate_fn=collate, num_workers=workers)
    dist.barrier()
    begun = since = time.perf_counter()
    for batch in ours:
        with batch.sync(ddp):
            step(batch.data, 0 if batch.idle else len(batch.data), since)
        since = time.perf_counter()
    found["evenkeel"] = time.perf_counter() - begun
    loader = torch.utils.data.DataLoader(data, batch_sampler=dealt(token_batches(lengths, 1, most), len(SPEEDS))[rank :: len(SPEEDS)], collate_fn=collate, num_workers=workers)
    dist.barrier()
    begun = since = time.perf_counter()
    for x in loader:
        step(x, len(x), since)
        since = time.perf_counter()
    found["tokens"] = time.perf_counter() - begun
    if rank == 0:
        with open(out, "w") as f:
            json.dump(found, f)


class Check:
    """What processes.run asks of a test."""

    def assertEqual(self, got, want):
        if got != want:
            raise SystemExit(f"{got}, want {want}")


def trials(longest):
    """A table as `evenkeel bucket profile` writes it."""
    for length in sorted({round(longest ** (k / 15)) for k in range(1, 16)} | {longest}):
        for batch in sorted({max(1, online.cap(length) >> k) for k in range(8)}):
            yield {"length": length, "batch": batch, "seconds": online.seconds(length, batch), "peak_bytes": round(1000 * batch * length * (1 + length / online.BEND))}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3)
    a = p.parse_args()
    lengths = [int(x) for x in online.lognormal(SAMPLES, numpy.random.default_rng(1))]
    budgets = (2048, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152)
    most = min(budgets, key=lambda b: predicted(lengths, dealt(token_batches(lengths, 1, b), len(SPEEDS))))
    other = predicted(lengths, dealt(token_batches(lengths, 1, most), len(SPEEDS)))
    with tempfile.TemporaryDirectory() as d:
        at = lambda name: os.path.join(d, name)  # noqa: E731
        with open(at("lengths.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in lengths)
        with open(at("table.csv"), "w") as f:
            f.write("length,batch,seconds,peak_bytes\n")
            f.writelines(f"{c['length']},{c['batch']},{c['seconds'] / QUICKER},{c['peak_bytes']}\n" for c in trials(max(lengths)))
        subprocess.run([EVENKEEL, "bucket", "plan", "--lengths", at("lengths.txt"), "--table", at("table.csv"), "--memory", str(1000 * online.MEMORY), "--speeds", ",".join(map(str, SPEEDS)), "--out", at("plan.json")], check=True, stdout=subprocess.DEVNULL)
        with open(at("plan.json")) as f:
            own = json.load(f)["epoch_seconds"]
        print(f"{SAMPLES} lognormal lengths, speeds {SPEEDS}; the best of {len(budgets)} limits: {most} tokens\n")
        print("| workers | evenkeel s: predicted | measured | shuffled, up to a limit of tokens, s: predicted | measured | times quicker: predicted | measured |\n|---|---|---|---|---|---|---|")
        for workers in (0, 2):
            runs = []
            for _ in range(a.runs):
                processes.run(Check(), len(SPEEDS), lambda r, port: child(r, port, lengths, at("plan.json"), most, workers, at("out.json")))
                with open(at("out.json")) as f:
                    runs.append(json.load(f))
            mine, its = ([r[k] for r in runs] for k in ("evenkeel", "tokens"))
            ratio = statistics.median(t / m for m, t in zip(mine, its))
            print(f"| {workers} | {own:.2f} | {statistics.median(mine):.2f} | {other:.2f} | {statistics.median(its):.2f} | {other / own:.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    random.seed(1)
    main()
