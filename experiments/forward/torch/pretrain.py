"""Pretrains the transformer: to go on with a text, and to say whose it is. Writes a safetensors file.

    /usr/bin/python3 experiments/forward/torch/pretrain.py base.safetensors

Every 100 steps it saves where it is to base.safetensors.part; called again, it goes on from there, with the same result.
"""

import os
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

from evenkeel.checkpoint.interchange import write_safetensors  # noqa: E402
from small import LETTERS, Transformer, halves, pieces, texts  # noqa: E402


def main(path, minutes=1e9, steps=3000):
    """Trains for so many minutes at most."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    part, first, until = path + ".part", 0, time.monotonic() + 60 * minutes
    train, test = zip(*map(halves, texts()))
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    if os.path.exists(part):
        saved = torch.load(part)
        first = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for i in range(first, steps):
        if i % 100 == 0 and i > first:
            torch.save({"step": i, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part + ".new")
            os.replace(part + ".new", part)
            if time.monotonic() > until:
                print(f"{i} of {steps} steps: call again")
                return
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, i / 100) * (1 - i / steps)
        x, y = pieces(train, 64, 1000 + i)
        z = model(x)
        loss = F.cross_entropy(z[:, :-2].flatten(0, 1), x[:, 1:-1].flatten()) + 0.3 * F.cross_entropy(z[:, -1], LETTERS[y])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 500 == 499:
            with torch.no_grad():
                x, y = pieces(test, 2000, 1)
                print(f"{i + 1} steps: loss {loss.item():.3f}, whose text it is: {(model(x)[:, -1, LETTERS].argmax(-1) == y).float().mean():.3f} right on the test's", flush=True)
    write_safetensors(model.state_dict(), path)
    if os.path.exists(part):
        os.remove(part)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:3]))
