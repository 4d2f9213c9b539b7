"""What forward-only training of adapters costs beside inference: memory, and the time of a step.

    /usr/bin/python3 experiments/forward/torch/cost.py

A transformer-like stack of 4 blocks, 512 and 1024 wide (12.6 and 50 million weights, frozen), adapters of rank 8 on query and value; inputs of 4 x 16
tokens. Peak memory is what the system says; of it, what is the process's own (not pages of files, such as the code of torch that it has used) is seen
in each forward pass and after each step.
"""

import os
import resource
import subprocess
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import small  # noqa: E402
from evenkeel import forward  # noqa: E402


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def own():
    with open("/proc/self/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) / 1024


def main(processors, width):
    torch.set_num_threads(1)
    before, before_own, most = peak(), own(), 0.0
    small.WIDTH, small.LAYERS, small.HEADS, small.TOKENS = width, 4, 16, 15
    torch.manual_seed(0)
    model = small.Transformer().requires_grad_(False)
    x = torch.randint(128, (512, 16))

    def loss(batch):
        nonlocal most
        z = model(x[batch])
        most = max(most, own())
        return torch.nn.functional.cross_entropy(z[:, :-1].flatten(0, 1), x[batch][:, 1:].flatten())

    with torch.no_grad():
        if not processors:
            for i in range(6):
                loss(torch.arange(4) + i)
            print(f"{peak() - before:.1f} {most - before_own:.1f}")
            return
        parts = forward.lora(model, ("query", "value"))
        config = forward.Config(processors=processors, steps=6, examples=[4], key=1)
        r = forward.Replica(forward.prepare(config, len(x), parts, forward.frozen(model, parts)), parts, forward.frozen(model, parts))
        passes, whole = [], []
        for j in range(6):
            begun = time.process_time()
            mine = r.losses(0, loss)
            frames = [forward.rounds.frame(j, k, forward.rounds.LOSSES, mine) for k in range(processors)]
            for k in range(processors):
                r.put(k, frames[k])
            most = max(most, own())
            whole.append(time.process_time() - begun)
            begun = time.process_time()
            for b in (torch.arange(4), torch.arange(4, 8)):
                loss(b)
            passes.append(time.process_time() - begun)
        print(f"{peak() - before:.1f} {most - before_own:.1f} {sorted(whole)[3] / sorted(passes)[3]:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*map(int, sys.argv[1:]))
    else:
        for width in (512, 1024):
            a, b, *_ = map(float, subprocess.run([sys.executable, __file__, "0", str(width)], check=True, capture_output=True, text=True).stdout.split())
            for n in (2, 16):
                c, d, ratio = map(float, subprocess.run([sys.executable, __file__, str(n), str(width)], check=True, capture_output=True, text=True).stdout.split())
                print(f"{width} wide, {n} processors: peak memory above the imports {a} MB in inference, {c} in training, {c / a:.3f} of it; without pages of files {b} and {d}, {d / b:.3f}")
                print(f"a rank's step over its two passes, both in processor time: {ratio}")
