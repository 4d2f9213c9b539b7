"""Plans run by the trainers that they are exported for, on processes joined by gloo: torch.distributed.pipelining and DeepSpeed's engines. The loss and
the gradients of an iteration are those of the undivided model.

    EVENKEEL=evenkeel PYTHONPATH=python python3 python/tests/run_exports.py [COUNT [FIRST]]

runs plans that are found for random models on random clusters of up to eight devices."""

import collections
import importlib.util
import json
import os
import random
import sys
import tempfile
import unittest

import random_exports
import torch
import torch.distributed as dist
import torch.distributed.pipelining  # takes long: before ranks are forked
from torch import nn

import processes

WIDTH = 8


def layers(n):
    torch.manual_seed(1)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(n)]


def batch(n):
    torch.manual_seed(2)
    return torch.randn(n, WIDTH, dtype=torch.float64), torch.randn(n, WIDTH, dtype=torch.float64)


def undivided(modules, inputs, targets, loss):
    """The mean loss and the gradients of one process."""
    value = loss(nn.Sequential(*modules)(inputs), targets)
    value.backward()
    return value.item(), [[q.grad for q in m.parameters()] for m in modules]


def start(rank, port, ranks):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)


def run_torch(test, folder, p, text):
    """The exported module makes the schedule. Gradients are averaged over replicas here."""
    path = os.path.join(folder, "exported.py")
    with open(path, "w") as f:
        f.write(text)
    count = p["stages"][-1]["to"]

    def child(rank, port):
        spec = importlib.util.spec_from_file_location("exported", path)
        exported = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(exported)
        start(rank, port, exported.WORLD_SIZE)
        exported.check(dist.get_world_size())
        inputs, targets = batch(exported.GLOBAL_BATCH)
        whole, gradients = undivided(layers(count), inputs, targets, nn.functional.mse_loss)
        mine = [l for s in exported.stages_of(rank) for l in exported.layers_of(s)]
        own = {l: m for l, m in enumerate(layers(count)) if l in mine}
        weight = exported.loss_weight(rank)
        schedule = exported.pipeline(own, lambda x, y: weight * nn.functional.mse_loss(x, y))
        # Of every micro-batch the samples of this replica.
        rows = [m * exported.MICRO_BATCH + r for m in range(exported.MICRO_BATCHES) for r in exported.samples_of(rank)]
        first, last = mine[0] == 0, mine[-1] == count - 1
        losses = []
        schedule.step(*([inputs[rows]] if first else []), **({"target": targets[rows]} if last else {}), **({"losses": losses} if last else {}))
        peers = dist.new_subgroups_by_enumeration([list(exported.ranks_of(s)) for s in range(exported.PIPELINE)])[0]
        n = dist.get_world_size(peers)
        for l in mine:
            for g, q in zip(gradients[l], own[l].parameters(), strict=True):
                dist.all_reduce(q.grad, group=peers)
                torch.testing.assert_close(q.grad / n, g, rtol=1e-9, atol=1e-12)
        if last:
            loss = torch.stack(losses).mean()
            dist.all_reduce(loss, group=peers)
            torch.testing.assert_close(loss.item() / n, whole, rtol=1e-9, atol=0)
        dist.barrier()  # the first rank keeps the store by which others still find each other

    processes.run(test, random_exports.stages(p)[1], child)


def run_deepspeed(test, _, p, text):
    """DeepSpeed reads the configuration, and its engine makes a step, of PipelineModule where there are several stages."""
    import deepspeed
    from deepspeed.pipe import PipelineModule

    config = json.loads(text)
    sizes, micro_batches = config["evenkeel"], p["global_batch"] // p["micro_batch"]
    cuts = sizes["parts"]

    class Planned(PipelineModule):
        def _partition_layers(self, method):
            self.parts = cuts
            self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])

    def child(rank, port):
        start(rank, port, random_exports.stages(p)[1])
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # an extension that this does not use, and that takes half a minute to compile
        deepspeed.init_distributed("gloo", dist_init_required=False)
        loss = nn.functional.mse_loss
        inputs, targets = (x.float() for x in batch(p["global_batch"]))
        whole, gradients = undivided([m.float() for m in layers(cuts[-1])], inputs, targets, loss)
        net, piped = [m.float() for m in layers(cuts[-1])], sizes["num_pp"] > 1
        if piped:
            net = Planned(layers=net, num_stages=sizes["num_pp"], loss_fn=loss, activation_checkpoint_interval=config.get("pipeline", {}).get("activation_checkpoint_interval", 0))
        else:
            net = nn.Sequential(*net)
        before = {n: q.detach().clone() for n, q in net.named_parameters()}
        engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config={**config, "zero_allow_untested_optimizer": True})
        assert engine.gradient_accumulation_steps() == micro_batches and engine.train_batch_size() == p["global_batch"]
        assert engine.zero_optimization_stage() == {"none": 0, "optimizer": 1, "gradients": 2, "full": 3}[p["stages"][0]["strategies"][0]["sharding"]]
        replica = engine.grid.get_data_parallel_id() if piped else rank
        share = p["stages"][0]["groups"][0]["micro_batches"][0]
        parts = [(inputs[r], targets[r]) for r in (torch.arange(share) + m * p["micro_batch"] + replica * share for m in range(micro_batches))]
        if piped:
            torch.testing.assert_close(engine.train_batch(iter(parts)).item(), whole, rtol=1e-5, atol=0)
        for x, y in () if piped else parts:
            engine.backward(loss(engine(x), y))
            engine.step()
        first, end = (cuts[net.stage_id], cuts[net.stage_id + 1]) if piped else (0, cuts[-1])
        assert len(before) == 2 * (end - first)
        gathered = deepspeed.zero.GatheredParameters(list(net.parameters()), enabled=engine.zero_optimization_stage() == 3)
        with gathered:
            for g, (n, q) in zip(sum(gradients[first:end], []), net.named_parameters(), strict=True):
                torch.testing.assert_close(before[n] - q, g, rtol=1e-4, atol=1e-6)
        dist.barrier()

    processes.run(test, random_exports.stages(p)[1], child)


def job(rng):
    """A config.json, a cluster file, and flags of plan search for each trainer."""
    config, _, _ = random_exports.job(rng)
    config["num_hidden_layers"] = rng.randint(2, 6)
    nodes = "nodes:\n"
    for card in rng.sample(("a100-80g", "v100", "t4"), rng.randint(1, 2)):
        per = rng.choice((1, 2, 2))
        count = per * rng.randint(1, 4 // per)
        nodes += "  - {device: %s, count: %d, per_machine: %d, inside: 200GB/s, link: %s}\n" % (card, count, per, rng.choice(("1GB/s", "12GB/s", "50GB/s")))
    flags = ["--batch", str(rng.choice((8, 12, 16))), "--tokens", "512", "--precision", "fp32", "--tensor", "1", "--calibration", "none"]
    flags += rng.choice(([], ["--stages", "1"], ["--stages", "2-6"], ["--stages", "2"]))
    return config, nodes, {"torch": [*flags, "--sharding", "none", "--context", "1", "--experts", "1", "--schedule", rng.choice(("1f1b", "interleaved", "zb-h1", "h-1f1b", "any"))],
                           "deepspeed": flags}


RUNS = {"torch": run_torch, "deepspeed": run_deepspeed}


def main():
    count, first = ([int(n) for n in sys.argv[1:3]] + [20, 0][len(sys.argv) - 1 :])[:2]
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            config, nodes, flags = job(random.Random(seed))
            for trainer, execute in RUNS.items():
                pair = random_exports.found(folder, config, nodes, flags[trainer], trainer)
                if not pair:
                    counts[trainer, "no plan"] += 1
                    continue
                p, text = pair
                own, ranks = random_exports.stages(p)
                unlike = len({tuple(b for g in s["groups"] for b in g["micro_batches"]) for s in own}) > 1
                way = "%s, %d stages%s on %d ranks, %d micro-batches" % (p.get("schedule", "1f1b"), len(p["stages"]), " that divide samples unlike each other" * unlike, ranks, p["global_batch"] // p["micro_batch"])
                result = "as the undivided model"
                try:
                    execute(unittest.TestCase(), folder, p, text)
                except Exception as e:
                    result = "FAILED: %s" % e
                counts[trainer, result.split(":")[0]] += 1
                print("%d %s: %s: %s" % (seed, trainer, way, result), flush=True)
    for (trainer, what), n in sorted(counts.items()):
        print("%s: %s: %d" % (trainer, what, n))
    return any(what == "FAILED" for _, what in counts)


if __name__ == "__main__":
    sys.exit(main())
