"""Samples per second of jobs of each trainer: as its library divides a batch, at the best fixed sizes found by a sweep, and with tuned sizes, without and
with the service. Four gloo ranks of paces 1, 1, 2 and 4 sleep in a layer's forward and backward pass, for each of their samples.

    go build -o /tmp/evenkeel ./cmd/evenkeel
    EVENKEEL=/tmp/evenkeel python experiments/live/trainers.py [--only lightning fsdp2] [--rounds 60] [--json]
"""

import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]
os.environ |= {"HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false"}

import torch
import torch.distributed as dist
from torch import nn

import evenkeel
import fake_service
import processes
from faults import service

PACES = [1, 1, 2, 4]
STEPS, EACH, SECONDS = 2, 12, 0.001  # micro-steps of a round, and a rank's samples in one by default; of a sample's forward pass at pace 1
BATCH = STEPS * EACH * len(PACES)
BEFORE = 10  # rounds in which sizes settle
FIXED = [[32, 32, 16, 16], [34, 34, 18, 10], [35, 35, 17, 9], [36, 36, 16, 8], [38, 38, 14, 6]]  # the sweep
SMALL = 3  # samples of a micro-step where their number follows from the share
ENDS = []  # of rounds, in loops of one's own
GROUPS = [[66, 30], [72, 24], [78, 18], [84, 12], [90, 6]]  # that of two shard groups of two ranks, of paces 1 and 4


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds * len(x)
        time.sleep(ctx.seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(2 * ctx.seconds)
        return grad, None


class Pace(nn.Module):
    """A layer that takes as long as a rank's device would."""

    def __init__(self):
        super().__init__()
        self.seconds = SECONDS * PACES[int(os.environ["RANK"])]

    def forward(self, x, *_, **__):
        return Sleep.apply(x, self.seconds)


class Net(nn.Module):
    """A mean loss, in the form that Hugging Face's Trainer wants."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), Pace(), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x, labels=None):
        out = self.layers(x)[:, 0]
        return {"loss": (out - labels).square().mean(), "logits": out}


class Data(torch.utils.data.Dataset):
    def __init__(self, rounds):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(rounds * BATCH, 16, generator=g)
        self.labels = self.x.sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.labels[i]}


def plain_loader(data, size=EACH):
    """As the libraries' examples have it."""
    return torch.utils.data.DataLoader(data, batch_size=size, sampler=torch.utils.data.DistributedSampler(data))


def loop(wrap):
    """A loop of one's own over a model that wrap has wrapped."""

    def run(data, tuned):
        model = wrap(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if tuned and wrap is hsdp:
            tuner = evenkeel.GroupSteps(model)
            batches = tuner.steps(tuner.loader(data, global_batch=BATCH, micro_batch=SMALL))
        elif tuned:
            tuner = evenkeel.EqualSteps(model)
            batches = tuner.steps(tuner.loader(data, global_batch=BATCH, micro_steps=STEPS))
        else:
            steps, batches = (EACH * STEPS // SMALL, plain_loader(data, SMALL)) if wrap is hsdp else (STEPS, plain_loader(data))
        for i, batch in enumerate(batches):
            if wrap is hsdp and not tuned:
                model.set_requires_all_reduce(i % steps == steps - 1)
            (model(**batch)["loss"] * (tuner.scale if tuned else 1 / steps)).backward()
            if tuner.synchronised if tuned else i % steps == steps - 1:
                optimizer.step()
                optimizer.zero_grad()
                ENDS.append(time.perf_counter())

    return run


def fsdp2(net):
    from torch.distributed.fsdp import fully_shard

    fully_shard(net.layers[0])
    return fully_shard(net)


def hsdp(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(net.layers[0], mesh=mesh)
    return fully_shard(net, mesh=mesh)


def trainer(data, tuned):
    from transformers import Trainer, TrainingArguments

    from evenkeel.trainers.huggingface import tuned as tune

    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=EACH, gradient_accumulation_steps=STEPS, num_train_epochs=1, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no", dataloader_pin_memory=False)
    (tune(Trainer) if tuned else Trainer)(model=Net(), args=args, train_dataset=data).train()


def sft(data, tuned):
    """TRL on a small causal model with PEFT's adapters."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import GPT2Config, GPT2LMHeadModel
    from trl import SFTConfig, SFTTrainer

    from evenkeel.trainers.huggingface import tuned as tune

    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=8, n_layer=1, n_head=1))
    model.transformer.h.append(Pace())
    rows = Dataset.from_list([{"input_ids": [1 + i % 60] * 8} for i in range(len(data))])
    args = SFTConfig(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=EACH, gradient_accumulation_steps=STEPS, num_train_epochs=1, use_cpu=True, bf16=False, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no", dataloader_pin_memory=False, gradient_checkpointing=False, max_length=None)
    lora = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    (tune(SFTTrainer) if tuned else SFTTrainer)(model=model, args=args, train_dataset=rows, peft_config=lora, processing_class=_tokenizer()).train()


def _tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<e>": 0} | {f"w{i}": i for i in range(1, 64)}, unk_token="<e>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", pad_token="<e>")


def lightning(data, tuned):
    import lightning as L

    from evenkeel.trainers.lightning import Tune

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, index):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    tune = Tune()
    own = {"callbacks": [tune], "use_distributed_sampler": False} if tuned else {}
    loader = tune.loader(data, global_batch=BATCH, micro_steps=STEPS) if tuned else torch.utils.data.DataLoader(data, batch_size=EACH, shuffle=True)
    L.Trainer(accelerator="cpu", strategy="ddp", devices=1, num_nodes=len(PACES), accumulate_grad_batches=STEPS, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **own).fit(Module(), loader)


def accelerate(data, tuned):
    from accelerate import Accelerator

    from evenkeel.trainers.accelerate import Tune

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=STEPS)
    model = Net()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if tuned:
        tuner = Tune(accelerator)
        batches = tuner.steps(tuner.loader(data, global_batch=BATCH))
    else:
        batches = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=EACH, shuffle=True))
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"] * (tuner.scale if tuned else 1))
            optimizer.step()
            optimizer.zero_grad()


def deepspeed(data, tuned):
    import deepspeed as ds

    from evenkeel.trainers.deepspeed import Tune

    net = Net()
    config = {"train_micro_batch_size_per_gpu": EACH, "gradient_accumulation_steps": STEPS, "zero_optimization": {"stage": 2}, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}, "zero_allow_untested_optimizer": True}
    engine, *_ = ds.initialize(model=net, model_parameters=net.parameters(), config=config)
    tuner = Tune(engine) if tuned else None
    for batch in tuner.steps(tuner.loader(data)) if tuned else plain_loader(data):
        engine.backward(engine(**batch)["loss"] * (tuner.scale if tuned else 1))
        engine.step()


JOBS = {
    "ddp": ("torch", loop(nn.parallel.DistributedDataParallel)),
    "fsdp2": ("torch", loop(fsdp2)),
    "hsdp": ("torch", loop(hsdp)),
    "huggingface": ("transformers", trainer),
    "trl-sft-lora": ("trl", sft),
    "lightning": ("lightning", lightning),
    "accelerate": ("accelerate", accelerate),
    "deepspeed-zero2": ("deepspeed", deepspeed),
}


def job(name, rounds, tuned):
    """One rank's side: samples per second of all ranks from the first forward pass, and from the eleventh round."""
    data, begun = Data(rounds), []
    Pace.forward = noted(Pace.forward, begun)
    JOBS[name][1](data, tuned)
    ended = time.perf_counter()
    return len(data) / (ended - begun[0]), (len(data) - BEFORE * BATCH) / (ended - (ENDS[BEFORE - 1] if ENDS else begun[BEFORE * STEPS]))


def child(rank, port, name, rounds, tuned, results):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": "0" if name == "lightning" else str(rank), "NODE_RANK": str(rank), "WORLD_SIZE": str(len(PACES)), "LOCAL_WORLD_SIZE": "1" if name == "lightning" else str(len(PACES)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if name not in ("huggingface", "trl-sft-lora", "lightning", "accelerate"):
        dist.init_process_group("gloo", rank=rank, world_size=len(PACES))
    with open(os.environ.get("TRAINERS_LOG", os.devnull), "a") as log:
        os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
    speed = job(name, rounds, tuned)
    if rank == 0:
        results.put(speed)
    dist.barrier()


def noted(forward, begun):
    """Notes when each forward pass began: what comes before the first is not the trainer's."""

    def wrapped(*args, **more):
        begun.append(time.perf_counter())
        return forward(*args, **more)

    return wrapped


def run(name, rounds, tuned, url=""):
    os.environ.pop("EVENKEEL_URL", None)
    if url:
        os.environ["EVENKEEL_URL"] = url
    context, port = multiprocessing.get_context("fork"), processes.free_port()
    results = context.Queue()
    ranks = [context.Process(target=child, args=(r, port, name, rounds, tuned, results)) for r in range(len(PACES))]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    if any(p.exitcode for p in ranks):
        sys.exit(f"{name}: a rank failed; TRAINERS_LOG=FILE keeps what it printed")
    return results.get()


def best(name, rounds):
    """The best of the fixed sizes, and its samples per second once they hold."""
    found = {}
    for shares in GROUPS if name == "hsdp" else FIXED:
        fixed = fake_service.Service(lambda reports, _, shares=shares: [shares])
        found[tuple(shares)] = run(name, rounds, True, fixed.url)[1]
        fixed.stop()
    return max(found.items(), key=lambda kv: kv[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    rows = []
    if not o.json:
        print("samples/s of the library's own division; times as many with the best fixed sizes; with tuned sizes, whole run and from round 11, which over the best")
    with service() as url:
        for name in o.only:
            library = JOBS[name][0]
            importlib.import_module(library)  # once, and not in each process
            shares, top = best(name, o.rounds)
            found = {c: [] for c in ("default", "local", "service")}
            for i in range(o.repeat):
                os.environ["EVENKEEL_JOB"] = f"{name}-{i}"
                for c in found:
                    found[c].append(run(name, o.rounds, c != "default", url if c == "service" else ""))
            row = {"trainer": name, "library": f"{library} {importlib.metadata.version(library)}", "sizes": shares, "best": top}
            for c, speeds in found.items():
                row[c], row[f"{c}_later"] = (statistics.median(s) for s in zip(*speeds))
            rows.append(row)
            if not o.json:
                d, later = row["default"], row["default_later"]
                tuned = "; ".join(f"{c} {row[c] / d:.2f}x, later {row[c + '_later'] / later:.2f}x, {row[c + '_later'] / top:.3f}" for c in ("local", "service"))
                print(f"{name:16s} {row['library']:20s} {d:5.0f}; {list(shares)} {top / later:.2f}x; {tuned}", flush=True)
    if o.json:
        print(json.dumps({"rounds": o.rounds, "repeat": o.repeat, "rows": rows}))


if __name__ == "__main__":
    main()
