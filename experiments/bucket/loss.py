"""Loss by samples seen, when steps come in sorted, in the default and in random order: does it cost learning that samples of a step are of similar length?

    EVENKEEL=evenkeel /usr/bin/python3 experiments/bucket/loss.py [--seeds 5]

A language model of bytes (three causal convolutions of 64 channels, Adam) on declarations of Go's standard library (net/http and strings; BSD licence), 16 to 1,024 bytes long. A
plan for four ranks; a step's gradient is the mean over its tokens, as token_weight makes it. A tenth of the declarations is kept out. The schedules are
those of `evenkeel bucket schedule`, an epoch each; random order is --mixing 1. Padded more, its steps hold fewer samples, so it makes more of them; the
last row shares its batches out to as many steps as the default's."""

import argparse
import glob
import json
import os
import random
import re
import statistics
import subprocess
import tempfile

import torch

EVENKEEL, EPOCHS, POINTS = os.environ.get("EVENKEEL", "evenkeel"), 3, (0.25, 0.5, 1, 2, 3)


def declarations(least=16, most=1024, size=400_000):
    root = subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
    text = ""
    for name in sorted(glob.glob(f"{root}/src/net/http/*.go") + glob.glob(f"{root}/src/strings/*.go")):
        with open(name, encoding="utf-8") as f:
            text += f.read().encode("ascii", "replace").decode() + "\n\n"
    found = [x for x in re.split(r"\n\n(?=\S)", text) if least <= len(x) <= most]
    random.Random(1).shuffle(found)
    out, used = [], 0
    for x in found:
        if used < size:
            out.append(torch.tensor(list(x.encode()), dtype=torch.long))
            used += len(x)
    return out


class Model(torch.nn.Module):
    """Three causal convolutions: each byte sees the 64 before it."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(128, 32), torch.nn.Linear(64, 128)
        self.layers = torch.nn.ModuleList(torch.nn.Conv1d(n, 64, 4, dilation=d) for n, d in ((32, 1), (64, 4), (64, 16)))

    def forward(self, x):
        """The sum of the losses of all bytes but the first, and their number; padding is 0."""
        y = self.embed(x[:, :-1]).transpose(1, 2)
        for layer in self.layers:
            y = torch.relu(layer(torch.nn.functional.pad(y, (3 * layer.dilation[0], 0))))
        losses = torch.nn.functional.cross_entropy(self.out(y.transpose(1, 2)).flatten(0, 1), x[:, 1:].flatten(), reduction="none") * (x[:, 1:].flatten() > 0)
        return losses.sum(), int((x[:, 1:] > 0).sum())


def padded(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def steps(plan, lengths, seed, epoch):
    """The batches of each step of an epoch."""
    args = [EVENKEEL, "bucket", "schedule", "--plan", plan, "--lengths", lengths, "--seed", str(seed), "--epoch", str(epoch)]
    out = {}
    for line in subprocess.run(args, check=True, capture_output=True, text=True).stdout.splitlines():
        b = json.loads(line)
        if "samples" in b and "step" in b:
            out.setdefault(b["step"], []).append(b["samples"])
    return [out[k] for k in sorted(out)]


def train(plan, lengths, data, kept, seed, number=0):
    """The loss per byte of what was kept out, after so many epochs; and the steps. number: into how many the batches of an epoch are shared out, if not the plan's."""
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    seen, points, losses, count = 0, list(POINTS), [], 0
    for epoch in range(EPOCHS):
        cut = steps(plan, lengths, seed, epoch)
        if number:
            batches = [b for step in cut for b in step]
            cut = [batches[k * len(batches) // number : (k + 1) * len(batches) // number] for k in range(number)]
        for step in cut:
            optimizer.zero_grad()
            parts = []
            for batch in step:
                total, n = model(padded([data[i] for i in batch]))
                total.backward()
                parts.append(n)
                seen += len(batch)
            for p in model.parameters():
                p.grad /= sum(parts)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            count += 1
            if seen >= points[0] * len(data):
                points.pop(0)
                with torch.no_grad():
                    sums = [model(padded(kept[k : k + 64])) for k in range(0, len(kept), 64)]
                losses.append(float(sum(s for s, _ in sums)) / sum(n for _, n in sums))
    return losses, count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--only", help="only this order")
    a = p.parse_args()
    torch.set_num_threads(1)
    samples = declarations()
    kept, data = samples[: len(samples) // 10], samples[len(samples) // 10 :]
    with tempfile.TemporaryDirectory() as d:
        at = lambda name: os.path.join(d, name)  # noqa: E731
        with open(at("lengths.txt"), "w") as f:
            f.writelines(f"{len(x)}\n" for x in data)
        with open(at("table.csv"), "w") as f:
            f.write("length,batch,seconds,peak_bytes\n")
            for length in (16, 32, 64, 128, 256, 512, 1024):
                f.writelines(f"{length},{b},{0.004 + 1e-5 * length * b},{length * b}\n" for b in sorted({1, max(1, 400 // length), 1024 // length}))
        print(f"{len(data)} declarations of {sum(map(len, data))} bytes; kept out {len(kept)}\n")
        print("| order | steps | " + " | ".join(f"after {x:g} epochs" for x in POINTS) + " | by seed, at the end |\n" + "|---" * (3 + len(POINTS)) + "|")
        for name, mixing, number in (("sorted", "0", 0), ("default", "0.2", 0), ("random", "1", 0), ("random, steps of the default", "1", 117)):
            if a.only not in (None, name):
                continue
            subprocess.run([EVENKEEL, "bucket", "plan", "--lengths", at("lengths.txt"), "--table", at("table.csv"), "--ranks", "4", "--mixing", mixing, "--out", at("plan.json")], check=True, stdout=subprocess.DEVNULL)
            runs = [train(at("plan.json"), at("lengths.txt"), data, kept, s + 1, number) for s in range(a.seeds)]
            columns = list(zip(*(losses for losses, _ in runs)))
            cells = [f"{statistics.mean(c):.4f} ({statistics.stdev(c) if len(c) > 1 else 0:.4f})" for c in columns]
            print(f"| {name} (--mixing {mixing}) | {runs[0][1]} | " + " | ".join(cells) + " | " + " ".join(f"{x:.4f}" for x in columns[-1]) + " |", flush=True)


if __name__ == "__main__":
    main()
