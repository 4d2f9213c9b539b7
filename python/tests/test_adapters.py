"""Adapters for other programs: callbacks in Lightning's and transformers' own trainers, files of other formats."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

try:
    import lightning.pytorch as pl
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e

from evenkeel import checkpoint
from evenkeel.checkpoint import Job, callbacks, interchange


def model(seed):
    torch.manual_seed(seed)
    m = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.BatchNorm1d(30), torch.nn.Dropout(0.3), torch.nn.Linear(30, 1))
    return m


def loss(m, x):
    return torch.nn.functional.mse_loss(m(x), x.sum(1, keepdim=True))


class Stop(Exception):
    pass


def batch(i):
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(i))


class Batches:
    """A loader with a state: 8 batches an epoch."""

    def __init__(self):
        self.place = self.next = 0

    def __len__(self):
        return 8

    def __iter__(self):
        self.place, self.next = self.next, 0
        while self.place < 8:
            self.place += 1
            yield batch(self.place)

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.next = state["place"]


class Module(pl.LightningModule):
    """Validation moves the generators, and dropout depends on them."""

    def __init__(self, seed):
        super().__init__()
        self.net, self.steps = model(seed), 0

    def training_step(self, x, _):
        self.steps += 1
        return loss(self.net, x)

    def validation_step(self, x, _):
        torch.rand(3)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), "interval": "step"}}


class StopLightning(pl.Callback):
    """Stops while a step's batch begins, when the step before it is saved."""

    def __init__(self, after):
        self.after = after

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.after:
            raise Stop


def fit(module, *found, **more):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", callbacks=[c for c in found if c], **quiet, **more)
    torch.manual_seed(5)
    with contextlib.suppress(Stop):
        trainer.fit(module, Batches(), Batches())
    return trainer, [*module.parameters(), *module.buffers()]


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 62

    def __getitem__(self, i):
        return {"x": batch(i)[0]}


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.net = model(seed)

    def forward(self, x):
        return {"loss": loss(self.net, x)}


class StopTransformers(transformers.TrainerCallback):
    def __init__(self, after):
        self.after = after

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.after:
            raise Stop


def train(folder, seed, *found, resume=None, **more):
    """8 batches an epoch. What the trainer saves, and its state."""
    net = Net(seed)
    more = {"per_device_train_batch_size": 8, "num_train_epochs": 3, "learning_rate": 0.01, "report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "logging_steps": 2, **more}
    trainer = transformers.Trainer(net, transformers.TrainingArguments(folder, **more), train_dataset=Samples(), eval_dataset=Samples(), callbacks=[c for c in found if c])
    trainer.log = lambda logs, *_: trainer.state.log_history.append({**logs, "step": trainer.state.global_step})
    with contextlib.suppress(Stop):
        trainer.train(resume_from_checkpoint=resume)
    return trainer, [*net.parameters(), *net.buffers()]


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
        for more in ({"val_check_interval": 3}, {"accumulate_grad_batches": 2}):
            steps = 12 if "accumulate_grad_batches" in more else 24
            _, want = fit(Module(1), **more)
            for stop in (5, steps // 3, steps - 1):
                with self.subTest(**more, stop=stop):
                    fit(Module(1), callbacks.lightning(self.path, every=1), StopLightning(stop), **more)
                    found = callbacks.lightning(self.path, every=1)
                    module = Module(2)
                    self.same(want, fit(module, found, **more)[1])
                    self.assertEqual((module.steps, found.saved), (24 - stop * 24 // steps, None))
                    module = Module(3)
                    self.same(want, fit(module, callbacks.lightning(self.path, every=4), **more)[1])
                    self.assertEqual(module.steps, 0)  # nothing is left to do
                    os.unlink(self.path)
        trainer, got = fit(Module(1), callbacks.lightning(self.path), **more)  # at the automatic interval
        self.same(want, got)
        with Job(self.path) as saved:
            self.assertEqual(saved.restore(**callbacks.lightning(self.path)._objects(trainer, trainer.lightning_module)).step, steps - 1)
        module = Module(1)
        module.automatic_optimization = False
        with self.assertRaisesRegex(checkpoint.Usage, "manual optimization"):
            fit(module, callbacks.lightning(self.path))

    def test_transformers(self):
        for more in ({"eval_strategy": "steps", "eval_steps": 3}, {"eval_strategy": "epoch", "gradient_accumulation_steps": 2, "dataloader_num_workers": 2}):
            steps = 12 if "gradient_accumulation_steps" in more else 24
            whole, want = train(self.folder, 1, **more)
            for stop in (3, steps // 3, steps - 1):
                with self.subTest(**more, stop=stop):
                    found = callbacks.transformers(self.path, every=1)
                    train(self.folder, 1, found, StopTransformers(stop), **more)
                    found.saved.wait()
                    found.saved.close(wait=False)  # as the end of the process does
                    if stop == 3:
                        with self.assertRaisesRegex(checkpoint.Usage, "resume_from_checkpoint"):
                            train(self.folder, 2, callbacks.transformers(self.path, every=1), **more)
                    folder = callbacks.resume_folder(self.path, os.path.join(self.folder, "resume"))
                    trainer, got = train(self.folder, 2, callbacks.transformers(self.path, every=1), resume=folder, **more)
                    self.same(want, got)
                    self.assertEqual(*([x["step"] for x in t.state.log_history] for t in (whole, trainer)))
                    os.unlink(self.path)
        judged = {"eval_strategy": "epoch", "label_names": ["x"]}
        _, want = train(self.folder, 1, **judged)
        worst = {"save_strategy": "epoch", "load_best_model_at_end": True, "greater_is_better": True}  # of the losses the largest
        _, got = train(self.folder, 1, callbacks.transformers(self.path), **judged, **worst)  # at the automatic interval
        self.assertFalse(torch.equal(want[0], got[0]))  # the model is another step's at last
        net = Net(2)
        checkpoint.load_parameters(self.path, net)
        self.same(want, [*net.parameters(), *net.buffers()])
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
