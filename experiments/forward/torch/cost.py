"""What forward-only training of adapters costs beside inference: memory, and the time of a step.

    /usr/bin/python3 experiments/forward/torch/cost.py

A transformer-like stack of 4 blocks, 512 and 1024 wide (12.6 and 50 million weights, frozen), adapters of rank 8 on query and value; inputs of 4 x 16
tokens. Peak memory is what the system says.
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


def main(processors, width):
    torch.set_num_threads(1)
    before = peak()
    small.WIDTH, small.LAYERS, small.HEADS, small.TOKENS = width, 4, 16, 15
    torch.manual_seed(0)
    model = small.Transformer().eval().requires_grad_(False)
    x = torch.randint(128, (512, 16))

    def loss(batch):
        return torch.nn.functional.cross_entropy(model(x[batch])[:, :-1].flatten(0, 1), x[batch][:, 1:].flatten())

    with torch.no_grad():
        if not processors:
            for i in range(6):
                loss(torch.arange(4) + i)
            print(f"{peak() - before:.1f}")
            return
        parts = forward.lora(model, ("query", "value"))
        config = forward.Config(processors=processors, steps=6, examples=[4], key=1)
        r = forward.Replica(forward.prepare(config, len(x), parts, forward.frozen(model, parts)), parts, forward.frozen(model, parts))
        passes, whole = [], []
        for j in range(6):
            begun = time.process_time()
            mine = r.losses(0, loss)
            for k in range(processors):
                r.put(k, forward.rounds.frame(j, k, forward.rounds.LOSSES, mine))
            whole.append(time.process_time() - begun)
            begun = time.process_time()
            for b in (torch.arange(4), torch.arange(4, 8)):
                loss(b)
            passes.append(time.process_time() - begun)
        print(f"{peak() - before:.1f} {sorted(whole)[3] / sorted(passes)[3]:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*map(int, sys.argv[1:]))
    else:
        print("| width | processors | peak memory above the imports: inference, training | a rank's step over its two passes |\n|---|---|---|---|")
        for width in (512, 1024):
            a, = map(float, subprocess.run([sys.executable, __file__, "0", str(width)], check=True, capture_output=True, text=True).stdout.split())
            for n in (2, 16):
                b, ratio = map(float, subprocess.run([sys.executable, __file__, str(n), str(width)], check=True, capture_output=True, text=True).stdout.split())
                print(f"| {width} | {n} | {a} MB, {b} MB: {b / a:.3f} | {ratio} |")
