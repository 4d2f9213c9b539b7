"""What state_dict() says is what a save and a restore give back: python3 -m unittest discover -s python/tests, from the repository's root."""

import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.utils import parametrizations, prune
from torch.optim import lr_scheduler, swa_utils

from evenkeel import checkpoint
from evenkeel.checkpoint import Job
from test_job import Base, bits


class Counted(torch.optim.SGD):
    """State for all parameters together, below a name."""

    def step(self, closure=None):
        self.state["global"]["n"] = self.state["global"].get("n", 0) + 1
        super().step(closure)


class Histories(torch.optim.SGD):
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("norms", []).append({"norm": p.grad.norm()})  # more in every step
        super().step(closure)


class Lookahead(torch.optim.Optimizer):
    """A wrapper that keeps slow weights, and gives them in its own state_dict()."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.n = inner, 0
        self.slow = [p.detach().clone() for g in self.param_groups for p in g["params"]]

    def step(self, closure=None):
        self.inner.step(closure)
        self.n += 1
        for slow, p in zip(self.slow, (p for g in self.param_groups for p in g["params"])):
            slow.lerp_(p.detach(), 0.5)

    def state_dict(self):
        return {"inner": self.inner.state_dict(), "slow": self.slow, "n": self.n}

    def load_state_dict(self, state):
        self.inner.load_state_dict(state["inner"])
        self.slow, self.n = state["slow"], state["n"]


def hooked(params):
    o = torch.optim.AdamW(params)
    o.calls = 0
    o.register_step_post_hook(lambda o, *_: setattr(o, "calls", o.calls + 1))
    o.register_state_dict_post_hook(lambda o, state: {**state, "calls": o.calls})
    o.register_load_state_dict_pre_hook(lambda o, state: setattr(o, "calls", state["calls"]))
    return o


class Extra(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.seen = {"n": 0, "mean": torch.zeros(3)}

    def forward(self, x):
        self.seen = {"n": self.seen["n"] + 1, "mean": self.seen["mean"] + x.mean().item()}
        return super().forward(x)

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = state


class Saves(Extra):
    """Values by the methods of one module, as quantised modules have them."""

    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "mean"], destination[prefix + "n"] = self.seen["mean"], self.seen["n"]

    def _load_from_state_dict(self, state, prefix, *rest):
        self.seen = {"n": state.pop(prefix + "n"), "mean": state.pop(prefix + "mean").clone()}
        super()._load_from_state_dict(state, prefix, *rest)


class Hooks(Extra):
    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_state_dict_post_hook(lambda m, state, prefix, _: state.update({prefix + "n": m.seen["n"]}))
        self.register_load_state_dict_pre_hook(lambda m, state, prefix, *_: m.seen.update(n=state.pop(prefix + "n")))


class Overrides(Extra):
    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state

    def state_dict(self):
        return {"net": {n: p.detach() for n, p in self.named_parameters()}, "n": self.seen["n"]}

    def load_state_dict(self, state):
        self.seen["n"] = state["n"]
        super().load_state_dict(state["net"])


class Renames(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_state_dict_post_hook(lambda m, state, prefix, _: state.update({prefix + "w": state.pop(prefix + "weight")}))
        self.register_load_state_dict_pre_hook(lambda m, state, prefix, *_: state.update({prefix + "weight": state.pop(prefix + "w")}))


class Caches(nn.Linear):
    """A buffer that is not persistent and changes its shape."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.cache = torch.zeros(len(self.cache) + 1)
        return super().forward(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


class Factor:
    """A callable object, of which LambdaLR saves the attributes."""

    calls = 0

    def __call__(self, epoch):
        self.calls += 1
        return 0.9**epoch


def pruned():
    m = nn.Linear(6, 6)
    prune.random_unstructured(m, "weight", 0.5)
    return m


class Recurrent(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x)[0]


OPTIMIZERS = {"Counted": lambda p: Counted(p, 0.1, momentum=0.9), "Histories": lambda p: Histories(p, 0.1), "Lookahead": lambda p: Lookahead(torch.optim.Adam(p)), "hooks": hooked}
MODULES = {
    "BatchNorm": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(6, 6)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(6, 6)), "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(6, 6)), "pruned": pruned,
    "LSTM": lambda: Recurrent(6, 6), "attention": lambda: Attention(6, 2), "transformer": lambda: nn.TransformerEncoderLayer(6, 2, 8), "tied": Tied,
    "extra state": lambda: nn.Sequential(Extra(6, 6)), "_save_to_state_dict": lambda: nn.Sequential(Saves(6, 6)), "hooks": lambda: nn.Sequential(Hooks(6, 6)),
    "state_dict": lambda: Overrides(6, 6), "renamed": lambda: Renames(6, 6), "not persistent": lambda: nn.Sequential(Caches(6, 6)),
    "script": lambda: torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))), "averaged": lambda: swa_utils.AveragedModel(nn.Linear(6, 6), use_buffers=True),
    "DataParallel": lambda: nn.DataParallel(nn.Linear(6, 6)), "InstanceNorm": lambda: nn.Sequential(nn.Linear(6, 6), nn.InstanceNorm1d(6, affine=True, track_running_stats=True)),
    "fake quantized": lambda: nn.Sequential(nn.Linear(6, 6), torch.ao.quantization.FakeQuantize()),
}  # fmt: skip
SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, Factor()), "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9), "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 2]), "ConstantLR": lr_scheduler.ConstantLR, "LinearLR": lr_scheduler.LinearLR, "PolynomialLR": lr_scheduler.PolynomialLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9), "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5), "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 20),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2), "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3),
    "CyclicLR with a function": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3, scale_fn=Factor()), "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.LambdaLR(o, Factor())], [1]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]), "SWALR": lambda o: swa_utils.SWALR(o, 0.1),
}  # fmt: skip


def made(seed, module=lambda: nn.Linear(6, 6), optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), scheduler=None):
    torch.manual_seed(seed)
    model = module()
    o = {"model": model, "optimizer": optimizer(model.parameters()), "generator": torch.Generator().manual_seed(seed)}
    o["scaler"] = torch.amp.GradScaler("cpu", 2.0**seed, growth_interval=1)
    if scheduler:
        o["scheduler"] = scheduler(o["optimizer"])
    return o


def step(o):
    torch.manual_seed(5)
    o["optimizer"].zero_grad()
    o["scaler"].scale(o["model"](torch.randn(4, 6, 6, generator=o["generator"])).square().mean()).backward()
    o["scaler"].step(o["optimizer"])
    o["scaler"].update()
    if isinstance(o["model"], swa_utils.AveragedModel):
        o["model"].update_parameters(nn.Linear(6, 6))
    if "scheduler" in o:
        o["scheduler"].step(*[1.0] * isinstance(o["scheduler"], lr_scheduler.ReduceLROnPlateau))


def states(o):
    return {k: bits(v.get_state() if k == "generator" else {n: x for n, x in v.state_dict().items() if not callable(x)}) for k, v in o.items()}


class StateDicts(Base):
    def check(self, name, behind=False, **make):
        path = f"{self.path}.{name}"
        o = made(1, **make)
        with Job(path) as saved:
            saved.restore(**o)
            for i in range(3):
                saved.ready()
                step(o)
                saved.save(i)
            before, random = states(o), torch.get_rng_state()
            if name in ("PostLocalSGD", "module pruned"):
                with self.assertRaisesRegex(checkpoint.Usage, "audit: .* cannot be copied"):
                    saved.audit()
            else:
                saved.audit()
            self.assertTrue(states(o) == before and torch.equal(torch.get_rng_state(), random))
        want, other = states(o), made(2, **make)
        with Job(path) as saved:
            self.assertEqual(saved.restore(behind=behind, **other).step, 2)
            saved.ready()
            got = states(other)
            for key in want:
                self.assertEqual(got[key], want[key], key)
            step(o)
            step(other)
        self.assertEqual(states(other), states(o))

    def test_equal_after_a_restore(self):
        warnings.simplefilter("ignore")
        for kind, some in (("optimizer", OPTIMIZERS), ("module", MODULES), ("scheduler", SCHEDULERS)):
            for name, make in some.items():
                with self.subTest(f"{kind} {name}"):
                    self.check(f"{kind} {name}", **{kind: make})
                if kind == "optimizer" or name in ("extra state", "hooks", "script", "LSTM"):
                    with self.subTest(f"{kind} {name}, behind"):
                        self.check(f"{kind} {name} behind", behind=True, **{kind: make})

    def test_refused_by_name(self):
        warnings.simplefilter("ignore")
        torch.distributed.init_process_group("gloo", init_method=f"file://{self.folder}/store", rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        post = lambda p: PostLocalSGDOptimizer(torch.optim.SGD(p, 0.1, momentum=0.9), PeriodicModelAverager(2))  # noqa: E731
        self.check("PostLocalSGD", optimizer=post)
        o = made(1, optimizer=lambda p: ZeroRedundancyOptimizer(p, torch.optim.AdamW))
        with Job(self.path) as saved:
            saved.restore(**o)
            step(o)
            with self.assertRaisesRegex(checkpoint.Usage, "optimizer: ZeroRedundancyOptimizer does not give its state_dict"):
                saved.save(0)
        quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 6)))
        sharded = torch.distributed.tensor.distribute_tensor(torch.ones(4), torch.distributed.init_device_mesh("cpu", (1,)))
        for module, said in ((quantized, "0._packed_params.*qint8"), (nn.ParameterList([sharded]), "'0': a DTensor")):
            with Job(self.path) as saved, self.assertRaisesRegex(checkpoint.Usage, f"{said}.* cannot be stored"):
                saved.restore(model=module)
                saved.save(0)
        o = made(1, optimizer=post)
        with self.assertRaisesRegex(checkpoint.Usage, "PostLocalSGDOptimizer has a state_dict"):
            checkpoint.LayerWise(o["model"], o["optimizer"])
        with Job(self.path) as saved:
            saved.restore(model=nn.Linear(6, 6))
            saved.save(0)
        with Job(self.path) as saved, self.assertRaisesRegex(checkpoint.Schema, "'_extra_state' of the state_dict.. of 'model' was not saved"):
            saved.restore(model=Extra(6, 6))

    def test_audit(self):
        """What a save and a restore lose is told by name."""

        class Keeps:
            def __init__(self, lost):
                self.n, self.t, self.lost = 5, torch.arange(3.0), lost

            def state_dict(self):
                return {"n": self.n, "t": [self.t]}

            def load_state_dict(self, state):
                self.n, self.t = (self.n, state["t"][0]) if self.lost == "n" else (state["n"], self.t * 2 if self.lost == "t" else state["t"][0])

        for lost, said in ((None, None), ("n", r"kept.state_dict\(\)\['n'\]: the job has 5, restored is 6"), ("t", r"kept.state_dict\(\)\['t'\]\[0\]: the job has ")):
            o = {**made(1), "kept": Keeps(lost)}
            with Job(f"{self.path}.{lost}") as saved:
                saved.restore(**o)
                with self.assertRaisesRegex(checkpoint.Usage, "nothing was saved"):
                    saved.audit()
                step(o)
                saved.save(0)
                if lost:
                    with self.assertRaisesRegex(checkpoint.Corrupt, "audit: " + said):
                        saved.audit()
                    continue
                saved.audit()
                for change, where in (
                    (lambda: o["model"].weight.data.add_(1), "model.state_dict.*weight"), (lambda: o["optimizer"].param_groups[0].update(lr=7), "optimizer.state_dict.*lr"),
                    (lambda: o["generator"].manual_seed(8), "generator.state_dict"), (lambda: torch.rand(1), "generators..torch"), (lambda: o["scaler"].update(3.0), "scaler.state_dict"),
                ):  # fmt: skip
                    saved.ready()
                    saved.save(saved.durable + 1)
                    saved.audit()
                    change()
                    with self.assertRaisesRegex(checkpoint.Corrupt, f"audit: {where}"):
                        saved.audit()


if __name__ == "__main__":
    unittest.main()
