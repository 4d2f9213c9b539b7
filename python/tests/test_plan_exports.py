"""Exports of plans run by the programs that they are for, on processes of this machine: torch.distributed.pipelining, DeepSpeed's pipeline engine, and the
configurations of Megatron-LM and torchtitan."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")

import torch
import torch.distributed as dist
import torch.distributed.pipelining  # takes long: before ranks are forked
from torch import nn

import processes
import random_exports

EVENKEEL = os.environ.get("EVENKEEL")
WIDTH = 8


def plan(cuts, ranks, micro_batches=4, share=2, sharding="none", checkpoint=False, tensor=1, **more):
    """Stages between the cuts, each of so many ranks, those of later chunks on the ranks of the first."""
    pipeline = (len(cuts) - 1) // more.get("chunks", 1)
    stages = []
    for s, (a, b) in enumerate(zip(cuts, cuts[1:])):
        group = {"device": "cpu", "first": s % pipeline * ranks, "count": ranks, "tensor": tensor, "micro_batches": [share] * (ranks // tensor)}
        stages.append({"from": a, "to": b, "groups": [group], "strategies": [{"from": a, "to": b, "sharding": sharding, "checkpoint": checkpoint}]})
    micro = share * ranks // tensor
    return {"version": 1, "global_batch": micro * micro_batches, "micro_batch": micro, "stages": stages, **more}


def export(folder, p, form, *flags):
    """The text of the export of a plan."""
    path = os.path.join(folder, "plan.json")
    with open(path, "w") as f:
        json.dump(p, f)
    done = subprocess.run([EVENKEEL, "plan", "export", path, "--format", form, *flags], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


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


@unittest.skipUnless(EVENKEEL, "EVENKEEL is not the path of evenkeel")
class Exports(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_torch_pipelines(self):
        """Every schedule, by the exported module: gradients and losses are those of the undivided model."""
        for name, p in {
            "1f1b": plan([0, 1, 4, 5], 1),
            "replicas": plan([0, 2, 5], 2),
            "few micro-batches": plan([0, 1, 4, 5], 1, micro_batches=2),
            "interleaved": plan([0, 1, 2, 4, 5], 1, schedule="interleaved", chunks=2, transfers="overlap"),
            "zb-h1": plan([0, 3, 5], 1, micro_batches=6, schedule="zb-h1", transfers="overlap"),
            "h-1f1b": plan([0, 2, 3, 5], 1, micro_batches=6, schedule="h-1f1b", warmup=[5, 3, 1]),
        }.items():
            with self.subTest(name):
                path = os.path.join(self.folder, "exported.py")
                with open(path, "w") as f:
                    f.write(export(self.folder, p, "torch"))

                def child(rank, port):
                    spec = importlib.util.spec_from_file_location("exported", path)
                    exported = importlib.util.module_from_spec(spec)
                    spec.loader.exec_module(exported)
                    start(rank, port, exported.WORLD_SIZE)
                    exported.check(dist.get_world_size())
                    inputs, targets = batch(exported.GLOBAL_BATCH)
                    plain = layers(5)
                    whole, gradients = undivided(plain, inputs, targets, nn.functional.mse_loss)
                    mine = [l for s in exported.stages_of(rank) for l in exported.layers_of(s)]
                    own = {l: m for l, m in enumerate(layers(5)) if l in mine}
                    schedule = exported.pipeline(own, nn.functional.mse_loss)
                    # Of every micro-batch the samples of this replica.
                    rows = [m * exported.MICRO_BATCH + r for m in range(exported.MICRO_BATCHES) for r in exported.samples_of(rank)]
                    first, last = mine[0] == 0, mine[-1] == 4
                    losses = []
                    schedule.step(*([inputs[rows]] if first else []), **({"target": targets[rows], "losses": losses} if last else {}))
                    peers = dist.new_subgroups_by_enumeration([list(exported.ranks_of(s)) for s in range(exported.PIPELINE)])[0]
                    for l in mine:
                        for g, q in zip(gradients[l], own[l].parameters(), strict=True):
                            dist.all_reduce(q.grad, group=peers)
                            torch.testing.assert_close(q.grad / len(exported.ranks_of(exported.stage_of(rank))), g, rtol=1e-9, atol=1e-12)
                    if last:
                        loss = torch.stack(losses).mean()
                        dist.all_reduce(loss, group=peers)
                        torch.testing.assert_close(loss.item() / dist.get_world_size(peers), whole, rtol=1e-9, atol=0)

                processes.run(self, sum(s["groups"][0]["count"] for s in p["stages"][: len(p["stages"]) // p.get("chunks", 1)]), child)

    def test_unequal_stages(self):
        p = plan([0, 2, 5], 1)
        p["stages"][1]["groups"][0].update(count=2, micro_batches=[1, 1])
        exported = {}
        exec(export(self.folder, p, "torch"), exported)
        with self.assertRaisesRegex(ValueError, "unequal numbers of ranks"):
            exported["pipeline"](layers(5), None)

    def test_deepspeed_pipeline(self):
        """DeepSpeed reads the configuration, PipelineModule takes its stages, and a step of the engine is one of the undivided model."""
        import deepspeed
        from deepspeed.pipe import PipelineModule

        for cuts, ranks, sharding, checkpoint in (([0, 3, 5], 1, "none", False), ([0, 1, 5], 1, "none", True), ([0, 2, 5], 2, "optimizer", False)):
            p = plan(cuts, ranks, sharding=sharding, checkpoint=checkpoint)
            config = json.loads(export(self.folder, p, "deepspeed"))

            class Planned(PipelineModule):
                def _partition_layers(self, method):
                    self.parts = config["evenkeel"]["parts"]
                    self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])

            def child(rank, port):
                start(rank, port, 2 * ranks)
                sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # an extension that this does not use, and that takes half a minute to compile
                deepspeed.init_distributed("gloo", dist_init_required=False)
                inputs, targets = (x.float() for x in batch(p["global_batch"]))
                plain = [m.float() for m in layers(5)]
                whole, gradients = undivided(plain, inputs, targets, nn.functional.mse_loss)
                net = Planned(layers=[m.float() for m in layers(5)], num_stages=config["evenkeel"]["num_pp"], loss_fn=nn.functional.mse_loss,
                              activation_checkpoint_interval=config.get("pipeline", {}).get("activation_checkpoint_interval", 0))
                before = {n: q.detach().clone() for n, q in net.named_parameters()}
                engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), config={**config, "zero_allow_untested_optimizer": True})
                assert engine.micro_batches == config["gradient_accumulation_steps"] == 4 and engine.train_batch_size() == p["global_batch"]
                assert (engine.zero_optimization_stage() == 1) == (sharding == "optimizer")
                replica = engine.grid.get_data_parallel_id()
                share = p["stages"][0]["groups"][0]["micro_batches"][0]
                rows = [torch.arange(share) + m * p["micro_batch"] + replica * share for m in range(4)]
                loss = engine.train_batch(iter([(inputs[r], targets[r]) for r in rows]))
                torch.testing.assert_close(loss.item(), whole, rtol=1e-5, atol=0)
                first, end = cuts[net.stage_id], cuts[net.stage_id + 1]
                assert len(before) == 2 * (end - first)
                for g, (n, q) in zip(sum(gradients[first:end], []), net.named_parameters(), strict=True):
                    torch.testing.assert_close(before[n] - q, g, rtol=1e-4, atol=1e-6)

            with self.subTest(cuts=cuts, ranks=ranks):
                processes.run(self, 2 * ranks, child)

    def test_megatron(self):
        """Megatron Core's configuration takes the arguments, and gives every rank the plan's transformer layers."""
        for cuts, more in (([0, 5, 14], {}), ([0, 4, 10, 14], {}), ([0, 7, 9, 14], {"tensor": 2, "ranks": 2}), ([0, 3, 4, 11, 14], {}),
                           ([0, 4, 7, 10, 14], {"schedule": "interleaved", "chunks": 2, "transfers": "overlap"}),
                           ([0, 3, 7, 10, 14], {"schedule": "interleaved", "chunks": 2, "transfers": "overlap", "checkpoint": True})):
            with self.subTest(cuts=cuts):
                ranks = more.pop("ranks", 1)
                text = export(self.folder, plan(cuts, ranks, **more), "megatron", "--embedding-layers", "1", "--head-layers", "1")
                chunks = more.get("chunks", 1)
                config, left = random_exports.read_core(text, chunks, hidden_size=64, num_attention_heads=4)
                self.assertEqual(left, {"micro_batch_size": 2, "global_batch_size": 8})
                self.assertEqual(config.num_layers, 12)
                self.assertEqual(random_exports.layers_built(config, chunks), [min(b, 13) - max(a, 1) for a, b in zip(cuts, cuts[1:])])

    def test_random_clusters(self):
        """What is found for random models and clusters is read by all; random_exports.py reads more."""
        for seed in (1, 6):
            config, nodes, flags = random_exports.job(random.Random(seed))
            for trainer in random_exports.TRAINERS:
                with self.subTest(seed=seed, trainer=trainer):
                    plan, text = random_exports.found(self.folder, config, nodes, flags, trainer)
                    random_exports.read(trainer, plan, text, config)

    def test_torchtitan(self):
        """torchtitan takes the parallelism, divides its model as the plan does, and finds the plan's number of ranks."""
        from torchtitan.config import ParallelismConfig, TrainingConfig
        from torchtitan.distributed import ParallelDims

        for p, schedule, degrees in (
            (plan([0, 2, 5], 4, tensor=2), "1F1B", (2, 1, 2, 2)),
            (plan([0, 2, 3, 4, 5], 2, schedule="interleaved", chunks=2, transfers="overlap"), "Interleaved1F1B", (2, 1, 1, 2)),
            (plan([0, 1, 5], 1, schedule="zb-h1", transfers="overlap"), "InterleavedZeroBubble", (1, 1, 1, 2)),
            (plan([0, 5], 4, sharding="full"), None, (1, 4, 1, 1)),
        ):
            with self.subTest(schedule):
                exported = {}
                exec(export(self.folder, p, "torch"), exported)
                parallelism, training = exported["torchtitan"]()
                config = ParallelismConfig(**parallelism)
                dims = ParallelDims.from_config(config, exported["WORLD_SIZE"])  # checks that the product of all is that
                self.assertEqual((dims.dp_replicate, dims.dp_shard, dims.tp, dims.pp), degrees)
                self.assertEqual(TrainingConfig(**training).local_batch_size, 8)
                if schedule:
                    self.assertEqual(config.pipeline_parallel_schedule, schedule)
                    self.assertEqual(sum(config.module_fqns_per_model_part, []), ["tok_embeddings", "layers.0", "layers.1", "layers.2", "norm", "lm_head"])
                    self.assertEqual([len(m) - m.count("norm") for m in config.module_fqns_per_model_part], [s["to"] - s["from"] for s in p["stages"]])
        for p, why in ((plan([0, 5], 2, sharding="optimizer"), "sharding none or full"), (plan([0, 1, 4, 5], 1, micro_batches=2), "at least as many micro-batches as stages, 3")):
            exported = {}
            exec(export(self.folder, p, "torch"), exported)
            with self.assertRaisesRegex(ValueError, why):
                exported["torchtitan"]()


if __name__ == "__main__":
    unittest.main()
