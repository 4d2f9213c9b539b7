"""Random plans on processes, for test_plan.py: FIRST COUNT as arguments. Prints for each the plan, how far the first gradients are from the undivided
model's, and the losses beside those of training without a plan."""

import json
import random
import sys
from argparse import Namespace

import torch
import torch._dynamo  # AdamW imports it when it is first used; it takes long, and is done before ranks are forked
import torch.distributed as dist

from evenkeel.plan import Layout, model, processes, reference
from evenkeel.plan.worker import Worker

STEPS = 3


def plan(rng, most=5):
    """A random plan of 2 to 4 layers on up to so many ranks."""
    while True:
        layers = rng.randint(2, 4)
        cuts = sorted(rng.sample(range(1, layers), rng.randint(0, min(2, layers - 1))))
        micro_batch, stages = rng.randint(1, 4), []
        for begin, end in zip([0] + cuts, cuts + [layers]):
            groups, left = [], micro_batch
            while left:
                shares = []
                for _ in range(rng.randint(1, 2)):
                    if left:
                        shares.append(rng.randint(1, left))
                        left -= shares[-1]
                t = rng.choice((1, 1, 2))
                groups.append({"device": "s%dg%d" % (begin, len(groups)), "first": 0, "count": t * len(shares), "tensor": t, "micro_batches": shares})
            strategies = [{"from": i, "to": i + 1, "sharding": rng.choice(("none", "optimizer", "gradients")), **rng.choice(({}, {"checkpoint": False}, {"checkpoint": True}, {"selective": True}))} for i in range(begin, end)]
            stages.append({"from": begin, "to": end, "groups": groups, "strategies": strategies})
        if sum(g["count"] for s in stages for g in s["groups"]) <= most:
            return {"version": 1, "global_batch": micro_batch * rng.randint(1, 4), "micro_batch": micro_batch, "stages": stages}


def undivided(sizes, seed, batches):
    """The losses of training on one process, by PyTorch's own AdamW."""
    layers = sizes.layers()
    values = [{k: v.requires_grad_() for k, v in model.initial(l, i, seed, torch.float64).items()} for i, l in enumerate(layers)]
    optimizer = torch.optim.AdamW([v for p in values for v in p.values()], lr=0.01, weight_decay=0)
    losses = []
    for tokens, targets in batches:
        x = tokens
        for l, p in zip(layers, values):
            x = l.forward(p, x, None)
        loss = torch.nn.functional.cross_entropy(x.reshape(-1, sizes.vocabulary), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def rank(args):
    """One rank of one plan."""
    number, size = processes.given()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    sizes, layout = args.sizes, args.layout
    w = Worker(layout, sizes, number, args.seed, torch.float64, 0.01)
    batches = [model.tokens(sizes, args.seed, i, layout.global_batch) for i in range(STEPS)]
    off, losses = None, []

    def inspect(worker):
        nonlocal off
        off = reference.compare(worker, args.seed, *batches[0])

    for i, (tokens, targets) in enumerate(batches):
        loss, _ = w.iterate(tokens, targets, inspect if i == 0 else None)
        loss = torch.tensor([loss], dtype=torch.float64)
        dist.all_reduce(loss)
        losses.append(float(loss))
    if number == 0:
        print(json.dumps({"off": off[0], "where": off[1], "losses": losses, "undivided": undivided(sizes, args.seed, batches)}), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        p = plan(random.Random(seed))
        layout = Layout(json.dumps(p))
        print(json.dumps(p), flush=True)
        processes.start(rank, Namespace(layout=layout, seed=seed, sizes=model.Sizes(12, 3, 8, 2, layout.layers[-1].stop - 2)), layout.world_size)
