"""A rank of a run, for test_forward_run.py: the argument is JSON. The network is Go's mlp (dense1, dense2), on data made up here: whatever losses a
rank sends, the weights follow from what all were sent."""

import json
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from evenkeel import forward  # noqa: E402


def network(size):
    torch.manual_seed(0)
    shapes = {"dense1.weight": (64, size), "dense1.bias": (size,), "dense2.weight": (size, 10), "dense2.bias": (10,)}
    return {n: 0.1 * torch.randn(s) for n, s in shapes.items()}


def loss(weights, wait=0.0):
    torch.manual_seed(1)
    x, y = torch.randn(2000, 64), torch.randint(10, (2000,))

    def of(batch):
        time.sleep(wait)
        h = torch.tanh(x[batch] @ weights["dense1.weight"] + weights["dense1.bias"])
        return torch.nn.functional.cross_entropy(h @ weights["dense2.weight"] + weights["dense2.bias"], y[batch])

    return of


def join(a):
    torch.set_num_threads(1)
    w = network(a["size"])
    of = loss(w, a.get("wait", 0.0))
    if a.get("bad"):
        of = lambda batch: float("nan")  # noqa: E731
    after = (lambda r: r.step >= a["stop_at"]) if "stop_at" in a else None
    r = forward.join(a["url"], a["run"], a["rank"], of, [forward.Part(n, t) for n, t in w.items()], token=a.get("token", ""), ca=a.get("ca", ""), patience=a.get("patience", 30), after_block=after)
    return json.dumps({"steps": r.steps, "hash": r.weights_hash, "absent": r.absent, "left_out": r.left_out, "ignored": r.ignored})


if __name__ == "__main__":
    print(join(json.loads(sys.argv[1])))
