"""Training jobs of test_bucket_online.py: float64, gradients by label tokens compared with those of one batch of the step's samples,
times its label tokens over those of a mean step, the same for the whole job."""

import copy
import json
import os
import signal
import time

import torch
import torch.distributed as dist
from bucket_job import KINDS, Model, collate
from torch.nn.parallel import DistributedDataParallel

from evenkeel.bucket import Loader, ScheduleError


class Texts(torch.utils.data.Dataset):
    """Texts as a tokenizer makes them: how long one is becomes known when it is made."""

    def __init__(self, samples, stalls=(None, 0)):
        self.samples, self.stalls, self.count = samples, stalls, 0

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        self.count += 1
        if self.count == self.stalls[0]:
            time.sleep(self.stalls[1])
        g = torch.Generator().manual_seed(i)
        n = int(torch.randint(1, 40, (), generator=g)) if i % 9 else int(torch.randint(40, 150, (), generator=g))
        return torch.randint(1, 20, (n,), generator=g)


def labels(text):
    return int((text % 3 == 1).sum())


def begin(rank, ranks, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)


def run(rank, ranks, port, folder, sizes=None, samples=0, kill=None, stall=0.0, workers=0, bad=False, pool=False):
    begin(rank, ranks, port)
    if bad:
        return (check_bad if bad is True else check_again)(rank, folder)
    shard = None
    if sizes:
        samples = sum(sizes)
        shard = list(range(sum(sizes[:rank]), sum(sizes[:rank + 1])))
    data = Texts(samples, (60, stall) if rank == 1 else (None, 0))
    loader = Loader(data, os.path.join(folder, "plan.json"), online=True, window=48, labels=labels, shard=shard, collate_fn=collate, num_workers=workers,
                    record=os.path.join(folder, "epoch{epoch}.jsonl"), patience=.5, pool=pool)
    torch.manual_seed(1)
    model = Model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=.1)
    path, done, mean = os.path.join(folder, "checkpoint.pt"), [], None
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        done, mean = saved["done"], saved["mean"]
    ddp = DistributedDataParallel(model)
    plain = Texts(samples)
    for batch in loader:
        mean = mean or loader.state_dict()["mean"][2]
        with batch.sync(ddp):
            loss = batch.label_weight * KINDS["label_weight"](ddp(batch.data), batch.data)
            loss.backward()
        if batch.step == kill and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        parts = [None] * ranks
        dist.all_gather_object(parts, [] if batch.idle else batch.samples)
        union = sorted(sum(parts, []))
        twin = copy.deepcopy(model)
        twin.zero_grad()
        x = collate([plain[i] for i in union])
        (KINDS["label_weight"](twin(x), x) * sum(labels(plain[i]) for i in union) / mean).backward()
        worst = max((a.grad - b.grad).abs().max().item() for a, b in zip(model.parameters(), twin.parameters()))
        assert worst < 1e-12, (batch.step, worst)
        optimizer.step()
        optimizer.zero_grad()
        done.append((batch.step, union))
        if rank == 0:
            torch.save({"model": model.state_dict(), "loader": loader.state_dict(), "done": done, "mean": mean}, path + ".part")
            os.replace(path + ".part", path)
    assert not loader._run.drawing.samples, "samples kept that no batch takes"
    if rank == 0:
        replay = Loader(data, None, os.path.join(folder, "epoch{epoch}.jsonl"), collate_fn=collate)
        assert replay.steps == len(done) == done[-1][0] + 1
        with open(os.path.join(folder, "done.json"), "w") as f:
            json.dump(done, f)
    dist.barrier()


def check_again(rank, folder):
    """All ranks leave off after two steps and go on; and a second epoch."""
    for pool in (False, True):
        loader, orders = Loader(Texts(200), os.path.join(folder, "plan.json"), online=True, window=48, collate_fn=collate, pool=pool), []
        for epoch in range(2):
            loader.set_epoch(epoch)
            own, steps = [], []
            for _ in range(2):
                for batch in loader:
                    own += [] if batch.idle else batch.samples
                    steps.append(batch.step)
                    if len(steps) == 2:
                        break
            assert steps == list(range(len(steps))), steps
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, own)
            orders.append(sum(parts, []))
            assert sorted(orders[-1]) == list(range(200))
        assert orders[0] != orders[1]
    if rank == 0:
        with open(os.path.join(folder, "done.json"), "w") as f:
            json.dump("ok", f)
    dist.barrier()


def check_bad(rank, folder):
    plan = os.path.join(folder, "plan.json")

    def fails(words, f):
        """On every rank, soon."""
        began = time.monotonic()
        try:
            f()
        except ScheduleError as e:
            assert words in str(e), e
        else:
            raise AssertionError(f"no error: {words}")
        assert time.monotonic() - began < 60
        dist.barrier()

    def loader(data=None, path=plan, **more):
        return Loader(data or Texts(100), path, online=True, **{"window": 48, "collate_fn": collate, **more})

    fails("rank 1: plan: " if rank != 1 else "plan: ", lambda: loader(path="none.json" if rank == 1 else plan))
    with open(plan) as f:
        other = {**json.load(f), "checksum": "d" * 16}
    if rank == 2:
        with open(os.path.join(folder, "other.json"), "w") as f:
            json.dump(other, f)
    fails("plan: 'cccccccccccccccc' on rank 0, 'dddddddddddddddd' on rank 2", lambda: loader(path=os.path.join(folder, "other.json") if rank == 2 else plan))
    fails("window: 48 on rank 0, 64 on rank 1", lambda: loader(window=64 if rank == 1 else 48))
    fails("smaller than one batch", lambda: loader(window=3))
    from evenkeel.bucket import online
    online._VERSION += rank == 1
    fails("message version: 3 on rank 0, 4 on rank 1", loader)
    online._VERSION = 3
    fails("in more than one", lambda: loader(shard=[rank, 5]))

    class Long(Texts):
        def __getitem__(self, i):
            return torch.ones(300, dtype=torch.long) if i == 7 else super().__getitem__(i)
    fails("sample 7: of length 300, it fits into no batch", lambda: list(loader(Long(100))))

    class Broken(Texts):
        def __getitem__(self, i):
            if rank == 1:
                raise ScheduleError("unreadable")
            return super().__getitem__(i)
    fails("unreadable", lambda: list(loader(Broken(100))))

    class Random(Texts):
        def __getitem__(self, i):
            return torch.ones(int(torch.randint(1, 40, (), generator=random)), dtype=torch.long)
    random = torch.Generator().manual_seed(rank)
    fails("but length", lambda: list(loader(Random(300), pool=True)))
    fails("label tokens, but length", lambda: list(loader(labels=lambda text: 1 + 100 * rank, pool=True)))
    fails("ahead: 2 on rank 0, 3 on rank 1", lambda: loader(pool=True, ahead=3 if rank == 1 else 2))
    list(loader(ahead=3 if rank == 1 else 2))  # without a pool each as it likes
    dist.barrier()
    fails("data: 'one queue' on rank 0, 'one pool' on rank 2", lambda: loader(pool=rank == 2))

    def torn(texts):
        if rank == 2:
            raise ScheduleError("cannot collate")
        return collate(texts)
    fails("cannot collate", lambda: list(loader(collate_fn=torn)))
    fails("cannot collate", lambda: list(loader(collate_fn=torn, pool=True)))

    def at_another(l):
        if rank == 1:
            l.set_epoch(1)
        return list(l)
    fails("epoch: 0 on rank 0, 1 on rank 1", lambda: at_another(loader()))
    if rank == 0:
        with open(os.path.join(folder, "done.json"), "w") as f:
            json.dump("ok", f)
    dist.barrier()
