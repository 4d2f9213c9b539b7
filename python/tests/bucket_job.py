"""A training job of test_bucket.py.

Trains in float64 for two epochs, one checkpoint a step, and compares the gradients of every step with those of one batch of
all its samples, times what it has of a mean step of the plan."""

import copy
import json
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from evenkeel.bucket import Loader

EPOCHS = 2


class Texts(torch.utils.data.Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(1, 20, (self.lengths[i],), generator=g)


def collate(texts):
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)


class Heard(torch.autograd.Function):
    """What each rank of a group has."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group, out = group, [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(out, x.contiguous(), group=group)
        return torch.stack(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad[dist.get_rank(ctx.group)], None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 6, padding_idx=0)
        self.out = torch.nn.Linear(6, 20)

    def forward(self, x, group=None):
        """The loss of every token, 0 in the padding. Of a group, each rank has a part of the tokens, and 0 in the others'."""
        h = self.embed(x)
        if group:
            rank, ranks = dist.get_rank(group), dist.get_world_size(group)
            part = h.tensor_split(ranks, 1)[rank]
            h = part.cumsum(1) + Heard.apply(part.sum(1), group)[:rank].sum(0)[:, None]
            y, of = self.out(torch.tanh(h)), x.tensor_split(ranks, 1)
            loss = torch.nn.functional.cross_entropy(y.flatten(0, 1), of[rank].flatten(), reduction="none")[None]
            return torch.cat([loss if k == rank else torch.zeros(p.shape).double() for k, p in enumerate(of)], 1)
        y = self.out(torch.tanh(h.cumsum(1)))
        return torch.nn.functional.cross_entropy(y.flatten(0, 1), x.flatten(), reduction="none").view(x.shape) * (x > 0)


COUNTS = {"weight": lambda text: 1, "token_weight": len, "label_weight": lambda text: int((text % 3 == 1).sum())}
KINDS = {  # mean losses over what COUNTS counts, by the factor of each
    "weight": lambda per_token, x: (per_token.sum(1) / (x > 0).sum(1)).mean(),
    "token_weight": lambda per_token, x: per_token.sum() / (x > 0).sum(),
    "label_weight": lambda per_token, x: (per_token * (x % 3 == 1)).sum() / max(1, (x % 3 == 1).sum()),
}


def batches(loader, change):
    """Those of an epoch, with a change of speeds between two of its steps."""
    epoch = loader.epoch
    while loader.epoch == epoch:
        for batch in loader:
            yield batch
            if change and batch.last and (epoch, batch.step) == change[:2]:
                loader.set_speeds(change[2])
                break


def run(rank, ranks, port, folder, kill, workers, speeds, change):
    """One rank. kill (epoch, step): rank 1 dies in that step, after its backward pass, before the checkpoint. change (epoch, step,
    speeds): after that step the ranks have other speeds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    with open(os.path.join(folder, "lengths.json")) as f:
        data = Texts(json.load(f))
    labels = [COUNTS["label_weight"](text) for text in data]
    with open(os.path.join(folder, "plan.json")) as f:
        steps = json.load(f)["steps"]
    mean = {kind: sum(count(text) for text in data) / steps for kind, count in COUNTS.items()}
    torch.manual_seed(1)
    model = Model().double()
    loader = Loader(data, data.lengths, os.path.join(folder, "plan.json"), labels=labels, cache=folder, speeds=speeds, collate_fn=collate, num_workers=workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = os.path.join(folder, "checkpoint.pt")
    done = []
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        done = saved["done"]
    ddp = DistributedDataParallel(model)
    worst = 0.0
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        own = []
        for batch in batches(loader, change):
            kind = list(KINDS)[batch.step % 3]
            with batch.sync(ddp):
                loss = getattr(batch, kind) * KINDS[kind](ddp(batch.data), batch.data)
                loss.backward()
            if not batch.idle:
                own += batch.samples
            if not batch.last:
                continue
            if (epoch, batch.step) == kill and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, own)
            union = sorted(sum(parts, []))
            twin = copy.deepcopy(model)
            twin.zero_grad()
            x = collate([data[i] for i in union])
            (KINDS[kind](twin(x), x) * sum(COUNTS[kind](data[i]) for i in union) / mean[kind]).backward()
            for a, b in zip(model.parameters(), twin.parameters()):
                worst = max(worst, (a.grad - b.grad).abs().max().item())
            assert worst < 1e-12, (epoch, batch.step, kind, worst)
            optimizer.step()
            optimizer.zero_grad()
            own = []
            done.append((epoch, batch.step, union))
            if rank == 0:
                torch.save({"model": model.state_dict(), "loader": loader.state_dict(), "done": done}, path + ".part")
                os.replace(path + ".part", path)
    if rank == 0:
        with open(os.path.join(folder, "done.json"), "w") as f:
            json.dump(done, f)
    dist.barrier()
