"""Plans that evenkeel plan search finds for random models on random clusters, exported, and read by the trainers' own parsers:

    EVENKEEL=evenkeel PYTHONPATH=python python3 python/tests/random_exports.py [COUNT [FIRST]] [--megatron FOLDER]

FOLDER is a checkout of Megatron-LM, whose arguments.py (parse_args and validate_args) and core then read what is written for it. Without, that is
done by the installed megatron-core's configurations."""

import argparse
import collections
import contextlib
import io
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import traceback
import typing
from unittest import mock

import typing_extensions

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")

EVENKEEL = os.environ.get("EVENKEEL")
TRAINERS = ("torch", "deepspeed", "megatron")


def job(rng):
    """A config.json, a cluster file, and flags of plan search."""
    kind = rng.choice(("llama", "qwen2", "gpt2", "mixtral"))
    head = rng.choice((64, 128))
    heads = rng.choice((8, 12, 16, 24))
    config = {"model_type": kind, "hidden_size": heads * head, "num_hidden_layers": rng.randint(2, 10), "num_attention_heads": heads, "intermediate_size": heads * head * 4,
              "vocab_size": rng.choice((8192, 32000)), "max_position_embeddings": 1024}
    if kind != "gpt2":
        config["num_key_value_heads"] = rng.choice((heads, heads // 4))
        config["tie_word_embeddings"] = rng.random() < 0.3
    if kind == "mixtral":
        config.update(num_local_experts=4, num_experts_per_tok=2, intermediate_size=heads * head)
    nodes = "nodes:\n"
    for card in rng.sample(("a100-80g", "v100", "l40s", "t4", "rtx-3090", "a10g"), rng.randint(1, 3)):
        per = rng.choice((1, 2, 2, 4))
        nodes += "  - {device: %s, count: %d, per_machine: %d, inside: %s, link: %s}\n" % (
            card, per * rng.randint(1, 8 // per), per, rng.choice(("12GB/s", "50GB/s", "200GB/s")), rng.choice(("1GB/s", "3GB/s", "12GB/s")))
    flags = ["--batch", str(rng.choice((8, 12, 16, 32))), "--tokens", str(rng.choice((512, 1024))), "--precision", rng.choice(("mixed", "mixed", "bf16", "fp32"))]
    if rng.random() < 0.5:
        flags += ["--schedule", "any"]
    if rng.random() < 0.4:
        flags += ["--stages", "2-8"]
    return config, nodes, flags


def found(folder, config, nodes, flags, trainer):
    """The plan that is found for a trainer, and its export; None: there is none, or the reason."""
    paths = {n: os.path.join(folder, n) for n in ("config.json", "cluster.yaml", "plan.json")}
    with open(paths["config.json"], "w") as f:
        json.dump(config, f)
    with open(paths["cluster.yaml"], "w") as f:
        f.write(nodes)
    done = subprocess.run([EVENKEEL, "plan", "search", "--model", paths["config.json"], "--cluster", paths["cluster.yaml"], "--for", trainer, "--out", paths["plan.json"], *flags],
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        if "no feasible plan" not in done.stderr:
            raise AssertionError(done.stderr)
        return None
    with open(paths["plan.json"]) as f:
        plan = json.load(f)
    ends = ["--embedding-layers", "1", "--head-layers", "1"] if trainer == "megatron" else []
    done = subprocess.run([EVENKEEL, "plan", "export", paths["plan.json"], "--format", trainer, *ends], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr)
    return plan, done.stdout


class World:
    """torch.distributed as one of many ranks sees it, though there is one process."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def __enter__(self):
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        os.environ.update(RANK=str(self.rank), LOCAL_RANK="0", WORLD_SIZE=str(self.ranks))
        dist.init_process_group("fake", rank=self.rank, world_size=self.ranks, store=FakeStore())

    def __exit__(self, *_):
        import torch.distributed as dist

        dist.destroy_process_group()


def stages(plan):
    """The stages with ranks of their own, and the number of all ranks."""
    own = plan["stages"][: len(plan["stages"]) // plan.get("chunks", 1)]
    return own, sum(g["count"] for s in own for g in s["groups"])


def some_ranks(ranks):
    return sorted({0, ranks // 2, ranks - 1})


def read_torch(plan, text):
    """PyTorch makes the meshes, the stages and the schedule of some ranks; torchtitan takes its configuration, or is said not to run the plan."""
    import torch

    module = {}
    exec(text, module)
    own, ranks = stages(plan)
    assert module["WORLD_SIZE"] == ranks
    seen = ["meshes"]
    for rank in some_ranks(ranks):
        with World(rank, ranks):
            module["check"](ranks)
            meshes = module["device_meshes"]("cpu")
            assert all(len(m.mesh_dim_names) == (3 if plan.get("context", 1) > 1 else 2) for all in meshes.values() for m in all)
            layers = {l: torch.nn.Linear(2, 2) for s in module["stages_of"](rank) for l in module["layers_of"](s)}
            schedule = module["pipeline"](layers, torch.nn.functional.mse_loss)
            assert schedule._n_microbatches == plan["global_batch"] // plan["micro_batch"]
            seen.append(type(schedule).__name__)
    try:
        parallelism, training = module["torchtitan"]()
    except ValueError:
        return set(seen)
    from torchtitan.config import ParallelismConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims

    dims = ParallelDims.from_config(ParallelismConfig(**parallelism), ranks)
    assert dims.pp == len(own) and TrainingConfig(**training).global_batch_size == plan["global_batch"]
    return {*seen, "torchtitan"}


def read_deepspeed(plan, text):
    """DeepSpeed reads the configuration, numbers ranks as the plan, and PipelineModule takes the stages."""
    import deepspeed
    import torch
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.pipe.module import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    config = json.loads(text)
    own, ranks = stages(plan)
    sizes = config["evenkeel"]
    seen = set()
    for rank in some_ranks(ranks):
        with World(rank, ranks):
            sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
            deepspeed.comm.comm.cdb = None
            deepspeed.init_distributed("fake", dist_init_required=False)
            c = DeepSpeedConfig(config, mpu=argparse.Namespace(get_data_parallel_world_size=lambda: sizes["num_dp"]))
            assert c.world_size == sizes["num_dp"] and c.train_batch_size == plan["global_batch"]
            assert c.zero_optimization_stage == {"none": 0, "optimizer": 1, "gradients": 2, "full": 3}[plan["stages"][0]["strategies"][0]["sharding"]]
            assert c.bfloat16_config.enabled == (plan["predicted"]["precision"] != "fp32")
            seen.add("ZeRO %d" % c.zero_optimization_stage)
            topology = PipeModelDataParallelTopology(num_pp=sizes["num_pp"], num_mp=sizes["num_mp"], num_dp=sizes["num_dp"])
            place, at = topology.get_coord(rank), 0
            for s in own:
                at += sum(g["count"] for g in s["groups"])
                if rank < at:
                    break
            assert s is own[place.pipe] and topology.world_size() == ranks
            if sizes["num_pp"] == 1:
                assert c.tensor_parallel_config.autotp_size == (sizes["num_mp"] if sizes["num_mp"] > 1 else 0)
                continue

            class Planned(PipelineModule):
                def _partition_layers(self, method):
                    self.parts = sizes["parts"]
                    self._set_bounds(self.parts[self.stage_id], self.parts[self.stage_id + 1])

            net = Planned(layers=[torch.nn.Linear(2, 2) for _ in range(sizes["parts"][-1])], topology=topology)
            assert len(list(net.parameters())) == 2 * (s["to"] - s["from"])
            seen.add("PipelineModule")
    return seen


def words_of(text):
    """The arguments of a file for Megatron-LM, by their names in Python."""
    given, name = {}, None
    for w in shlex.split(text, comments=True):
        if w.startswith("--"):
            name = w[2:].replace("-", "_")
            given[name] = True
        else:
            given[name] = int(w) if w.isdigit() else w
    return given


def layers_built(config, chunks):
    """The transformer layers of every stage, as Megatron Core divides them."""
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    got = []
    for v in range(chunks):
        for r in range(config.pipeline_model_parallel_size):
            rank = {"get_pipeline_model_parallel_rank": lambda r=r: r, "get_virtual_pipeline_model_parallel_world_size": lambda: chunks if chunks > 1 else None}
            with mock.patch.multiple(parallel_state, **rank):
                got.append(get_num_layers_to_build(config, vp_stage=v if chunks > 1 else None, pp_rank=r))
    return got


def read_core(text, chunks=1, **model):
    """Megatron Core's configurations take the arguments; what they do not know is returned, with the configuration of the transformer."""
    import torch
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer import TransformerConfig

    given = words_of(text)
    take = lambda *names: {n: given.pop(n) for n in names if n in given}
    config = take("num_layers", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "moe_token_dispatcher_type",
                  "recompute_granularity", "recompute_method", "recompute_num_layers", "sequence_parallel", "pipeline_model_parallel_layout")
    for ours, theirs in (("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"), ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")):
        if ours in given:
            config[theirs] = given.pop(ours)
    if chunks > 1:
        config["virtual_pipeline_model_parallel_size"] = chunks
        if "num_layers_per_virtual_pipeline_stage" in given:
            assert config["num_layers"] == config["pipeline_model_parallel_size"] * chunks * given.pop("num_layers_per_virtual_pipeline_stage")
    bf16 = take("bf16")
    DistributedDataParallelConfig(grad_reduce_in_fp32=bool(bf16) and not take("grad_reduce_in_bf16"),
                                  **take("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "use_megatron_fsdp", "data_parallel_sharding_strategy"))
    OptimizerConfig(optimizer="adam", lr=1e-4, **bf16)
    fused = not take("no_gradient_accumulation_fusion")
    return TransformerConfig(gradient_accumulation_fusion=fused, pipeline_dtype=torch.bfloat16, **bf16, **config, **model), given


def read_validated(text, model, ranks):
    """Megatron-LM's parser and validate_args take the arguments: the namespace, and the configuration made of it."""
    from megatron.training import arguments, utils

    given = words_of(text)
    flags = [w for n, v in model.items() for w in ("--" + n.replace("_", "-"), str(v))] + ["--max-position-embeddings", "1024", "--seq-length", "1024", "--lr", "1e-4", "--train-iters", "1",
             "--transformer-impl", "local", "--no-persist-layer-norm", "--no-masked-softmax-fusion", "--no-bias-swiglu-fusion", "--no-rope-fusion"]
    if "no_gradient_accumulation_fusion" not in given:
        flags.append("--no-gradient-accumulation-fusion")  # an extension of CUDA
    connections = {} if "use_megatron_fsdp" in given else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    with mock.patch.dict(os.environ, {"WORLD_SIZE": str(ranks), "RANK": "1", **connections}), mock.patch.object(sys, "argv", ["pretrain_gpt.py", *shlex.split(text, comments=True), *flags]), \
            mock.patch.object(arguments, "get_device_arch_version", lambda: 9), mock.patch.object(utils, "get_device_arch_version", lambda: 9):
        args = arguments.parse_args()
        arguments.validate_args(args)
        return args, arguments.core_transformer_config_from_args(args)


def read_megatron(plan, text, config, checkout=None):
    """Megatron-LM takes the arguments, and numbers ranks and divides layers as the plan does."""
    from megatron.core.parallel_state import RankGenerator

    chunks = plan.get("chunks", 1)
    own, ranks = stages(plan)
    last = plan["stages"][-1]["to"]
    want = [min(s["to"], last - 1) - max(s["from"], 1) for s in plan["stages"]]
    model = {"hidden_size": config["hidden_size"], "num_attention_heads": config["num_attention_heads"]}
    if "num_local_experts" in config:
        model.update(num_experts=config["num_local_experts"], moe_router_topk=2)
    if checkout:
        args, c = read_validated(text, model, ranks)
        assert args.global_batch_size == plan["global_batch"] and args.micro_batch_size * args.data_parallel_size == plan["micro_batch"]
        assert (args.virtual_pipeline_model_parallel_size or 1) == chunks
        assert args.untie_embeddings_and_output_weights != plan["predicted"].get("tied", False)
    else:
        if "num_experts" in model:
            model["num_moe_experts"] = model.pop("num_experts")
        c, left = read_core(text, chunks, **model)
        left.pop("untie_embeddings_and_output_weights", None)
        left.pop("ckpt_format", None)
        left.pop("no_overlap_p2p_communication", None)
        assert left.pop("global_batch_size") == plan["global_batch"] and not left.keys() - {"micro_batch_size"}, left
    assert layers_built(c, chunks) == want, (layers_built(c, chunks), want)
    tensor, context, pipeline = c.tensor_model_parallel_size, c.context_parallel_size, c.pipeline_model_parallel_size
    lines = RankGenerator(tp=tensor, ep=1, dp=ranks // tensor // context // pipeline, pp=pipeline, cp=context, order="tp-cp-ep-dp-pp").get_ranks("pp")
    each = ranks // pipeline
    assert sorted(lines) == [[i + s * each for s in range(pipeline)] for i in range(each)]
    return {name for name, on in (("pipeline", pipeline > 1), ("virtual stages", chunks > 1), ("tensor", tensor > 1), ("context", context > 1), ("experts", c.expert_model_parallel_size > 1)) if on}


def read(trainer, plan, text, config, checkout=None):
    """What of the plan its trainer took; an exception if it refuses it, or understands something else."""
    if trainer == "megatron":
        return read_megatron(plan, text, config, checkout)
    return {"torch": read_torch, "deepspeed": read_deepspeed}[trainer](plan, text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--megatron")
    args = parser.parse_args()
    if args.megatron:
        sys.path.insert(0, args.megatron)
        typing.override = typing_extensions.override  # Python 3.11 has none
    counts, refused = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.first, args.first + args.count):
            config, nodes, flags = job(random.Random(seed))
            for trainer in TRAINERS:
                pair = found(folder, config, nodes, flags, trainer)
                if not pair:
                    counts[trainer, "no plan"] += 1
                    continue
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        took = read(trainer, *pair, config, args.megatron)
                except Exception as e:
                    refused += 1
                    print("%d %s: REFUSED: %s: %s (%s)" % (seed, trainer, type(e).__name__, e, traceback.extract_tb(e.__traceback__)[-1]), flush=True)
                    continue
                counts[trainer, "accepted"] += 1
                counts.update((trainer, t) for t in took)
                print("%d %s: accepted %s" % (seed, trainer, ", ".join(sorted(took))), flush=True)
    for (trainer, what), n in sorted(counts.items()):
        print("%s: %s: %d" % (trainer, what, n))
    return refused > 0


if __name__ == "__main__":
    sys.exit(main())
