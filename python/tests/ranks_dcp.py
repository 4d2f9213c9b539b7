"""Jobs of several gloo ranks that save with torch.distributed.checkpoint into Evenkeel's files. Run as

    ranks_dcp.py meshes                    saves on each mesh, and loads on every other
    ranks_dcp.py kill TRIALS RANKS SEED    SIGKILLs a random rank or all at random moments, and judges every load

It prints a summary as JSON.
"""

import json
import logging
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch
import torch._dynamo  # distributed tensors import it when they are first used; it takes long, and is done before ranks are forked
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import join, mend, spawn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import evenkeel.dcp

MESHES = {"one": [0], "two": [0, 1], "four": [0, 1, 2, 3], "hsdp": [[0, 1], [2, 3]], "tensor": [[0, 1], [2, 3]]}


def build(kind, mesh):
    """A model and its optimizer, after two steps."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(33, 270), torch.nn.ReLU(), torch.nn.Linear(270, 65), torch.nn.LayerNorm(65), torch.nn.Linear(65, 3))
    if kind == "tensor":
        parallelize_module(model, mesh["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        mesh = mesh["a"]
    if kind != "one":
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 33)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def state_of(model, optimizer):
    m, o = get_state_dict(model, optimizer)
    return {"model": m, "optimizer": o, "step": 0}


def zeroed(v):
    """The same state, with all tensors zeroed in place."""
    if isinstance(v, dict):
        return {k: zeroed(x) for k, x in v.items()}
    return v.zero_() if torch.is_tensor(v) else v


def full(v):
    if isinstance(v, dict):
        return {k: full(x) for k, x in v.items()}
    return [full(x) for x in v] if isinstance(v, list) else v.full_tensor() if isinstance(v, DTensor) else v


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if torch.is_tensor(a) else a == b


def meshes(rank, folder, log):
    """Each pair of meshes: writes whether what the second loads is what the first had."""
    logging.disable(logging.WARNING)
    made = {k: DeviceMesh("cpu", v, mesh_dim_names=("a", "b")[: torch.tensor(v).dim()]) for k, v in MESHES.items()}
    members = {k: torch.tensor(v).flatten().tolist() for k, v in MESHES.items()}
    groups = {k: dist.new_group(v) for k, v in members.items()}
    jobs = {}
    for kind in MESHES:
        if rank in members[kind]:
            job = jobs[kind] = build(kind, made[kind])
            dcp.save({**state_of(*job), "step": 7}, storage_writer=evenkeel.dcp.Writer(f"{folder}/{kind}"), process_group=groups[kind])
            whole = full(state_of(*job))
            if rank == 0:
                torch.save(whole, f"{folder}/{kind}.pt")
    dist.barrier()
    for of in MESHES:
        want = torch.load(f"{folder}/{of}.pt")
        for on, job in jobs.items():
            with torch.no_grad():
                state = zeroed(state_of(*job))
            dcp.load(state, storage_reader=evenkeel.dcp.Reader(f"{folder}/{of}"), process_group=groups[on])
            good = state["step"] == 7 and same(full(state), {**want, "step": 7})
            with open(log, "a") as f:
                f.write(json.dumps([of, on, rank, good]) + "\n")


def numbers(step, mesh):
    """A state that is a function of the step, on a mesh or on none."""
    shard = (lambda t, how: distribute_tensor(t, mesh, [Replicate()] * (mesh.ndim - 1) + [how])) if mesh else (lambda t, how: t)
    t = torch.arange(300_000, dtype=torch.float64).reshape(3000, 100) + step
    state = {"sharded": shard(t, Shard(0)), "whole": shard(t[:60] * 2, Replicate()), "plain": t[:50] * 3, "small": t[0, :9], "step": step, "tail": "x" * (step % 7)}
    if step >= 12:
        state["late"] = shard(t[:900] * 4, Shard(1))
    return state


def killed(rank, path, log, steps):
    """The job that is killed."""
    logging.disable(logging.WARNING)
    mesh = init_device_mesh("cpu", (2, 2) if dist.get_world_size() == 4 else (dist.get_world_size(),))  # four ranks: shards in two copies
    first = evenkeel.dcp.newest(path)
    if first is not None:
        state = {**zeroed(numbers(first, mesh)), "step": None, "tail": None}
        dcp.load(state, storage_reader=evenkeel.dcp.Reader(path))
    good = first is None or same(full(state), full(numbers(first, mesh)))
    with open(log, "a") as f:
        f.write(json.dumps(["loaded" if good else "wrong", rank, first]) + "\n")
    for step in range((first or 0) + 1, steps + 1):
        state = numbers(step, mesh)
        if step % 3:
            dcp.async_save(state, storage_writer=evenkeel.dcp.Writer(path, step=step)).result()
        else:
            dcp.save(state, storage_writer=evenkeel.dcp.Writer(path, step=step))
        with open(log, "a") as f:
            f.write(json.dumps(["durable", rank, step]) + "\n")


def warm():
    """Imports what distributed tensors import when they are first used, before ranks are forked."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    numbers(0, init_device_mesh("cpu", (2,)))
    dist.destroy_process_group()


def kill(trials, ranks, seed, steps=30):
    """SIGKILLs jobs until there were so many kills. Returns the kills, loads and completed jobs. Raises AssertionError at a fault."""
    warm()
    draw, kills, loads, ended, steps_seen = random.Random(seed), 0, 0, 0, 0
    while kills < trials:
        with tempfile.TemporaryDirectory() as folder:
            path, log, durable = f"{folder}/run.ckpt", f"{folder}/log", 0
            open(log, "w").close()
            while True:
                pids = spawn(ranks, killed, path, log, steps)
                # After some lines of the log, the first of which say what was loaded: amid the first save, a later one, or the making of new files.
                until, left = time.monotonic() + 60, draw.choice((ranks, draw.randrange(2 * ranks), draw.randrange(ranks * steps), draw.randrange(ranks * steps)))
                while open(log).read().count("\n") < left and time.monotonic() < until and not os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    time.sleep(0.002)
                time.sleep(draw.uniform(0, 0.1))
                for pid in draw.choice((pids, [draw.choice(pids)])):
                    os.kill(pid, 9)
                codes = join(pids)
                mend(log)
                said = [json.loads(line) for line in open(log)]
                open(log, "w").close()
                assert not any(what == "wrong" for what, *_ in said), said
                found = {step or 0 for what, _, step in said if what == "loaded"}
                assert len(found) <= 1 and all(durable <= step for step in found), f"loaded {found}, step {durable} was durable"
                durable = max([durable] + [step for what, _, step in said if what == "durable"])
                kills, loads = kills + (-9 in codes), loads + sum(step > 0 for step in found)
                assert set(codes) <= {0, 1, -9, -6} and (-9 in codes or not any(codes)), f"{codes}: nobody was killed, and the job did not go on"
                if durable == steps or kills >= trials:
                    break
            ended, steps_seen = ended + (durable == steps), steps_seen + durable
            if durable:
                step = evenkeel.dcp.newest(path)
                assert durable <= step
                state = zeroed(numbers(step, None))
                dcp.load(state, storage_reader=evenkeel.dcp.Reader(path))
                assert same(state, numbers(step, None)), "one rank loads otherwise"
    return {"kills": kills, "loads": loads, "ended": ended, "durable steps": steps_seen}


if __name__ == "__main__":
    if sys.argv[1] == "kill":
        print(json.dumps(kill(*map(int, sys.argv[2:5]))))
    else:
        with tempfile.TemporaryDirectory() as d:
            print(json.dumps([join(spawn(4, meshes, d, f"{d}/log"), 120), open(f"{d}/log").read()]))
