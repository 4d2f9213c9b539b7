"""Models, batches and losses of many kinds: after each round the gradient is that of one process with all samples of the round, or the job is refused with
the reason. The gradient of one process is computed here without the tuner, from the data set."""

import collections
import copy
import dataclasses
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence

import evenkeel
import fake_service
import processes
from evenkeel.tuner import Usage

LENGTH, RANKS = 120, 3
#        uneven, micro-steps of unequal size     a rank without a share                all on one
SIZES = (([13, 5, 2], [4, 5, 1]), ([11, 0, 9], [3, 1, 9]), ([0, 0, 20], [1, 1, 7]), ([7, 7, 6], [7, 7, 6]))


def sample(i):
    """Features, a class and a text of unequal length: which of its tokens count is up to the sample, and of some none do."""
    g = torch.Generator().manual_seed(i)
    text = torch.randint(1, 9, (2 + i % 7,), generator=g)
    labels = torch.where(torch.rand(len(text), generator=g) < 0.6, text, torch.full_like(text, -100))
    if i % 5 < 2:
        labels[:] = -100
    return {"i": i, "x": torch.randn(6, generator=g, dtype=torch.float64), "y": int(torch.randint(0, 3, (), generator=g)), "text": text, "labels": labels}


DATA = [sample(i) for i in range(LENGTH)]


def numbers(samples):
    return torch.tensor([s["i"] for s in samples])


def stack(samples):
    return torch.stack([s["x"] for s in samples]), torch.tensor([s["y"] for s in samples]), numbers(samples)


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


class Case:
    """A job: net() makes the model, collate a batch, step computes and goes backward, numbers(batch) says which samples a batch has. loss is what one process
    goes backward from, given samples; by default step's on them in one batch."""

    sizes, most, refused, batches, ddp, check = SIZES, 1e-12, "", {}, {}, True
    net, collate = staticmethod(mlp), staticmethod(stack)

    def numbers(self, batch):
        return batch[-1].tolist()

    def step(self, model, batch, tuner):
        self.loss_of(model, batch).backward()

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0]), batch[1])

    def one_process(self, model, samples):
        self.loss_of(model, self.collate(samples)).backward()

    def after(self, tuner, ddp, plain):
        pass


class LossAndLogits(Case):
    """As Hugging Face's models, given labels."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x, labels):
            logits = self.inner(x)
            return cross_entropy(logits, labels), logits

    net = Net

    def loss_of(self, model, batch):
        return model(batch[0], labels=batch[1])[0]


class OutputObject(Case):
    @dataclasses.dataclass
    class Output:
        loss: torch.Tensor
        logits: torch.Tensor

    class Net(LossAndLogits.Net):
        def forward(self, x, labels):
            return OutputObject.Output(*super().forward(x, labels))

    net = Net

    def loss_of(self, model, batch):
        return model(batch[0], labels=batch[1]).loss


class Forces(Case):
    """A loss of gradients with respect to inputs, as of potentials between atoms."""

    def loss_of(self, model, batch):
        x = batch[0].clone().requires_grad_()
        found = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        return mse_loss(found, batch[0]) + mse_loss(model(x).sum(1), batch[1].double())


class Penalty(Case):
    """A term of the loss that does not pass the model's output."""

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0]), batch[1]) + 0.1 * sum(p.square().sum() for p in model.parameters())


class TimeFirst(Case):
    """pad_sequence as torch has it by default: [time, batch]. The loss is a mean over samples."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(9, 5), nn.GRU(5, 4), nn.Linear(4, 3)

        def forward(self, x, lengths):
            h, _ = self.rnn(self.embed(x))
            return self.out(h[lengths - 1, torch.arange(len(lengths))])

    net = Net

    @staticmethod
    def collate(samples):
        texts = [s["text"] for s in samples]
        return pad_sequence(texts), torch.tensor([len(t) for t in texts]), torch.tensor([s["y"] for s in samples]), numbers(samples)

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0], batch[1]), batch[2])


class Ragged(Case):
    """A list of samples of unequal length, as point clouds and sounds are."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 3)

        def forward(self, clouds):
            return torch.stack([self.inner(c.double().unsqueeze(1)).tanh().mean(0) for c in clouds])

    net = Net

    @staticmethod
    def collate(samples):
        return [s["text"] for s in samples], torch.tensor([s["y"] for s in samples]), numbers(samples)


class Zipped(Ragged):
    """torchvision's collate_fn of detection."""

    @staticmethod
    def collate(samples):
        return tuple(zip(*[(s["text"], {"label": torch.tensor(s["y"])}, s["i"]) for s in samples]))

    def numbers(self, batch):
        return list(batch[2])

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0]), torch.stack([t["label"] for t in batch[1]]))


class Encoding(Case):
    """A mapping that is no dict, as BatchEncoding."""

    @staticmethod
    def collate(samples):
        return collections.UserDict(zip("xyi", stack(samples)))

    def numbers(self, batch):
        return batch["i"].tolist()

    def loss_of(self, model, batch):
        return cross_entropy(model(batch["x"]), batch["y"])


class Texts(Case):
    """Means over the tokens that count; ranks and micro-steps without any."""

    batches = {"weighted": True}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 5)
            self.out = nn.Linear(5, 9, bias=False)

        def forward(self, x):
            return self.out(self.embed(x))

    net = Net

    @staticmethod
    def collate(samples):
        texts, labels = ([s[k] for s in samples] for k in ("text", "labels"))
        return pad_sequence(texts, True), pad_sequence(labels, True, -100), numbers(samples)

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def step(self, model, batch, tuner):
        tuner.weight((batch[1] != -100).sum().item())
        self.loss_of(model, batch).backward()


class TwoForwards(Case):
    def loss_of(self, model, batch):
        a, b = model(batch[0]), model(batch[0].flip(1))
        return (a - b).square().mean() + cross_entropy(a, batch[1])


class TwoForwardsAndBuffers(TwoForwards):
    """With a deadline, one rank ends its round within a backward pass, and another after it, with one forward pass more."""

    batches, sizes = {"deadline": "1s"}, (([13, 5, 2], [4, 3, 2], (0.02, [0.01] * 3)), ([11, 0, 9], [4, 1, 5], (0.02, [0.01] * 3)))

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 3))


class TwoBackwards(Case):
    """In one micro-step, under no_sync: a rank's sum goes to the others when synchronised is read."""

    def step(self, model, batch, tuner):
        with model.no_sync():
            self.one_by_one(model, batch)

    def one_by_one(self, model, batch):
        cross_entropy(model(batch[0]), batch[1]).backward()
        model(batch[0]).square().mean().backward()

    def one_process(self, model, samples):
        self.one_by_one(model, self.collate(samples))


class Tied(Texts):
    batches = {}

    class Net(Texts.Net):
        def __init__(self):
            super().__init__()
            self.out.weight = self.embed.weight

        def forward(self, x):
            return super().forward(x).mean(1)

    net = Net

    @staticmethod
    def collate(samples):
        return pad_sequence([s["text"][:2] for s in samples], True), torch.tensor([s["y"] for s in samples]), numbers(samples)

    step, loss_of = Case.step, Case.loss_of


class Checkpointed(Case):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = mlp(), nn.Linear(3, 3)

        def forward(self, x):
            return self.out(torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False))

    net = Net


class CheckpointedNoise(Checkpointed):
    """Dropout is drawn once more in the backward pass."""

    most, sizes = float("inf"), SIZES[:2]

    class Net(Checkpointed.Net):
        def __init__(self):
            super().__init__()
            self.inner.append(nn.Dropout(0.5))

    net = Net


class Unused(Case):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.never = mlp(), nn.Linear(3, 3)

        forward = Checkpointed.Net.forward

        def forward(self, x):
            return self.inner(x)

    net, ddp = Net, {"find_unused_parameters": True}


class Buckets(Case):
    ddp = {"gradient_as_bucket_view": True}


class Skipped(Case):
    """Where the loss is not finite, the loop leaves backward out: these samples count with a gradient of 0."""

    def bad(self, numbers):
        return any(i % 11 == 0 for i in numbers)

    sizes = (([9, 6, 5], [1, 1, 1]), ([20, 0, 0], [1, 1, 1]))

    def step(self, model, batch, tuner):
        loss = self.loss_of(model, batch)
        if not (tuner.counts and self.bad(self.numbers(batch))):
            loss.backward()

    def one_process(self, model, samples):
        good = [s for s in samples if s["i"] % 11]
        if good:
            (super().loss_of(model, self.collate(good)) * len(good) / len(samples)).backward()


class Evaluated(Case):
    """Evaluation and checkpoints in the loop, through ddp.module and through ddp, on ranks without a share too."""

    def step(self, model, batch, tuner):
        super().step(model, batch, tuner)
        x = torch.stack([s["x"] for s in DATA[:50]])
        with torch.no_grad():
            assert model.module(x).shape == (50, 3)
            assert torch.equal(model(x), model.module(x))
        assert list(model.module.state_dict()) == list(mlp().state_dict())


class DropLast(Case):
    batches = {"drop_last": True}


class Normalised(Case):
    """Batch normalisation takes no single sample; with drop_last and least none comes."""

    batches = {"drop_last": True, "least": 2}
    most = float("inf")  # statistics are those of the micro-batch
    sizes = (([13, 7, 0], [3, 3, 1]), ([17, 3, 0], [4, 3, 1]))

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


class Compiled(Case):
    """The second run of a compiled model is by torch.compile's own backend eager, which needs no compiler of C."""

    sizes = SIZES[:2]

    @staticmethod
    def net():
        return torch.compile(mlp(), backend="aot_eager")


class Halves(Case):
    most = 0.05

    def loss_of(self, model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss_of(model, (batch[0].float(), batch[1]))


# Refused.


class Sum(Case):
    refused = "must be a mean over the samples"

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0]), batch[1], reduction="sum")


class SumTimeFirst(TimeFirst):
    """The check cuts by the job's own function, if there is one."""

    refused, batches = "must be a mean over the samples", {"cut": lambda b, i, j: (b[0][:, i:j], *(field[i:j] for field in b[1:]))}

    def loss_of(self, model, batch):
        return super().loss_of(model, batch) * len(batch[2])


class Contrastive(Case):
    refused = "must not compare samples with one another"

    def loss_of(self, model, batch):
        z = nn.functional.normalize(model(batch[0]), dim=1)
        return cross_entropy(z @ z.flip(1).T, torch.arange(len(z)))


class TokensUnweighted(Texts):
    refused, batches = "a mean over tokens needs batches(weighted=True)", {}
    step = Case.step


class Zeroed(Case):
    refused = "optimizer.zero_grad() belongs after optimizer.step()"

    def step(self, model, batch, tuner):
        model.zero_grad()
        super().step(model, batch, tuner)


class Accumulated(Case):
    """Over rounds."""

    refused = "p.grad still holds the gradient of an earlier round"
    keep = True


class WrongDimension(Case):
    """As many steps as samples, and a deadline, for which batches are cut: nothing about the shape says which is which."""

    refused, batches = "batches must have samples along their first dimension", {"deadline": "1s"}
    sizes = (([6, 6, 6], [6, 6, 6]),)

    @staticmethod
    def net():
        return nn.Linear(6, 3)

    @staticmethod
    def collate(samples):
        x, y, i = stack(samples)
        return nn.functional.pad(x, (0, 0, 0, 6 - len(x))).T.contiguous(), nn.functional.pad(y, (0, 6 - len(y))), i

    def loss_of(self, model, batch):
        x = batch[0].T
        return model(nn.functional.pad(x, (0, 6 - x.shape[1]))).square().mean()


class TwoBackwardsInSync(TwoBackwards):
    refused = "in the micro-step that ends a round: run all of its passes under model.no_sync()"

    def step(self, model, batch, tuner):
        self.one_by_one(model, batch)


class OneForwardTwoBackwards(TwoBackwardsInSync):
    """DDP does not see the second one."""

    def one_by_one(self, model, batch):
        out = model(batch[0])
        cross_entropy(out, batch[1]).backward(retain_graph=True)
        out.square().mean().backward()


class Uncut(Case):
    """With a deadline batches will be cut: one that cannot be is refused at once."""

    refused, batches, sizes = "its first dimension is not the samples", {"deadline": "1s"}, (([6, 6, 6], [6, 6, 6]),)

    @staticmethod
    def collate(samples):
        x, y, i = stack(samples)
        return x.flatten(), y, i

    def loss_of(self, model, batch):
        return cross_entropy(model(batch[0].view(-1, 6)), batch[1])


class WeightForgotten(Texts):
    refused = "tuner.weight() was not called in this micro-step"
    step = Case.step
    check = False


class NotAsked(Case):
    refused, asks = "call optimizer.step() only if tuner.synchronised", False


class SkippedUnasked(Skipped):
    refused, asks, check = "a micro-step without a backward pass", False, False
    sizes = (([1, 1, 1], [1, 1, 1]),)
    one_process = Case.one_process

    def bad(self, _):
        return True


def train(case, rank, rounds=14):
    """Refused is a Usage that every rank raises in its first rounds."""
    torch.manual_seed(1)
    plain = case.net().double() if case.most < 0.05 else case.net()
    if case.most == float("inf"):
        plain = plain.double()
    ddp = DDP(plain, **case.ddp)
    tuner = evenkeel.Tuner(ddp, check=case.check)
    order = tuner.batches(LENGTH, global_batch=sum(case.sizes[0][0]), **case.batches)
    loader = torch.utils.data.DataLoader(DATA, batch_sampler=order, collate_fn=case.collate, num_workers=rank == 1)
    own, seen, done, epochs, ran = [], [], 0, 0, set()
    while done < rounds:
        for batch in tuner.steps(loader):
            case.step(ddp, batch, tuner)
            if tuner.counts:
                own += case.numbers(batch)
            if not getattr(case, "asks", True) or not tuner.synchronised:
                continue
            everyone = [None] * RANKS
            dist.all_gather_object(everyone, own)
            ran.add(tuple(map(len, everyone)))
            union, own = [i for some in everyone for i in some], []
            twin = copy.deepcopy(plain)
            twin.zero_grad()
            case.one_process(twin, [DATA[i] for i in union])
            mine, its = ([torch.zeros(1) if p.grad is None else p.grad for p in m.parameters()] for m in (plain, twin))
            off = sum((a - b).square().sum() for a, b in zip(mine, its)) ** 0.5 / sum(b.square().sum() for b in its) ** 0.5
            assert off <= case.most, (type(case).__name__, done, float(off))
            seen += union
            if not getattr(case, "keep", False):
                torch.optim.SGD(ddp.parameters(), lr=0.05).step()
                ddp.zero_grad()
            case.after(tuner, ddp, plain)
            done += 1
        epochs += 1
    tuner.close()
    drawn = collections.Counter(seen)
    if case.batches.get("drop_last"):
        assert max(drawn.values()) <= epochs and len(seen) == epochs * (LENGTH - LENGTH % sum(case.sizes[0][0]))
    else:
        assert set(drawn.values()) == {epochs} and len(drawn) == LENGTH, drawn
    assert len(ran) > 1 or len(case.sizes) == 1, ran


def cases(refused):
    own = [c for c in globals().values() if isinstance(c, type) and issubclass(c, Case)]
    return [c for c in own if bool(c.refused) == refused]


class TestModels(unittest.TestCase):
    def job(self, case):
        """In processes of its own: a refused job leaves the others waiting."""
        service = fake_service.Service(lambda reports, _: case.sizes[len(reports) // 2 % len(case.sizes)])
        self.addCleanup(service.stop)

        def child(rank, port):
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
            try:
                train(case, rank)
            except Usage as e:
                assert case.refused and case.refused in str(e), e
                os._exit(0)
            except RuntimeError:
                if not case.refused:
                    raise
                os._exit(0)  # a rank that was refused has left
            assert not case.refused, "was not refused"
            dist.barrier()

        with mock.patch.dict(os.environ, {"EVENKEEL_URL": service.url}):
            processes.run(self, RANKS, child)

    def test_exact(self):
        for case in cases(False):
            with self.subTest(case.__name__):
                self.job(case())

    def test_refused(self):
        for case in cases(True):
            with self.subTest(case.__name__):
                self.job(case())


if __name__ == "__main__":
    unittest.main()
