"""Loops of Accelerate with uneven shares: before each of the optimizer's steps the gradient is that of one process with all samples of the round, and
save_state continues where it was."""

import collections
import contextlib
import copy
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

try:
    from accelerate import Accelerator
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, GradientAccumulationPlugin

with contextlib.suppress(ImportError):
    import deepspeed  # noqa: F401  # Accelerate does, which takes seconds in each process

import processes
from evenkeel.trainers.accelerate import Tune
from evenkeel.tuner import Usage
from test_equal_steps import DATA, LENGTH, gradients, mlp, tokens, weights

RANKS, BATCH, CLIP = 3, 24, 0.05
SIZES = (([13, 5, 6],), ([14, 0, 10],), ([23, 1, 0],), ([8, 8, 8],))
ROUNDS = -(-LENGTH // BATCH)


def accelerator(micro_steps, **arguments):
    AcceleratorState._reset_state()
    GradientState._reset_state()
    return Accelerator(cpu=True, gradient_accumulation_steps=micro_steps, **arguments)


class Job:
    """A loop as Accelerate's documentation shows it. weighted: the mean is over tokens."""

    def __init__(self, test, micro_steps, weighted=False, workers=0, **arguments):
        self.test, self.weighted = test, weighted
        self.accelerator = a = accelerator(micro_steps, **arguments)
        plain = mlp()
        net = copy.deepcopy(plain)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        self.tuner = Tune(a)
        loader = self.tuner.loader(DATA, global_batch=BATCH, num_workers=workers)
        self.model, self.optimizer, self.loader = a.prepare(net, optimizer, loader)
        test.assertIs(self.loader, loader)
        self.plain, self.evaluation = plain, a.prepare(DataLoader([d[:2] for d in DATA[:20]], batch_size=4))
        self.seen, self.plans, self.rounds = [], set(), 0

    def train(self, epochs, save=None, end=None):
        a, tuner, model, union = self.accelerator, self.tuner, self.model, []
        for _ in range(epochs):
            for batch in tuner.steps(self.loader, tokens if self.weighted else None):
                with a.accumulate(model):
                    x, y, i = batch
                    union += i.tolist()[: tuner.size]
                    if self.weighted:
                        w = weights(batch)
                        loss = (cross_entropy(model(x), y, reduction="none") * w).sum() / max(float(w.sum()), 1)
                    else:
                        loss = cross_entropy(model(x), y)
                    a.backward(loss * tuner.scale)
                    if a.sync_gradients:
                        self.compare(union)
                        union = []
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                if not a.sync_gradients:
                    continue
                self.rounds += 1
                if save:
                    a.save_state(os.path.join(save, str(self.rounds)))
                if self.rounds == end:
                    break
            if self.rounds == end:
                break
            self.evaluate()
        tuner.close()

    def compare(self, union):
        """The gradient, and its norm before it is clipped."""
        everyone = [None] * RANKS
        dist.all_gather_object(everyone, union)
        samples = sum(everyone, [])
        whole = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in self.accelerator.unwrap_model(self.model).state_dict().items()}
        self.plain.load_state_dict(whole)
        each = cross_entropy(self.plain(torch.stack([DATA[i][0] for i in samples])), torch.tensor([DATA[i][1] for i in samples]), reduction="none")
        w = weights([0, 0, torch.tensor(samples)]) if self.weighted else torch.ones(len(samples))
        self.plain.zero_grad()
        ((each * w).sum() / w.sum()).backward()
        one, own = torch.cat([p.grad.flatten() for p in self.plain.parameters()]), gradients(self.model)
        self.test.assertLess(float((own - one).norm() / one.norm()), 1e-12)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), CLIP)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.test.assertLess(abs(float(norm / one.norm()) - 1), 1e-12)
        self.test.assertAlmostEqual(float(gradients(self.model).norm()), min(CLIP, float(norm)), delta=2e-6)
        self.seen += samples
        self.plans.add(tuple(map(len, everyone)))

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            n = sum(len(self.accelerator.gather_for_metrics(cross_entropy(self.model(x), y, reduction="none"))) for x, y in self.evaluation)
        self.test.assertEqual(n, 20)
        self.model.train()


class TestAccelerate(unittest.TestCase):
    def job(self, child):
        return processes.served(self, RANKS, lambda reports, _: SIZES[len(reports) % len(SIZES)], child)

    def complete(self, job, epochs):
        job.train(epochs)
        counts = collections.Counter(job.seen)
        self.assertEqual((set(counts.values()), len(counts)), ({epochs}, LENGTH))
        self.assertGreater(len(job.plans), 2)
        return job.plans

    def test_union(self):
        def child(rank):
            plans = set()
            for micro_steps, weighted, workers in ((3, False, 2), (1, True, 0), (3, True, 0)):
                plans |= self.complete(Job(self, micro_steps, weighted, workers), 1 + (workers > 0))
            self.assertTrue(any(0 in p for p in plans), plans)

        self.assertGreater(len(self.job(child).reports), 15)

    def test_fsdp2(self):
        """Accelerate's plugin wants a GPU, and shards on processors if it is told that there is one."""

        def child(rank):
            PartialState(cpu=True)
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
            plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Linear"], reshard_after_forward=True)
            job = Job(self, 3, fsdp_plugin=plugin)
            self.assertEqual(job.accelerator.distributed_type, DistributedType.FSDP)
            self.complete(job, 1)

        self.job(child)

    def test_resume(self):
        def child(rank):
            folder = [tempfile.mkdtemp()] if rank == 0 else [None]
            whole = Job(self, 3)
            dist.broadcast_object_list(folder)
            whole.train(2, folder[0])
            for at in (2, ROUNDS, ROUNDS + 3):
                again = Job(self, 3)
                again.accelerator.load_state(os.path.join(folder[0], str(at)))
                again.train(2 - (at >= ROUNDS))
                self.assertEqual(again.seen, whole.seen[len(whole.seen) - len(again.seen):])
                self.assertEqual(len(again.seen), 2 * LENGTH - (at * BATCH if at < ROUNDS else LENGTH + (at - ROUNDS) * BATCH))
                for a, b in zip(again.model.parameters(), whole.model.parameters()):
                    self.assertLess(float((a - b).abs().max()), 1e-12)
            for micro_steps in (1, 3):
                stopped = Job(self, micro_steps)
                stopped.train(1, end=2)
                self.assertEqual(stopped.tuner.state_dict()["round"], 2)

        self.job(child)

    def test_refused(self):
        def child(rank):
            job = Job(self, 2)
            with self.assertRaisesRegex(Usage, "itself"):
                next(job.tuner.steps(job.accelerator.skip_first_batches(job.loader, 2)))
            for spoil in (
                lambda j: setattr(j.accelerator, "gradient_accumulation_steps", 3),
                lambda j: setattr(j.accelerator, "accumulate", lambda *_: contextlib.nullcontext()),
                lambda j: setattr(j.accelerator, "step", 1),
                lambda j: next(iter(j.accelerator.prepare(DataLoader(DATA[:2], batch_size=2)))),  # left before its end
            ):
                job = Job(self, 2)
                spoil(job)
                with self.assertRaisesRegex(Usage, "once in each micro-step"):
                    job.train(1)
            job = Job(self, 1)
            job.accelerator.prepare(mlp())
            with self.assertRaisesRegex(Usage, "2 models"):
                job.train(1)
            whole = accelerator(1)
            whole.state.distributed_type = DistributedType.DEEPSPEED
            with self.assertRaisesRegex(Usage, "DEEPSPEED"):
                Tune(whole)

        self.job(child)


if __name__ == "__main__":
    unittest.main()
