"""DeepSpeed with uneven shares under each stage of ZeRO: before each step of the optimizer the gradient is that of one process with all samples of the round, a
checkpoint continues where it was, and the guide's script for fixed sizes trains as one process does."""

import collections
import os
import re
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

try:
    import deepspeed
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
import deepspeed.runtime.zero.muon.muon_optimizer  # here once, since it takes seconds: else each rank does so with its first engine
import evenkeel
import processes
from evenkeel.trainers.deepspeed import Tune
from evenkeel.tuner import Usage
from test_equal_steps import BATCH, DATA, LENGTH, mlp, tokens, weights

RANKS = 3
SIZES = (([13, 5, 6],), ([14, 0, 10],), ([20, 1, 3],), ([8, 8, 8],))


def initialize(stage, micro_steps, net=None, **arguments):
    """Stage 0 in double precision; the others keep gradients in single precision, whatever the model's."""
    net = net or mlp().to(torch.float32 if stage else torch.float64)
    config = {"train_micro_batch_size_per_gpu": BATCH // RANKS, "gradient_accumulation_steps": micro_steps, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}
    return deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.5), config={**config, **arguments.pop("config", {})}, **arguments)[0]


def full(engine):
    """All parameters in one tensor."""
    params = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(params, enabled=engine.zero_optimization_partition_weights()):
        return torch.cat([p.detach().flatten() for p in params]).double()


def everyone(own):
    out = [None] * RANKS
    dist.all_gather_object(out, own)
    return sum(out, [])


def one_process(parameters, samples, w):
    """The gradient of the mean over samples, weighted."""
    plain = mlp()
    torch.nn.utils.vector_to_parameters(parameters, plain.parameters())
    each = cross_entropy(plain(torch.stack([DATA[i][0] for i in samples])), torch.tensor([DATA[i][1] for i in samples]), reduction="none")
    ((each * w).sum() / w.sum()).backward()
    return torch.cat([p.grad.flatten() for p in plain.parameters()])


class TestDeepSpeed(unittest.TestCase):
    def job(self, child):
        def start(rank):
            sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # an extension that training does not use, and that takes half a minute to compile
            deepspeed.get_accelerator().supported_dtypes = lambda: [torch.float64, torch.float32]  # stage 0 reduces no others
            deepspeed.init_distributed()
            child(rank)

        return processes.served(self, RANKS, lambda reports, _: SIZES[len(reports) // 2 % len(SIZES)], start)

    def train(self, engine, tuner, loader, weighted=False, stepped=lambda: None):
        """An epoch, compared with one process. Returns its samples by rounds."""
        seen, union, double = [], [], not engine.zero_optimization_stage()
        for batch in tuner.steps(loader, tokens if weighted else None):
            x, y, i = batch
            union += i.tolist()[: tuner.size]
            loss = cross_entropy(engine(x if double else x.float()), y, reduction="none" if weighted else "mean")
            if weighted:
                w = weights(batch)
                loss = (loss * w).sum() / max(float(w.sum()), 1)
            engine.backward(loss * tuner.scale)
            last = engine.is_gradient_accumulation_boundary()
            if last:
                samples, union = everyone(union), []
                seen.append(samples)
                w = weights([0, 0, torch.tensor(samples)]) if weighted else torch.ones(len(samples))
                one = one_process(full(engine), samples, w)
                own = torch.cat([deepspeed.utils.safe_get_full_grad(p).flatten() for p in engine.module.parameters()])
                self.assertLess(float((own - one).norm() / one.norm()), 1e-12 if double else 1e-6)
            engine.step()
            if last:
                stepped()
        return seen

    def test_union(self):
        def child(rank):
            for stage in range(4):
                for micro_steps, weighted in ((1, False), (3, stage % 2 == 0)):
                    engine = initialize(stage, micro_steps)
                    engine.communication_data_type = torch.float32 if stage else torch.float64
                    tuner = Tune(engine)
                    loader = tuner.loader(DATA, BATCH if micro_steps > 1 else 0, num_workers=2 * (micro_steps > 1))
                    plans, seen = set(), []
                    for _ in range(2):
                        seen += self.train(engine, tuner, loader, weighted, lambda: plans.add(tuple(tuner.order.counts(tuner.order.round))))
                    counts = collections.Counter(sum(seen, []))
                    self.assertEqual((set(counts.values()), len(counts)), ({2}, LENGTH))
                    self.assertGreater(len(plans), 2)
                    tuner.close()

        service = self.job(child)
        self.assertGreater(len(service.reports), 6)

    def test_resume(self):
        """Amid both epochs, from a checkpoint that the loop saved after a step."""

        def child(rank, folder):
            for stage in (1, 3):
                engine = initialize(stage, 2)
                tuner = Tune(engine)
                loader = tuner.loader(DATA, BATCH)
                save = lambda: engine.save_checkpoint(folder, tag=f"{stage}-{engine.global_steps}", client_state={"evenkeel": tuner.state_dict()})  # noqa: E731
                whole = [s for _ in range(2) for s in self.train(engine, tuner, loader, stepped=lambda: engine.global_steps in (2, 6, 7) and save())]
                for at in (2, 6, 7):  # an epoch has 6
                    again = initialize(stage, 2)
                    tuner = Tune(again)
                    loader = tuner.loader(DATA, BATCH)
                    _, client = again.load_checkpoint(folder, tag=f"{stage}-{at}")
                    tuner.load_state_dict(client["evenkeel"])
                    rest = [s for _ in range(2 if at < 6 else 1) for s in self.train(again, tuner, loader)]
                    self.assertEqual([sorted(s) for s in rest], [sorted(s) for s in whole[at:]])
                    self.assertLess(float((full(again) - full(engine)).abs().max()), 1e-6)

        with tempfile.TemporaryDirectory() as folder:
            self.job(lambda rank: child(rank, folder))

    def test_refused(self):
        def child(rank):
            net = lambda: mlp().float()  # noqa: E731
            with self.assertRaisesRegex(Usage, r"trainers.deepspeed.Tune\(engine\)"):
                evenkeel.EqualSteps(initialize(0, 1))
            for arguments, word in (
                ({"config": {"data_efficiency": {"enabled": True, "data_sampling": {"enabled": True, "curriculum_learning": {"enabled": True, "curriculum_metrics": {}}}}}}, "curriculum"),
                ({"config": {"managed_gradient_accumulation": False}}, "managed_gradient_accumulation"),
                ({"net": deepspeed.pipe.PipelineModule(list(net()), num_stages=1)}, "PipelineModule"),
            ):
                with self.assertRaisesRegex(Usage, word):
                    Tune(initialize(0, 1, **arguments))

            engine, _, theirs, _ = deepspeed.initialize(model=net(), optimizer=torch.optim.SGD(net().parameters(), lr=1), config={"train_micro_batch_size_per_gpu": 1}, training_data=DATA)
            with self.assertRaisesRegex(Usage, "tuner.loader"):
                next(Tune(engine).steps(theirs))

            def epoch(step, before=lambda engine, tuner: None):
                engine = initialize(2, 2)
                tuner = Tune(engine)
                loader = tuner.loader(DATA, BATCH)
                before(engine, tuner)
                for _ in range(2):
                    for x, y, _ in tuner.steps(loader):
                        engine.backward(cross_entropy(engine(x.float()), y) * tuner.scale)
                        if step(engine, tuner):
                            break

            for step, before, word in (
                (lambda e, t: t.synchronised and e.step(), None, r"call engine.step\(\) once"),
                (lambda e, t: e.step() or True, None, "micro-step 1 of 2; gradient_accumulation_steps 2"),
                (lambda e, t: e.step(), lambda e, t: e.set_train_batch_size(BATCH), "micro-step 1 of 2; gradient_accumulation_steps 1"),
            ):
                with self.assertRaisesRegex(Usage, word):
                    epoch(step, before or (lambda e, t: None))

        self.job(child)

    def test_guide(self):
        """docs/guides/trainers.md: its script trains with what evenkeel export has written, under each stage as one process."""
        with open(os.path.join(ROOT, "docs", "guides", "trainers.md")) as f:
            blocks = re.findall(r"```python\n(.*?)```", f.read(), re.DOTALL)
        sampler = next(b for b in blocks if "class UnevenBatches" in b).split("torch.distributed.init_process_group")[0]
        script = next(b for b in blocks if "deepspeed.initialize" in b).replace("deepspeed.json", os.path.join(ROOT, "agent", "export", "testdata", "deepspeed.golden"))

        def child(rank):
            for stage in range(4):
                torch.manual_seed(1)
                names = {"deepspeed": deepspeed, "dataset": [(x.float(), y) for x, y, _ in DATA], "model": mlp().float(), "criterion": cross_entropy}
                names["my_config"] = {"zero_optimization": {"stage": stage}, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_allow_untested_optimizer": True}
                exec(sampler + script, names)
                plain, order = torch.nn.utils.parameters_to_vector(mlp().parameters()).detach(), names["batches"]
                samples = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(order.seed)).tolist()
                self.assertEqual((order.sizes, len(order)), ([47, 6, 11], 2))
                for at in (0, 64):
                    plain -= 0.5 * one_process(plain, samples[at : at + 64], torch.ones(64))
                self.assertLess(float((full(names["engine"]) - plain).norm() / plain.norm()), 1e-6)

        self.job(child)


if __name__ == "__main__":
    unittest.main()
