"""Pretrains the transformer: to go on with a text, and to say whose it is. Writes a safetensors file.

    /usr/bin/python3 experiments/forward/torch/pretrain.py base.safetensors    # two minutes
"""

import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

from evenkeel.checkpoint.interchange import write_safetensors  # noqa: E402
from small import LETTERS, Transformer, halves, pieces, texts  # noqa: E402


def main(path, steps=3000):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    train, test = zip(*map(halves, texts()))
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for i in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, i / 100) * (1 - i / steps)
        x, y = pieces(train, 64, 1000 + i)
        z = model(x)
        loss = F.cross_entropy(z[:, :-2].flatten(0, 1), x[:, 1:-1].flatten()) + 0.3 * F.cross_entropy(z[:, -1], LETTERS[y])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, y = pieces(test, 2000, 1)
        print(f"loss {loss.item():.3f}, whose text it is: {(model(x)[:, -1, LETTERS].argmax(-1) == y).float().mean():.3f} right on the test's")
    write_safetensors(model.state_dict(), path)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
