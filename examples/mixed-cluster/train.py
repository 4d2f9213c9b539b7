"""A small GPT-2 on hosts of unequal speed: as the examples of PyTorch have it, with a split by hand, with samples taken from one counter, and with Evenkeel.
torchrun starts it on each host, run.py all of it.

A pass takes as long as its emulated device would: so much for each token, padding too, and for its attention. What happens to the hosts is in the file
`weather`, which run.py changes while the job trains.
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
from evenkeel.checkpoint import Job
from scenario import seconds_of

LONGEST = 512  # tokens, which are bytes
BATCH, MICRO_STEPS = 96, 12  # samples of a step, over all ranks; micro-steps of a rank with Evenkeel
EVERY = 10  # steps between checkpoints by hand
WEATHER = ("pace", "loader", "usual", "until")  # of each host: seconds of its device for one of the quickest's, and of its loader for a sample; the pace on good days; the job's end


class Emulated(torch.autograd.Function):
    """The identity on the loss: a third of the time ends with the forward pass, and the backward pass begins here."""

    @staticmethod
    def forward(ctx, x, host):
        ctx.host, ctx.seconds = host, host.of_pass
        host.wait(host.began + ctx.seconds / 3)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.host.began, ctx.host.of_pass = time.perf_counter(), ctx.seconds
        return grad, None


class Backward(torch.autograd.Function):
    """The identity behind the embeddings, where the backward pass ends."""

    @staticmethod
    def forward(ctx, x, host):
        ctx.host = host
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.host.wait(ctx.host.began + ctx.host.of_pass * 2 / 3)
        return grad, None


class Host:
    """What this host's device and loader take now."""

    def __init__(self, weather, number):
        self.now = np.memmap(weather, np.float64, "r").reshape(-1, len(WEATHER))[number]
        self.pace = float(self.now[2])  # as its owner knows it
        self.seconds = self.began = self.of_pass = 0.0  # that its device computed; of the present pass

    def begin(self, module, args, kwargs):
        samples, length = kwargs["input_ids"].shape
        self.began, self.of_pass = time.perf_counter(), self.now[0] * seconds_of(samples, length)
        self.seconds += self.of_pass

    def end(self, module, args, output):
        output.loss = Emulated.apply(output.loss, self)

    def wait(self, until):
        time.sleep(max(until - time.perf_counter(), 0))

    def emulate(self, net):
        net.register_forward_pre_hook(self.begin, with_kwargs=True)
        net.transformer.drop.register_forward_hook(lambda module, args, output: Backward.apply(output, self))
        net.register_forward_hook(self.end)


class Text(torch.utils.data.Dataset):
    def __init__(self, file, host):
        with open(file, "rb") as f:
            self.samples = [torch.tensor(list(line[:-1])) for line in f.read().replace(b"\x1f", b"").splitlines(True)]
        self.host = host

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        time.sleep(self.host.now[1])
        return i, self.samples[i]


def padded(samples):
    ids = torch.nn.utils.rnn.pad_sequence([text for _, text in samples], batch_first=True, padding_value=-1)
    return {"samples": torch.tensor([i for i, _ in samples]), "input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(), "labels": ids.masked_fill(ids < 0, -100)}


def model(host):
    net = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LONGEST, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    host.emulate(net)
    return net


def trained(batch):
    """The tokens that count in a mean loss."""
    return int((batch["labels"][:, 1:] >= 0).sum())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", help="with text and weather")
    p.add_argument("--how", choices=JOBS, default="plain")
    p.add_argument("--without", choices=["service", "buckets", "tuner", "checkpoints"], default="", help="what evenkeel leaves out")
    o = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["SEED"]))
    dist.init_process_group("gloo")
    with open(os.path.join(o.folder, f"log.{os.environ['HOST']}"), "a", buffering=1) as log:
        JOBS[o.how](o, Host(os.path.join(o.folder, "weather"), int(os.environ["HOST"])), log).train()
    dist.destroy_process_group()


class PlainJob:
    """Batches of as many samples for each rank, or by the hosts' usual speeds, padded to their longest; a checkpoint every EVERY steps."""

    def __init__(self, o, host, log):
        self.o, self.host, self.log, self.step, self.begun = o, host, log, 0, time.time()
        self.data = Text(os.path.join(o.folder, "text"), host)
        self.steps = -(-len(self.data) // BATCH)  # of an epoch
        self.net = model(host)
        self.ddp = DDP(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-3)
        self.path = os.path.join(o.folder, "disk", "job.pt")

    def loss(self, batch):
        return self.ddp(**{name: x for name, x in batch.items() if name != "samples"}).loss

    def note(self, batch, loss):
        """A micro-step."""
        n = trained(batch)
        print(json.dumps({"at": time.time(), "tokens": n, "loss": loss.item() * n, "busy": self.host.seconds, "step": self.step, "run": self.begun, "samples": batch["samples"].tolist()}), file=self.log)

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

    def order(self, epoch):
        return torch.randperm(len(self.data), generator=torch.Generator().manual_seed(1000 * int(os.environ["SEED"]) + epoch)).tolist()

    def batches(self, epoch, first):
        """This rank's part of each batch of an epoch."""
        speeds = [None] * dist.get_world_size()
        dist.all_gather_object(speeds, 1 / self.host.pace if self.o.how == "by-hand" else 1.0)
        rank, order = dist.get_rank(), self.order(epoch)
        for step in range(first, self.steps):
            batch = order[step * BATCH : (step + 1) * BATCH]
            begin, end = (round(len(batch) * sum(speeds[:r]) / sum(speeds)) for r in (rank, rank + 1))
            yield batch[begin:end]

    def backward(self, batch):
        """Of the mean over the samples of the step, for the ranks' mean."""
        loss, total = self.loss(batch), min(BATCH, len(self.data) - self.step % self.steps * BATCH)
        (loss * len(batch["samples"]) * dist.get_world_size() / total).backward()
        self.note(batch, loss)

    def stepped(self):
        """Ends a step. Says whether the job is over."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.save()
        return self.ended()

    def train(self):
        self.load()
        while True:
            epoch, first = divmod(self.step, self.steps)
            for batch in torch.utils.data.DataLoader(self.data, batch_sampler=list(self.batches(epoch, first)), collate_fn=padded):
                self.backward(batch)
                if self.stepped():
                    return


class SharedJob(PlainJob):
    """A rank takes one more sample while the batch lacks some, as in hivemind, whose peers count towards one batch."""

    def train(self):
        self.load()
        store = dist.distributed_c10d._get_default_store()
        while True:
            epoch, step = divmod(self.step, self.steps)
            order = self.order(epoch)[step * BATCH : (step + 1) * BATCH]
            with self.ddp.no_sync():
                while (end := store.add(f"taken {self.step}", 1)) <= len(order):
                    self.backward(padded([self.data[order[end - 1]]]))
            for p in self.net.parameters():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
            dist.all_reduce(flat)
            for p, grad in zip(self.net.parameters(), flat.split([p.numel() for p in self.net.parameters()])):
                p.grad.copy_(grad.view_as(p) / dist.get_world_size())
            if self.stepped():
                return


class EvenkeelJob(PlainJob):
    """Each rank takes the samples whose cost it can compute in the same time as the others, and saves each step."""

    def train(self):
        tuner = evenkeel.Tuner(self.ddp, local=self.o.without != "tuner")
        costs = None if self.o.without == "buckets" else [seconds_of(1, len(s)) for s in self.data.samples]
        batches = tuner.batches(len(self.data), BATCH, seed=int(os.environ["SEED"]), weighted=True, costs=costs, micro_steps=MICRO_STEPS)
        loader = torch.utils.data.DataLoader(self.data, batch_sampler=batches, collate_fn=padded)
        saved = None
        if self.o.without != "checkpoints":
            saved = Job(self.path)
            state = saved.restore(net=self.net, optimizer=self.optimizer, tuner=tuner, reshard=True)
            self.step = state.step if state else 0
        elif found := self.load():
            tuner.load_state_dict(found["tuner"])
        while True:
            for batch in tuner.steps(loader):
                tuner.weight(trained(batch))
                loss = self.loss(batch)
                loss.backward()
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


JOBS = {"plain": PlainJob, "by-hand": PlainJob, "shared": SharedJob, "evenkeel": EvenkeelJob}

if __name__ == "__main__":
    main()
