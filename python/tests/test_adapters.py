"""Adapters for other programs. Stand-ins for the trainers call in the order of their sources (Lightning: trainer.py, fit_loop.py,
training_epoch_loop.py; transformers: trainer.py)."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

try:
    import lightning  # noqa: F401
    import transformers  # noqa: F401
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e

from evenkeel import checkpoint
from evenkeel.checkpoint import Job, callbacks, interchange


def model(seed):
    torch.manual_seed(seed)
    m = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.BatchNorm1d(30), torch.nn.Dropout(0.3), torch.nn.Linear(30, 1))
    m.automatic_optimization = True
    return m


def loss(m, x):
    return torch.nn.functional.mse_loss(m(x), x.sum(1, keepdim=True))


class Stop(Exception):
    pass


class Loops:
    """fit_loop: epochs of 8 batches from a loader with a state of its own. What it counts, when, and what it makes of that at a restart is
    what Lightning's loops do (loops/progress.py, fit_loop.py, training_epoch_loop.py), in short."""

    def __init__(self):
        self.epoch = self.place = 0  # place: of the loader
        self.total, self.current = ({k: 0 for k in ("ready", "completed", "started", "processed")} for _ in range(2))
        self.last = self.restarting = False

    def count(self, what):
        self.total[what] += 1
        self.current[what] += 1

    def state_dict(self):
        batches = {"total": dict(self.total), "current": dict(self.current), "is_last_batch": self.last}
        return {"state_dict": {"combined_loader": [{"place": self.place}]}, "epoch_progress": {"current": {"completed": self.epoch}}, "epoch_loop.batch_progress": batches, "epoch_loop.state_dict": {}}

    def load_state_dict(self, s):
        self.epoch, batches = s["epoch_progress"]["current"]["completed"], s["epoch_loop.batch_progress"]
        self.total, self.current, self.last = dict(batches["total"]), dict(batches["current"]), batches["is_last_batch"]
        loaders = s["state_dict"]["combined_loader"]
        self.place = loaders[0]["place"] if loaders else 0
        self.current.update({k: self.current["completed"] for k in self.current})  # reset_on_restart
        self.restarting = True


class LightningTrainer:
    """The order of calls of Trainer.fit with automatic optimization."""

    def __init__(self, callback, seed):
        self.callback, self.model, self.fit_loop, self.ckpt_path = callback, model(seed), Loops(), None
        self.optimizers = [torch.optim.AdamW(self.model.parameters(), lr=0.01)]
        self.lr_scheduler_configs = [types.SimpleNamespace(scheduler=torch.optim.lr_scheduler.StepLR(self.optimizers[0], 3, 0.5))]
        self.steps, self.validated = 0, []

    @property
    def global_step(self):
        return 8 * self.fit_loop.epoch + self.fit_loop.current["processed"]

    def call(self, hook, *a):
        if self.callback is not None:
            getattr(self.callback, hook, lambda *_: None)(self, self.model, *a)

    def fit(self, epochs, stop_after=None):
        loop = self.fit_loop
        try:
            self.call("on_fit_start")
            while loop.epoch < epochs:
                torch.rand(1)  # the data loader's seed
                self.call("on_train_epoch_start")
                if not loop.restarting:
                    loop.current.update({k: 0 for k in loop.current})
                    loop.last, loop.place = False, 0
                while loop.current["ready"] < 8:
                    if not (loop.restarting and loop.last):  # else it takes the batch for trained, and validates
                        self.advance(loop, stop_after)
                    else:
                        loop.count("ready")
                    loop.restarting = False
                self.validated.append(loop.epoch)
                loop.epoch += 1
                loop.current.update({k: 0 for k in loop.current})  # so that global_step is right
            self.call("on_train_end")
        except Stop as e:
            self.call("on_exception", e)
        finally:
            self.call("teardown", "fit")
        return [p.detach().clone() for p in self.model.parameters()] + [b.clone() for b in self.model.buffers()]

    def advance(self, loop, stop_after):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * loop.epoch + loop.place))
        loop.place += 1
        loop.last = loop.place == 8
        loop.count("ready")
        self.call("on_train_batch_start", x, loop.current["ready"] - 1)
        if stop_after is not None and self.global_step == stop_after:
            raise Stop
        loop.count("started")
        optimizer = self.optimizers[0]
        optimizer.zero_grad()
        loss(self.model, x).backward()
        self.call("on_before_optimizer_step", optimizer)
        optimizer.step()
        loop.count("processed")
        self.lr_scheduler_configs[0].scheduler.step()
        self.call("on_train_batch_end", None, x, loop.current["ready"] - 1)
        loop.count("completed")
        self.steps += 1


@dataclasses.dataclass
class TrainerState:
    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 0
    log_history: list = dataclasses.field(default_factory=list)
    is_world_process_zero: bool = True


class HFTrainer:
    """The order of calls of Trainer._inner_training_loop."""

    def __init__(self, callback, seed):
        self.callback, self.model = callback, model(seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.args, self.control, self.state = object(), object(), TrainerState()

    def call(self, hook):
        if self.callback is not None:
            getattr(self.callback, hook, lambda *_, **__: None)(
                self.args, self.state, self.control, model=self.model, optimizer=types.SimpleNamespace(optimizer=self.optimizer), lr_scheduler=self.scheduler, train_dataloader=None
            )

    def train(self, epochs, resume=None, stop_after=None):
        skip = first = 0
        if resume:
            assert os.path.exists(os.path.join(resume, "model.safetensors"))
            interchange.from_safetensors(os.path.join(resume, "model.safetensors"), self.model)
            with open(os.path.join(resume, "trainer_state.json")) as f:
                self.state = TrainerState(**json.load(f))
            first, skip = divmod(self.state.global_step, 8)
        self.state.max_steps = 8 * epochs
        self.call("on_train_begin")
        for epoch in range(first, epochs):
            self.call("on_epoch_begin")
            torch.rand(1)  # the sampler's seed
            for i in range(8):
                x = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * epoch + i))
                if epoch == first and i < skip:
                    continue
                self.call("on_step_begin")
                self.optimizer.zero_grad()
                loss(self.model, x).backward()
                self.call("on_pre_optimizer_step")
                self.optimizer.step()
                self.call("on_optimizer_step")
                self.scheduler.step()
                self.state.global_step += 1
                self.state.epoch = epoch + (i + 1) / 8
                self.state.log_history.append({"loss": 0.5, "step": self.state.global_step})
                self.call("on_step_end")
                if self.state.global_step == stop_after:
                    if self.callback.saved:
                        self.callback.saved.wait()
                        self.callback.saved.close(wait=False)  # as the end of the process does
                    return None
        self.call("on_train_end")
        return [p.detach().clone() for p in self.model.parameters()] + [b.clone() for b in self.model.buffers()]


class Adapters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "run.ckpt")

    def same(self, a, b):
        for x, y in zip(a, b):
            self.assertTrue(torch.equal(x, y))

    def test_lightning(self):
        torch.manual_seed(5)
        want = LightningTrainer(None, 1).fit(3)
        for stop in (5, 7, 8, 13, 15):  # 7 and 15: before an epoch's last batch
            LightningTrainer(callbacks.lightning(self.path, every=1), 1).fit(3, stop)
            t = LightningTrainer(callbacks.lightning(self.path, every=1), 2)
            self.same(want, t.fit(3))
            self.assertEqual((t.steps, t.fit_loop.total["ready"]), (24 - stop, 24))
            self.assertEqual(t.callback.saved, None)
            done = LightningTrainer(callbacks.lightning(self.path, every=4), 3)
            self.same(want, done.fit(3))  # nothing is left to do
            os.unlink(self.path)
        self.same(want, LightningTrainer(callbacks.lightning(self.path), 1).fit(3))  # at the automatic interval
        with Job(self.path) as saved:
            t = LightningTrainer(None, 2)
            self.assertEqual(saved.restore(**callbacks.lightning(self.path)._objects(t, t.model)).step, 23)
        t = LightningTrainer(callbacks.lightning(self.path), 1)
        t.ckpt_path = "x"
        with self.assertRaisesRegex(checkpoint.Usage, "ckpt_path"):
            t.fit(3)
        t = LightningTrainer(callbacks.lightning(self.path), 1)
        t.model.automatic_optimization = False
        with self.assertRaisesRegex(checkpoint.Usage, "manual optimization"):
            t.fit(3)

    def test_transformers(self):
        want = HFTrainer(None, 1).train(3)
        for stop in (5, 8, 13):
            HFTrainer(callbacks.transformers(self.path, every=1), 1).train(3, stop_after=stop)
            with self.assertRaisesRegex(checkpoint.Usage, "resume_from_checkpoint"):
                HFTrainer(callbacks.transformers(self.path, every=1), 2).train(3)
            t = HFTrainer(callbacks.transformers(self.path, every=1), 2)
            folder = callbacks.resume_folder(self.path, os.path.join(self.folder, f"resume{stop}"))
            self.same(want, t.train(3, folder))
            self.assertEqual([x["step"] for x in t.state.log_history], list(range(1, 25)))
            os.unlink(self.path)
        with self.assertRaises(checkpoint.Corrupt):
            callbacks.resume_folder(self.path, self.folder)

    def saved(self):
        m = model(1)
        m.register_buffer("small", torch.arange(3, dtype=torch.bfloat16))
        m.wide = torch.nn.Parameter(torch.randn(2, 3, dtype=torch.complex64))
        o = torch.optim.AdamW(m.parameters(), lr=0.01)
        with Job(self.path) as saved:
            saved.restore(model=m, optimizer=o)
            for step in range(3):
                saved.ready()
                (loss(m, torch.ones(4, 8) * step) + m.wide.abs().sum()).backward()
                o.step()
                saved.save(step)
        return m

    def test_safetensors(self):
        m, out = self.saved(), os.path.join(self.folder, "m.safetensors")
        self.assertEqual(interchange.to_safetensors(self.path, out), 2)
        other = model(2)
        other.register_buffer("small", torch.zeros(3, dtype=torch.bfloat16))
        other.wide = torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.complex64))
        interchange.from_safetensors(out, other)
        self.same(m.state_dict().values(), other.state_dict().values())
        if os.environ.get("EVENKEEL"):  # another reader, and back
            there = os.path.join(self.folder, "there.ckpt")
            run = lambda *a: subprocess.run([os.environ["EVENKEEL"], "checkpoint", *a], check=True, capture_output=True, text=True)
            interchange.to_safetensors(self.path, out, moments=True)
            run("import", "--from", out, there)
            for name, e in {e.name: e for e in checkpoint.open_(there, read_only=True).entries}.items():
                self.assertEqual(e.kind, checkpoint.open_(self.path, read_only=True)._index[name].kind)
            run("export", there, "--out", os.path.join(self.folder, "again.safetensors"))
            interchange.from_safetensors(os.path.join(self.folder, "again.safetensors"), other)
            self.same(m.state_dict().values(), other.state_dict().values())
        with open(out, "rb") as f:
            good = f.read()
        bad = os.path.join(self.folder, "bad.safetensors")
        for spoiled in (b"", good[:7], good[:100], good[:-1], good + b"x", b"\xff" * 16, good.replace(b'"F32"', b'"F99"', 1), good.replace(b"data_offsets", b"data_offset_", 1)):
            with open(bad, "wb") as f:
                f.write(spoiled)
            with self.assertRaises(checkpoint.Corrupt):
                interchange.from_safetensors(bad, other)
        text = json.dumps({"weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [4, 12]}, "bias": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}}).encode()
        with open(bad, "wb") as f:  # one over the other
            f.write(len(text).to_bytes(8, "little") + text + bytes(12))
        with self.assertRaisesRegex(checkpoint.Corrupt, "bad.safetensors"):
            interchange.from_safetensors(bad, torch.nn.Linear(2, 1))
        self.same(m.state_dict().values(), other.state_dict().values())
        with self.assertRaisesRegex(checkpoint.Schema, "0.weight"):
            interchange.from_safetensors(out, torch.nn.Sequential(torch.nn.Linear(8, 31)))
        with self.assertRaisesRegex(checkpoint.Schema, "other.weight"):
            interchange.from_safetensors(out, torch.nn.Linear(8, 30), rename=lambda n: f"other.{n}")
        part = torch.nn.Linear(8, 30)
        interchange.from_safetensors(out, part, rename=lambda n: f"0.{n}")
        self.assertTrue(torch.equal(part.weight, m[0].weight))

    def test_damage_is_not_exported(self):
        self.saved()
        with checkpoint.open_(self.path, read_only=True) as ck:
            slot = next(i for i in range(3) if ck._slots[i] and ck._slots[i].step == 2)
            at = ck._first + slot * ck._size + ck._index["0.weight"].offset
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(b"\xff\xff")
        out = os.path.join(self.folder, "m.safetensors")
        with self.assertRaisesRegex(checkpoint.Corrupt, "0.weight"):
            interchange.to_safetensors(self.path, out)
        self.assertFalse([n for n in os.listdir(self.folder) if "safetensors" in n])
        self.assertEqual(interchange.to_safetensors(self.path, out, step=1), 1)

    def test_dcp(self):
        import torch.distributed.checkpoint as dcp

        m = self.saved()

        def refused(state_dict, **_):
            raise AssertionError("it takes all ranks")

        as26 = {"save": refused}  # without no_dist
        for calls in ({}, as26):
            folder = os.path.join(self.folder, f"dcp{len(calls)}")
            with mock.patch.multiple(dcp, **calls) if calls else contextlib.nullcontext():
                self.assertEqual(interchange.to_dcp(self.path, folder), 2)
                keys = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
                self.assertEqual(sorted(k for k in keys if k.startswith("optimizer.state.0.weight.")), [f"optimizer.state.0.weight.{k}" for k in ("exp_avg", "exp_avg_sq", "step")])
                state = {"model": torch.nn.Sequential(*list(model(2))).state_dict()}
                dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
            for k, v in state["model"].items():
                self.assertTrue(torch.equal(v, m.state_dict()[k]))


if __name__ == "__main__":
    unittest.main()
