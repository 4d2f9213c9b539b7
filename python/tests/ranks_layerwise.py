"""LayerWise under DistributedDataParallel against the same training without it: ranks_layerwise.py RANKS ...

For each number of ranks a line of JSON: faults, and how many parameters were updated before the last gradient was there.
"""

import contextlib
import copy
import json
import os
import sys
import tempfile
import threading

from ranks import join, spawn

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from evenkeel import checkpoint
from evenkeel.checkpoint import Job, LayerWise
from test_layerwise import backward


def build(kind, view, autocast=False):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 2048  # several buckets, of a small model
    torch.manual_seed(3)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(8, 50), torch.nn.BatchNorm1d(50), torch.nn.Tanh(), torch.nn.Linear(50, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(8, 1)), bucket_cap_mb=0.004, gradient_as_bucket_view=view)
    inner = model.module
    groups = [{"params": [p for n, p in inner.named_parameters() if "weight" in n], "weight_decay": 0.05}, {"params": [p for n, p in inner.named_parameters() if "weight" not in n], "lr": 0.02}]
    optimizer = {"AdamW": lambda: torch.optim.AdamW(groups, 0.01), "SGD": lambda: torch.optim.SGD(groups, 0.01, momentum=0.9), "Rprop": lambda: torch.optim.Rprop([{"params": g["params"]} for g in groups])}[kind]()
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)}


def state(o):
    out = []
    for p in o["model"].parameters():
        out += [p.detach().clone(), *(v.clone() for _, v in sorted(o["optimizer"].state[p].items()) if torch.is_tensor(v))]
    return out


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def pieces(o, rank, step, count, last, mixed):
    """The gradients of a step in several backward passes; last is called around the last of them."""
    def one(i):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            backward(o["model"], 1000 * step + 10 * i + rank)

    for i in range(count - 1):
        with o["model"].no_sync():
            one(i)
    with last:
        one(count - 1)


class Entered:
    """Enters a context that ends later."""

    def __init__(self, within, context):
        self.within, self.context = within, context

    def __enter__(self):
        self.within.enter_context(self.context)

    def __exit__(self, *_):
        pass


def trial(rank, folder):
    ranks = dist.get_world_size()
    faults, overlapped = [], 0
    for kind, view, count, mixed in (("AdamW", False, 1, False), ("SGD", True, 3, False), ("Rprop", False, 2, False), ("AdamW", True, 1, True)):
        what = f"{ranks} ranks, {kind}, bucket view {view}, {count} passes, mixed {mixed}"
        plain = build(kind, view)
        wants = []
        for step in range(8):
            if step == 5:  # DDP rebuilds its buckets after its first step: a restart of plain training has other bits from three ranks on
                new = build(kind, view)
                new["model"].load_state_dict(plain["model"].state_dict())
                new["optimizer"].load_state_dict(copy.deepcopy(plain["optimizer"].state_dict()))
                new["scheduler"].load_state_dict(plain["scheduler"].state_dict())
                plain = new
            plain["optimizer"].zero_grad(set_to_none=True)
            pieces(plain, rank, step, count, contextlib.nullcontext(), mixed)
            plain["optimizer"].step()
            plain["scheduler"].step()
            wants.append(state(plain))
        path = os.path.join(folder, kind + str(view) + str(mixed))
        for part in (range(5), range(5, 8)):  # the second is a restart
            o = build(kind, view)
            layers = LayerWise(o["model"], o["optimizer"])
            with Job(path) as saved:
                got = saved.restore(**o)
                if (got.step if got else -1) != part[0] - 1:
                    faults.append(f"{what}: restored {got} before step {part[0]}")
                for step in part:
                    first, updated = next(iter(layers._names)), threading.Event()
                    finished = layers._finished

                    def watch(params):
                        nonlocal overlapped
                        finished(params)
                        if first.grad is None and count == 1:
                            overlapped += 1
                            updated.set()

                    layers._finished = watch
                    if step == 2 and count == 1:  # the backward pass stands still in the second layer until one above is updated
                        o["model"].module[3].register_full_backward_hook(lambda *_: (updated.wait(3), None)[1])
                    with contextlib.ExitStack() as within:
                        pieces(o, rank, step, count, Entered(within, layers.step(saved, step)), mixed)
                        o["scheduler"].step()
                    layers._finished = finished
                    if not same(state(o), wants[step]):
                        faults.append(f"{what}: step {step} is not what DDP gives")
                        break
        if count > 1:
            continue
        seen = [None] * ranks
        dist.all_gather_object(seen, [t.sum().item() for t in state(o)])
        if any(s != seen[0] for s in seen):
            faults.append(f"{what}: the ranks differ")
    faults += refused()
    if rank == 0:
        with open(os.path.join(folder, "said"), "w") as f:
            json.dump({"ranks": ranks, "faults": faults, "overlapped": overlapped}, f)


def refused():
    out = []

    def must(part, call):
        try:
            call()
            out.append(f"not refused: {part}")
        except checkpoint.Usage as e:
            if part not in str(e):
                out.append(f"{part!r} is not in {e}")

    m = torch.nn.Linear(8, 1)
    o = torch.optim.SGD(m.parameters(), 0.1)
    must("pass the wrapped model", lambda: LayerWise(m, o))
    must("find_unused_parameters", lambda: LayerWise(DistributedDataParallel(m, find_unused_parameters=True), o))
    d = DistributedDataParallel(m)
    d.register_comm_hook(None, lambda state, bucket: None)
    must("already has a comm hook", lambda: LayerWise(d, o))
    d = DistributedDataParallel(m)
    layers = LayerWise(d, o)

    def twice():
        with layers.step():
            backward(d, 1)
            backward(d, 2)

    must("second gradient", twice)
    for view in (False, True):
        d = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Linear(20, 1)), gradient_as_bucket_view=view, bucket_cap_mb=0.0005)
        layers = LayerWise(d, torch.optim.SGD(d.parameters(), 0.1))

        def clipped():
            with layers.step():  # noqa: B023
                backward(d, 1)  # noqa: B023
                clip_grad_norm_(d.parameters(), 1e-3)  # noqa: B023

        must("was changed after its update", clipped)
    return out


if __name__ == "__main__":
    for n in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            codes = join(spawn(int(n), trial, folder), 120)
            if any(codes):
                print(json.dumps({"ranks": int(n), "faults": [f"exit codes {codes}"], "overlapped": 0}))
            else:
                with open(os.path.join(folder, "said")) as f:
                    print(f.read(), flush=True)
