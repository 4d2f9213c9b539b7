"""python3 -m unittest discover -s python/tests, from the repository's root; EVENKEEL names the built command."""

import collections
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import numpy
import torch

from evenkeel import checkpoint
from evenkeel.checkpoint import Job, interchange, tensor_file
from evenkeel.checkpoint.file import layout
from evenkeel.checkpoint.state import values


OPTIMIZERS = {
    "SGD": {"lr": 0.1}, "SGD momentum": {"lr": 0.1, "momentum": 0.9}, "SGD nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "SGD dampening": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, "Adam": {}, "Adam amsgrad": {"amsgrad": True}, "AdamW": {}, "Adamax": {},
    "Adagrad": {}, "Adadelta": {}, "ASGD": {"t0": 2}, "NAdam": {}, "RAdam": {}, "RMSprop": {}, "RMSprop centered": {"centered": True, "momentum": 0.5},
    "Rprop": {}, "LBFGS": {}, "AdamW foreach": {"foreach": True}, "SparseAdam": {}, "Adafactor": {},
    "Muon": {},
}  # fmt: skip


def steps(name, model, optimizer, some):
    for step in some:
        g = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=g)

        def loss():
            optimizer.zero_grad()
            value = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            value.backward()
            return value

        if name == "LBFGS":
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()


def made(name, seed=1):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    return model, getattr(torch.optim, name.split()[0])([p for p in model.parameters() if name != "Muon" or p.dim() == 2], **OPTIMIZERS[name])


def bits(*values):
    """Tensors and plain values as something that compares to the bit."""
    out = []
    for v in values:
        if torch.is_tensor(v):
            out.append((str(v.dtype), tuple(v.shape), bytes(layout.memory(layout.stored(v)))))
        elif isinstance(v, dict):
            out.append(sorted((str(k), bits(x)) for k, x in v.items()))
        elif isinstance(v, (list, tuple)):
            out.append([bits(x) for x in v])
        else:
            out.append(repr(v))
    return out


def whole(model, optimizer):
    return bits(model.state_dict(), optimizer.state_dict())


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "run.ckpt")


class Objects(Base):
    def test_every_optimizer_neutral_and_resumed_or_refused(self):
        names = [n for n in OPTIMIZERS if n != "SparseAdam"]
        tried = {n.split()[0] for n in OPTIMIZERS}
        here = {n for n, c in vars(torch.optim).items() if isinstance(c, type) and issubclass(c, torch.optim.Optimizer) and n != "Optimizer"}
        self.assertEqual(here - tried, set(), "optimizers that no test has")
        for name in names:
            model, optimizer = made(name)
            steps(name, model, optimizer, range(8))
            want = whole(model, optimizer)
            path = self.path + name
            model, optimizer = made(name)
            with Job(path) as saved:
                self.assertIsNone(saved.restore(model=model, optimizer=optimizer))
                if name == "LBFGS":
                    with self.assertRaisesRegex(checkpoint.Usage, "LBFGS"):
                        saved.save(0)
                    self.assertFalse(os.path.exists(path))
                    continue
                for step in range(5):
                    saved.ready()
                    steps(name, model, optimizer, [step])
                    saved.save(step)
            model, optimizer = made(name, seed=9)
            with Job(path) as saved:
                self.assertEqual(saved.restore(model=model, optimizer=optimizer).step, 4, name)
                for step in range(5, 8):
                    saved.ready()
                    steps(name, model, optimizer, [step])
                    saved.save(step)
            self.assertEqual(whole(model, optimizer), want, name)

    def test_sparse(self):
        def job_(seed):
            torch.manual_seed(seed)
            m = torch.nn.Embedding(20, 4, sparse=True)
            return m, torch.optim.SparseAdam(list(m.parameters()))

        def step(m, o, i):
            o.zero_grad()
            m(torch.tensor([i, (3 * i) % 20])).square().sum().backward()
            o.step()

        m, o = job_(1)
        for i in range(6):
            step(m, o, i)
        want = whole(m, o)
        m, o = job_(1)
        with Job(self.path) as saved:
            saved.restore(model=m, optimizer=o)
            for i in range(3):
                saved.ready()
                step(m, o, i)
                saved.save(i)
        m, o = job_(2)
        with Job(self.path) as saved:
            saved.restore(model=m, optimizer=o)
            for i in range(3, 6):
                step(m, o, i)
        self.assertEqual(whole(m, o), want)

    def all(self, seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.BatchNorm1d(20), torch.nn.Dropout(0.3), torch.nn.Linear(20, 1))
        optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.01}, {"params": [*model[1].parameters(), *model[3].parameters()], "weight_decay": 0.1}])
        scheduler = torch.optim.lr_scheduler.SequentialLR(
            optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])], [3]
        )
        ema = torch.optim.swa_utils.AveragedModel(model)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema, "generator": torch.Generator().manual_seed(seed), "sampler": Sampler()}

    def step(self, o):
        x = torch.randn(16, 8, generator=o["generator"]) + random.random() + numpy.random.rand()
        o["optimizer"].zero_grad()
        torch.nn.functional.mse_loss(o["model"](x), x.sum(1, keepdim=True)).backward()
        o["optimizer"].step()
        o["scheduler"].step()
        o["ema"].update_parameters(o["model"])
        o["sampler"].at += 16

    def test_everything_resumes_to_the_bit(self):
        def seeded(seed):
            random.seed(seed), numpy.random.seed(seed)
            return self.all(seed)

        def end(o):
            return bits(o["model"].state_dict(), o["optimizer"].state_dict(), o["ema"].state_dict(), o["sampler"].at, o["scheduler"].get_last_lr(), torch.rand(2), random.random(), numpy.random.rand())

        o = seeded(1)
        for _ in range(9):
            self.step(o)
        want = end(o)
        o = seeded(1)
        with Job(self.path) as saved:
            self.assertIsNone(saved.restore(**o))
            for i in range(6):
                saved.ready()
                self.step(o)
                saved.save(i, cursor=16 * (i + 1))
        o = seeded(2)
        with Job(self.path) as saved:
            state = saved.restore(**o)
            self.assertEqual((state.step, state.cursor), (5, 96))
            for i in range(6, 9):
                saved.ready()
                self.step(o)
                saved.save(i)
        self.assertEqual(end(o), want)

    def test_schedulers(self):
        kinds = torch.optim.lr_scheduler
        for make in (
            lambda o: kinds.OneCycleLR(o, 0.1, 20), lambda o: kinds.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False), lambda o: kinds.CosineAnnealingWarmRestarts(o, 3),
            lambda o: kinds.LambdaLR(o, lambda e: 0.9**e), lambda o: kinds.ReduceLROnPlateau(o, patience=1), lambda o: kinds.ExponentialLR(o, 0.9),
        ):  # fmt: skip
            _, o = made("Adam")
            _, o2 = made("Adam", 2)
            s, s2 = make(o), make(o2)

            def go(s, n):
                for i in range(n):
                    s.step(i) if isinstance(s, kinds.ReduceLROnPlateau) else s.step()

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                go(s, 4)
                tree = values.encode({k: v for k, v in s.state_dict().items() if not callable(v)}, "s", None)
                s2.load_state_dict(values.decode(json.loads(json.dumps(tree)), None))
                o2.load_state_dict(o.state_dict())
                go(s, 5), go(s2, 5)
            self.assertEqual(o.param_groups[0]["lr"], o2.param_groups[0]["lr"], type(s).__name__)

    def test_live_references(self):
        """Reloaded optimizers, moved models and reassigned buffers are saved as they are at the save."""
        model, optimizer = made("AdamW")
        model.register_buffer("seen", torch.zeros(1))
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            steps("AdamW", model, optimizer, [0])
            saved.save(0)
            saved.ready()
            state = copy.deepcopy(optimizer.state_dict())
            state["state"][0]["exp_avg"] += 0.56
            optimizer.load_state_dict(state)
            model.seen = torch.ones(1) * 7
            saved.save(1)
            saved.wait()
            want = whole(model, optimizer)
            model.double()
            with self.assertRaisesRegex(checkpoint.Schema, "'0.weight' changed since the file was created: .*float64"):
                saved.save(2)
        other, o2 = made("AdamW", 3)
        other.register_buffer("seen", torch.zeros(1))
        with Job(self.path) as saved:
            saved.restore(model=other, optimizer=o2)
        self.assertEqual(whole(other, o2), want)

    def test_partly_filled_state_grows(self):
        model, optimizer = made("AdamW")
        model[2].requires_grad_(False)
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            for step in range(4):
                saved.ready()
                if step == 2:
                    model[2].requires_grad_(True)
                steps("AdamW", model, optimizer, [step])
                saved.save(step)
                saved.wait()
        self.assertEqual(os.listdir(self.folder), ["run.ckpt"])
        other, o2 = made("AdamW", 3)
        with Job(self.path) as saved:
            self.assertEqual(saved.restore(model=other, optimizer=o2).step, 3)
        self.assertEqual(whole(other, o2), whole(model, optimizer))

    def test_encoding(self):
        tree = {
            "f": [0.1, float("inf"), -0.0, 1e-320], "t": (1, (2, None)), "b": b"\0\xff", 3: True, (1, 2): "k", "s": {3, 1}, "c": collections.Counter([1, 1]), "q": collections.deque([1], 4),
            "n": numpy.arange(6, dtype=numpy.int16).reshape(2, 3), "g": numpy.float32(0.1), "d": torch.bfloat16, "o": collections.OrderedDict(a=1), "z": 1 + 2j, "big": 1 << 80,
        }  # fmt: skip
        back = values.decode(json.loads(json.dumps(values.encode(tree, "x", None))), None)
        self.assertEqual(repr(back), repr(tree))
        self.assertTrue(numpy.isnan(values.decode(values.encode(float("nan"), "x", None), None)))
        with self.assertRaisesRegex(checkpoint.Usage, "x.a.0: .*object cannot be stored"):
            values.encode({"a": [object()]}, "x", None)


class Kept(Base):
    def run_(self, steps_, metrics, seed=1):
        model, optimizer = made("AdamW", seed)
        ends = {}
        with Job(self.path, keep_every=4, keep_best="min") as saved:
            state = saved.restore(model=model, optimizer=optimizer)
            for step in range(state.step + 1 if state else 0, steps_):
                saved.ready()
                steps("AdamW", model, optimizer, [step])
                saved.save(step, metric=metrics[step])
                saved.ready()
                ends[step] = whole(model, optimizer)
            self.assertEqual(saved.best, min(metrics[:steps_]))
        return ends

    def test_every_and_best(self):
        metrics = [5, 3, 4, 2.5, 6, 2.5, 7, 2.6, 9, 1, 2, 3]
        ends = self.run_(7, metrics)
        ends.update(self.run_(12, metrics, seed=2))  # goes on; what was best is known
        self.assertEqual(sorted(os.listdir(self.folder)), ["run.ckpt", "run.ckpt.best", "run.ckpt.step4", "run.ckpt.step8"])
        for name, step in ((".step4", 4), (".step8", 8), (".best", 9), ("", 11)):
            model, optimizer = made("AdamW", 5)
            with Job(self.path + name) as saved:
                self.assertEqual(saved.restore(model=model, optimizer=optimizer).step, step, name)
            self.assertEqual(whole(model, optimizer), ends[step], name)
        for bad in ({"keep_best": "lowest"}, {"keep_every": -1}):
            with self.assertRaises(checkpoint.Usage):
                Job(self.path, **bad)
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            with self.assertRaisesRegex(checkpoint.Usage, "metric is nan"):
                saved.save(12, metric=float("nan"))


class Sampler:
    at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Refused(Base):
    def saved(self, name="AdamW"):
        model, optimizer = made(name)
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            for step in range(3):
                saved.ready()
                steps(name, model, optimizer, [step])
                saved.save(step)
        return model, optimizer

    def restore(self, **objects):
        with Job(self.path) as saved:
            return saved.restore(**objects)

    def test_by_name(self):
        self.saved()
        model, optimizer = made("AdamW")
        wide = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Tanh(), torch.nn.Linear(20, 2))
        for objects, says in (
            ({"model": model}, "'optimizer' was saved, but is not given: its state would be lost"),  # AReaL 1468
            ({"model": wide, "optimizer": torch.optim.AdamW(wide.parameters())}, "'2.weight' has shape"),
            ({"model": copy.deepcopy(model).half(), "optimizer": optimizer}, "float16"),
            ({"model": made("SGD")[0], "optimizer": made("SGD")[1]}, "not in|in no module|is a SGD"),
            ({"model": torch.nn.Sequential(torch.nn.Linear(8, 20)), "optimizer": None}, "'2.weight' was saved, but is in no module"),
        ):
            with self.assertRaisesRegex(checkpoint.Schema, says):
                self.restore(**objects)
        model, _ = made("AdamW")
        with self.assertRaisesRegex(checkpoint.Schema, "is a SGD, but a AdamW was saved"):
            self.restore(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        with self.assertRaisesRegex(checkpoint.Schema, "group 0 has parameters"):
            self.restore(model=model, optimizer=torch.optim.AdamW(list(model.parameters())[:2]))
        other = torch.optim.AdamW(model.parameters())
        other.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
        with self.assertRaisesRegex(checkpoint.Schema, r"group 1 has a parameter of shape \(3,\) that is in no module given"):
            self.restore(model=model, optimizer=other)
        with self.assertRaisesRegex(checkpoint.Schema, "'sampler' was not saved"):
            self.restore(model=model, optimizer=torch.optim.AdamW(model.parameters()), sampler=Sampler())
        with Job(self.path + "2") as saved:
            saved.restore()
            with self.assertRaisesRegex(checkpoint.Usage, "group 0 has a parameter of shape .* in no module"):
                saved.save(0, model=model[0], optimizer=torch.optim.AdamW(model.parameters()))
            with self.assertRaisesRegex(checkpoint.Usage, "sampler: object has no state_dict"):
                saved.save(0, model=model, sampler=object())
        with Job(self.path) as saved:
            with self.assertRaisesRegex(checkpoint.Usage, "restore first"):
                saved.save(0, model=model)
        folder = os.path.dirname(self.path)
        with Job(os.path.join(folder, "nowhere", "run.ckpt")) as saved, self.assertRaisesRegex(FileNotFoundError, "no such folder: .*nowhere'"):
            saved.restore(model=model)  # at once, not when training comes to the first save
        with Job(folder) as saved, self.assertRaisesRegex(checkpoint.Format, "not a regular file"):
            saved.restore(model=model)
        self.assertEqual(f"{checkpoint.Corrupt.__module__}.{checkpoint.Corrupt.__name__}", "evenkeel.checkpoint.Corrupt")

    def test_moments_are_not_dropped(self):
        """AReaL 1468: after a restore every moment is the optimizer's, of the type that was saved."""
        model, optimizer = made("AdamW")
        model.half()
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            for p in model.parameters():  # moments of another type than the parameter's
                optimizer.state[p] = {"step": torch.tensor(3.0), "exp_avg": torch.randn(p.shape) * 1e-9, "exp_avg_sq": torch.rand(p.shape)}
            saved.save(0)
        other, o2 = made("AdamW", 2)
        other.half()
        self.restore(model=other, optimizer=o2)
        self.assertEqual(bits([optimizer.state[p] for p in model.parameters()]), bits([o2.state[p] for p in other.parameters()]))

    def test_another_ranks_fault(self):
        """What ranks say of the save before and of this one, in one exchange."""
        model, optimizer = made("AdamW")
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)

            def save(step, gather):
                saved.ready()
                for p in model.parameters():
                    p.data.add_(1)
                saved._gather = gather
                try:
                    saved.save(step)
                finally:
                    del saved._gather

            alike = lambda *v: [v, v]  # noqa: E731
            save(0, alike)
            self.assertIsNone(saved.durable)
            save(1, alike)
            self.assertEqual(saved.durable, 0)
            with self.assertRaisesRegex(checkpoint.CheckpointError, "^rank 1: the disk is gone$"):
                save(2, lambda *v: [v, ("the disk is gone", *v[1:])])
            self.assertEqual(saved.durable, 0, "a save that another rank lost counts")
            saved.wait()
            self.assertEqual(saved.durable, 0)
            save(3, alike)
            with self.assertRaisesRegex(checkpoint.CheckpointError, "^rank 1: no such tensor$"):
                save(4, lambda *v: [v, (v[0], "no such tensor", *v[2:])])
            self.assertEqual(saved.durable, 3, "the save before is good, whatever is wrong with this one")
            with self.assertRaisesRegex(checkpoint.Usage, r"different steps: \[5, 6\]"):
                save(5, lambda *v: [v, (*v[:2], 6, *v[3:])])
            save(7, alike)
            real, held = saved._file.wait, []
            saved._file.wait = lambda: held.append(saved.durable) or real()
            save(8, alike)
            self.assertEqual((held[0], saved.durable), (3, 7), "it counts once it is durable")

    def test_saves_that_repeat_the_first(self):
        """NeMo-RL 3312: what is saved is a copy that nobody trains."""
        model, optimizer = made("AdamW")
        frozen = copy.deepcopy(model)
        with Job(self.path) as saved:
            saved.restore(model=frozen)
            steps("AdamW", model, optimizer, [0])
            saved.save(0)
            saved.ready()
            steps("AdamW", model, optimizer, [1])
            with self.assertWarnsRegex(UserWarning, "no parameter changed between the saves of steps 0 and 1"):
                saved.save(1)
                saved.wait()

    def test_files_of_two_jobs_or_two_saves(self):
        """A file of rank 1 that is another job's, or of the same job before it went back and trained on."""
        paths = [f"{self.path}.g1.{r}of2" for r in range(2)]
        module = torch.nn.ParameterDict({"0": torch.nn.Parameter(torch.zeros(3)), "1": torch.nn.Parameter(torch.zeros(3))})

        def refused(error, said):
            with Job(self.path) as saved, self.assertRaisesRegex(error, said):
                saved.restore(reshard=True, model=module)
            with self.assertRaisesRegex(error, said):
                checkpoint.load_parameters(paths[::-1], module)
            with self.assertRaisesRegex(error, said):
                interchange.to_safetensors(paths, self.path + ".safetensors")
            for program in filter(None, [os.environ.get("EVENKEEL")]):
                self.assertNotEqual(subprocess.run([program, "checkpoint", "export", *paths, "--out", self.path + ".out"], capture_output=True).returncode, 0)

        def save(rank, nonce, id=b"a" * 16):
            if os.path.exists(paths[rank]):
                os.unlink(paths[rank])
            with tensor_file.create(paths[rank], {str(rank): (torch.ones(3), layout.PARAMETER)}, 3, rank=rank, ranks=2, id=id) as ck:
                ck.save(4, nonce=nonce)

        save(0, 7), save(1, 7)
        self.assertEqual(checkpoint.load_parameters(paths, module), 4)
        save(1, 8)
        refused(checkpoint.Corrupt, "their checkpoints of step 4 are of different saves")
        save(1, 7, b"b" * 16)
        refused(checkpoint.Schema, "are not the files of one set")
        for program in filter(None, [os.environ.get("EVENKEEL")]):
            self.assertNotEqual(subprocess.run([program, "checkpoint", "verify", *paths], capture_output=True).returncode, 0)

    def test_changed_by_data(self):
        """A change that torch's versions do not show, between the arrays of a save, must not become a checkpoint."""
        model, read = torch.nn.ParameterList([torch.full((5000,), 1.0) for _ in range(3)]), threading.Event()
        with Job(self.path) as saved:
            saved.restore(model=model)
            saved.save(0)
            saved.wait()
            write, saved._file._access.write = saved._file._access.write, lambda *a: (write(*a), read.wait())[0]
            saved.save(1)
            for p in model:
                p.data.fill_(2.0)
            read.set()
            with self.assertRaisesRegex(checkpoint.Usage, "was changed while it was being saved"):
                saved.wait()
        with Job(self.path) as saved:
            self.assertEqual(saved.restore(model=model).step, 0)

    def test_script_that_closes_nothing(self):
        code = f"""if True:
            import sys
            sys.path[:0] = {sys.path!r}
            import torch
            from evenkeel.checkpoint import Job
            saved = Job({self.path!r})
            model = torch.nn.Linear(1000, 4000)
            saved.restore(model=model)
            for step in range(2):
                saved.ready()
                with torch.no_grad():
                    model.bias.add_(1)
                saved.save(step)
        """
        subprocess.run([sys.executable, "-c", code], check=True)
        self.assertEqual(self.restore(model=torch.nn.Linear(1000, 4000)).step, 1)

    def test_stale_plan(self):
        """Megatron-LM 4378: what is saved follows the model of the save, not of the first."""
        model, optimizer = self.saved()
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            model[0].weight.data = torch.randn(20, 8)  # other memory
            optimizer.state[model[0].weight] = {k: v.clone() + 1 for k, v in optimizer.state[model[0].weight].items()}
            saved.save(3)
            saved.wait()
            want = whole(model, optimizer)
            model[2] = torch.nn.Linear(20, 3)
            with self.assertRaisesRegex(checkpoint.CheckpointError, "2.weight|in no module given"):
                saved.save(4)
        other, o2 = made("AdamW", 4)
        self.assertEqual(self.restore(model=other, optimizer=o2).step, 3)
        self.assertEqual(whole(other, o2), want)

    def test_damage(self):
        self.saved()
        model, optimizer = made("AdamW", 4)
        with open(self.path, "r+b") as f:
            f.seek(2 * 4096)
            f.write(bytes(3 * 4096))
        with self.assertRaisesRegex(checkpoint.Corrupt, "commit record: not of this file and slot"):
            self.restore(model=model, optimizer=optimizer)

    def test_falls_back_and_gives_up_what_is_newer(self):
        """A newer step that does not verify is not the resumed run's: its slot is free from then on."""
        self.saved()
        with checkpoint.open_(self.path, read_only=True) as ck:
            slot = max((i for i in range(3) if ck._slots[i]), key=lambda i: ck._slots[i].sequence)
            at = ck._first + slot * ck._size
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(b"\xff\xff")
        model, optimizer = made("AdamW", 4)
        with Job(self.path) as saved:
            self.assertEqual(saved.restore(model=model, optimizer=optimizer).step, 1)
            self.assertIn("checksum differs", " ".join(saved.faults))
            self.assertEqual([r.step for r in saved._file._slots if r], [1])
        with checkpoint.open_(self.path, read_only=True) as ck:
            self.assertEqual(([r.step for r in ck._slots if r], ck._note.step, ck._pages()[2]), ([1], 1, []))

    def test_two_jobs(self):
        model, optimizer = self.saved()
        with Job(self.path) as saved:
            saved.restore(model=model, optimizer=optimizer)
            with self.assertRaises(checkpoint.Locked):
                self.restore(model=model, optimizer=optimizer)

    def test_parts(self):
        model, _ = self.saved()
        other = torch.nn.ModuleDict({"body": copy.deepcopy(model)})
        for p in other.parameters():
            p.data.zero_()
        self.assertEqual(checkpoint.load_parameters(self.path, other, rename=lambda n: n[len("body.") :]), 2)
        self.assertEqual(bits(other["body"].state_dict()), bits(model.state_dict()))
        head = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1), torch.nn.Linear(1, 1))
        with self.assertRaisesRegex(checkpoint.Schema, "'3.weight' is not in the file"):
            checkpoint.load_parameters(self.path, head)
        checkpoint.load_parameters(self.path, head, strict=False)
        self.assertTrue(torch.equal(head[2].weight, model[2].weight))
        with self.assertRaisesRegex(checkpoint.Schema, "'2.weight' has shape"):
            checkpoint.load_parameters(self.path, torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Tanh(), torch.nn.Linear(20, 5)))

    @unittest.skipUnless(os.environ.get("EVENKEEL"), "EVENKEEL does not name the command")
    def test_go_verifies(self):
        self.saved()
        subprocess.run([os.environ["EVENKEEL"], "checkpoint", "verify", self.path], check=True, capture_output=True)


if __name__ == "__main__":
    unittest.main()
