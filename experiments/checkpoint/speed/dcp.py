"""Saves of torch.distributed.checkpoint into Evenkeel's files against its own FileSystemWriter, in turns.

    dcp.py FOLDER RANKS TRIALS MIB    prints medians; MIB: parameters and moments of AdamW, over all ranks (FSDP2 from two ranks on)

blocked: how long training waits in a step that saves: in async_save, and before optimizer.step() until the tensors are read. step: forward, backward and
optimizer of the step after the save, over those without a save. durable: until the future is done. "kept" is FileSystemWriter with a DefaultStager that is
kept, so that its memory is used again.
"""

import logging
import os
import shutil
import statistics
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "..", "python"), os.path.join(HERE, "..", "..", "..", "python", "tests")]

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import join, spawn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

import evenkeel.dcp


def job(rank, folder, trials, mib):
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    layers = max(1, round(mib / 12))  # 4 MiB of parameters each
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)])
    if dist.get_world_size() > 1:
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    group, number = dist.new_group(), 0
    waited, release = [0.0], evenkeel.dcp._Rank.release

    def timed(self):
        begun = time.perf_counter()
        release(self)
        waited[0] += time.perf_counter() - begun

    evenkeel.dcp._Rank.release = timed

    def step():
        dist.barrier()
        begun = time.perf_counter()
        model(torch.randn(256, 1024)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begun

    def state():
        m, o = get_state_dict(model, optimizer)
        return {"model": m, "optimizer": o}

    def files():
        nonlocal number
        number += 1
        if rank == 0 and number > 2:
            shutil.rmtree(f"{folder}/fs{number - 2}")
        return dcp.FileSystemWriter(f"{folder}/fs{number}")

    kept, ours = DefaultStager(StagingOptions(False, False, False, False)), evenkeel.dcp.Writer(f"{folder}/run.ckpt")
    ways = {
        "none": lambda s: None,
        "FileSystemWriter": lambda s: dcp.async_save(s, storage_writer=files(), process_group=group),
        "kept": lambda s: dcp.async_save(s, storage_writer=files(), process_group=group, async_stager=kept),
        "evenkeel": lambda s: dcp.async_save(s, storage_writer=ours, process_group=group),
        "FileSystemWriter, save": lambda s: dcp.save(s, storage_writer=files(), process_group=group),
        "evenkeel, save": lambda s: dcp.save(s, storage_writer=ours, process_group=group),
    }
    seen = {k: [] for k in ways}
    step()
    for _ in range(trials + 1):  # the first is left out
        for way, begin in ways.items():
            s = state()
            dist.barrier()
            waited[0], begun = 0.0, time.perf_counter()
            future = begin(s)
            blocked, stepped = time.perf_counter() - begun, step()
            if hasattr(future, "result"):
                future.result()
            seen[way].append((blocked + waited[0], stepped, time.perf_counter() - begun if hasattr(future, "result") else blocked))
    loads = {"FileSystemReader": [], "evenkeel": []}
    for _ in range(trials):
        for way, reader in (("FileSystemReader", lambda: dcp.FileSystemReader(f"{folder}/fs{number}")), ("evenkeel", lambda: evenkeel.dcp.Reader(f"{folder}/run.ckpt"))):
            s = state()
            dist.barrier()
            begun = time.perf_counter()
            dcp.load(s, storage_reader=reader(), process_group=group)
            loads[way].append(time.perf_counter() - begun)
    if rank == 0:
        alone = statistics.median(t for _, t, _ in seen["none"][1:])
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, {layers * 12} MiB, {trials} trials, a step without a save {alone * 1e3:.0f} ms")
        for way, took in seen.items():
            b, s, d = ([t[i] * 1e3 for t in took[1:]] for i in range(3))
            print(f"{way:24}blocked {statistics.median(b):7.1f} [{min(b):.1f}, {max(b):.1f}] ms   step {statistics.median(s) / alone / 1e3:5.2f}   durable {statistics.median(d):7.0f} ms   first {took[0][2] * 1e3:7.0f} ms")
        for way, took in loads.items():
            print(f"{way:24}load {statistics.median(took) * 1e3:7.0f} ms, from the page cache")


if __name__ == "__main__":
    folder, ranks, trials, mib = sys.argv[1], *map(int, sys.argv[2:5])
    os.makedirs(folder, exist_ok=True)
    print(join(spawn(ranks, job, folder, trials, mib), 1200))
