"""Exports of plans run by the programs that they are for, on processes of this machine: torch.distributed.pipelining, DeepSpeed's pipeline engine, and the
configurations of Megatron-LM and torchtitan."""

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

import random_exports
import run_exports

EVENKEEL = os.environ.get("EVENKEEL")


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
                run_exports.run_torch(self, self.folder, p, export(self.folder, p, "torch"))

    def test_unequal_stages(self):
        """Stages of other numbers of ranks, shares and tensor degrees than their neighbours'."""
        for name, shares, tensors, p in (
            ("1f1b", [[1, 3], [4], [2, 1, 1]], [1, 1, 1], plan([0, 1, 4, 5], 1)),
            ("zb-h1", [[2, 2], [1, 3]], [2, 1], plan([0, 2, 5], 1, schedule="zb-h1", transfers="overlap")),
            ("interleaved", [[4], [1, 3]] * 2, [1, 1] * 2, plan([0, 1, 2, 4, 5], 1, schedule="interleaved", chunks=2, transfers="overlap")),
            ("h-1f1b", [[3, 1], [2, 2]], [1, 1], plan([0, 3, 5], 1, micro_batches=6, schedule="h-1f1b", warmup=[3, 1])),
        ):
            with self.subTest(name):
                p.update(micro_batch=4, global_batch=2 * p["global_batch"])
                for s, (own, tensor) in enumerate(zip(shares, tensors)):
                    p["stages"][s]["groups"] = [{"device": "cpu%d" % (s % (len(shares) // p.get("chunks", 1))), "first": 0, "count": tensor * len(own), "tensor": tensor, "micro_batches": own}]
                run_exports.run_torch(self, self.folder, p, export(self.folder, p, "torch"))

    def test_receivers_are_divided_among_tensor_ranks(self):
        p, exported = plan([0, 2, 5], 2, tensor=2), {}
        p["stages"][1]["groups"][0].update(count=4, micro_batches=[1, 1])
        exec(export(self.folder, p, "torch"), exported)
        self.assertEqual([(to, by, *exported["rows_between"](to, by)) for to in range(2, 6) for by in range(2) if exported["rows_between"](to, by)], [(2, 0, 0), (3, 1, 0), (4, 0, 1), (5, 1, 1)])

    def test_deepspeed_pipeline(self):
        """DeepSpeed reads the configuration, PipelineModule takes its stages, and a step of the engine is one of the undivided model."""
        for cuts, ranks, sharding, checkpoint in (([0, 3, 5], 1, "none", False), ([0, 1, 5], 1, "none", True), ([0, 2, 5], 2, "optimizer", False), ([0, 5], 2, "gradients", False)):
            with self.subTest(cuts=cuts, ranks=ranks):
                p = plan(cuts, ranks, sharding=sharding, checkpoint=checkpoint)
                run_exports.run_deepspeed(self, self.folder, p, export(self.folder, p, "deepspeed"))

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
