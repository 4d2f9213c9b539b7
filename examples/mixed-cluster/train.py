"""A small GPT-2 on hosts of unequal speed: as the examples of PyTorch have it, with a split by hand, and with Evenkeel. torchrun starts it on each host, run.py
all of it.

What a device would take, a layer sleeps: so much for each token, padding too, and for its attention. What happens to the hosts is in the file `weather`,
which run.py changes while the job trains.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2Config, GPT2LMHeadModel

import evenkeel
from evenkeel.bucket import Pieces
from evenkeel.checkpoint import Job

LONGEST = 512  # tokens, which are bytes
SECONDS = 1 / 24000  # of a token at pace 1
BATCH, PIECES = 48, 24  # samples of a step, over all ranks; pieces of about as many
EVERY = 20  # steps between checkpoints by hand
WEATHER = ("pace", "loader", "usual", "until")  # of each host: seconds of its device for one of the quickest's, and of its loader for a sample; the pace on good days; the job's end


class Work(torch.autograd.Function):
    """A third in the forward pass, the rest in the backward pass."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds / 3)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds * 2 / 3)
        return grad, None


class Host:
    """What this host's device and loader take now."""

    def __init__(self, weather, number):
        self.now = np.memmap(weather, np.float64, "r").reshape(-1, len(WEATHER))[number]
        self.pace = float(self.now[2])  # as its owner knows it
        self.seconds = 0.0  # that its device computed

    def compute(self, module, args, output):
        samples, length = output.shape[:2]
        seconds = self.now[0] * SECONDS * samples * length * (1 + length / 1024)
        self.seconds += seconds
        return Work.apply(output, seconds)


class Text(torch.utils.data.Dataset):
    def __init__(self, file, host):
        with open(file, "rb") as f:
            self.samples = [torch.tensor(list(line[:-1])) for line in f.read().replace(b"\x1f", b"").splitlines(True)]
        self.host = host

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        time.sleep(self.host.now[1])
        return self.samples[i]


def padded(samples):
    ids = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-1)
    return {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(), "labels": ids.masked_fill(ids < 0, -100)}


def model(host):
    net = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LONGEST, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    net.transformer.h[0].mlp.register_forward_hook(host.compute)
    return net


def trained(batch):
    """The tokens that count in a mean loss."""
    return int((batch["labels"][:, 1:] >= 0).sum())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", help="with text, plan.json and weather")
    p.add_argument("--how", choices=["plain", "by-hand", "evenkeel"], default="plain")
    p.add_argument("--without", choices=["buckets", "tuner", "checkpoints"], default="", help="what evenkeel leaves out")
    o = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    job = EvenkeelJob if o.how == "evenkeel" else PlainJob
    with open(os.path.join(o.folder, f"log.{os.environ['HOST']}"), "a", buffering=1) as log:
        job(o, Host(os.path.join(o.folder, "weather"), int(os.environ["HOST"])), log).train()
    dist.destroy_process_group()


class PlainJob:
    """Batches of as many samples for each rank, or by the hosts' usual speeds, padded to their longest; a checkpoint every EVERY steps."""

    def __init__(self, o, host, log):
        self.o, self.host, self.log, self.step, self.begun = o, host, log, 0, time.time()
        self.data = Text(os.path.join(o.folder, "text"), host)
        self.net = model(host)
        self.ddp = DDP(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-3)
        self.path = os.path.join(o.folder, "job.pt")

    def note(self, batch, loss):
        """A micro-step."""
        n = trained(batch)
        print(json.dumps({"at": time.time(), "tokens": n, "loss": loss.item() * n, "busy": self.host.seconds, "step": self.step, "run": self.begun}), file=self.log)

    def ended(self):
        over = torch.tensor([float(time.time() > self.host.now[3])])
        dist.all_reduce(over)
        return bool(over)

    def save(self, **more):
        if self.step % EVERY == 0 and dist.get_rank() == 0:
            torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step, **more}, self.path + ".new")
            os.replace(self.path + ".new", self.path)

    def load(self):
        if not os.path.exists(self.path):
            return None
        saved = torch.load(self.path)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]
        return saved

    def batches(self, epoch, first):
        """This rank's part of each batch of an epoch."""
        speeds = [None] * dist.get_world_size()
        dist.all_gather_object(speeds, 1 / self.host.pace if self.o.how == "by-hand" else 1.0)
        ends = [round(BATCH * sum(speeds[: r + 1]) / sum(speeds)) for r in range(len(speeds))]
        rank = dist.get_rank()
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(epoch)).tolist()
        for step in range(first, len(order) // BATCH):
            yield order[step * BATCH + (ends[rank - 1] if rank else 0) : step * BATCH + ends[rank]]

    def train(self):
        self.load()
        each = len(self.data) // BATCH
        while True:
            epoch, first = divmod(self.step, each)
            for batch in torch.utils.data.DataLoader(self.data, batch_sampler=list(self.batches(epoch, first)), collate_fn=padded):
                loss = self.ddp(**batch).loss
                (loss * len(batch["labels"]) * dist.get_world_size() / BATCH).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.note(batch, loss)
                self.step += 1
                self.save()
                if self.ended():
                    return


class EvenkeelJob(PlainJob):
    """Pieces of equal duration, as many for each rank as it can take, and a checkpoint every step."""

    def train(self):
        tuner = evenkeel.Tuner(self.ddp, local=self.o.without != "tuner")
        if self.o.without == "buckets":
            batches = tuner.batches(len(self.data), BATCH, weighted=True)
            loader = torch.utils.data.DataLoader(self.data, batch_sampler=batches, collate_fn=padded)
        else:
            lengths = [len(s) for s in self.data.samples]
            pieces = Pieces(self.data, lengths, os.path.join(self.o.folder, "plan.json"), collate_fn=padded, labels=[n - 1 for n in lengths])
            batches = tuner.batches(pieces.begin, PIECES, micro_batch=1)
            loader = torch.utils.data.DataLoader(pieces, batch_sampler=batches, collate_fn=list)
        saved = None
        if self.o.without != "checkpoints":
            saved = Job(self.path)
            state = saved.restore(net=self.net, optimizer=self.optimizer, tuner=tuner, reshard=True)
            self.step = state.step if state else 0
        elif found := self.load():
            tuner.load_state_dict(found["tuner"])
        while True:
            for batch in tuner.steps(loader):
                batch, weight = (batch[0].data, batch[0].label_weight) if isinstance(batch, list) else (batch, 1.0)
                if self.o.without == "buckets":
                    tuner.weight(trained(batch))
                loss = self.ddp(**batch).loss
                (loss * weight).backward()
                if tuner.counts:
                    self.note(batch, loss)
                if not tuner.synchronised:
                    continue
                if saved:
                    saved.ready()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.step += 1
                if saved:
                    saved.save(self.step)
                else:
                    self.save(tuner=tuner.state_dict())
                if self.ended():
                    tuner.close()
                    if saved:
                        saved.close()
                    return


if __name__ == "__main__":
    main()
