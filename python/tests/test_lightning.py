"""Lightning's Trainer with uneven shares: before each of the optimizer's steps the gradient is that of one process with all samples of the round, and a
checkpoint continues where it was."""

import collections
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

try:
    import lightning as L
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
from torch.utils.data import DataLoader

import processes
from evenkeel.trainers.lightning import Tune
from evenkeel.tuner import Usage
from test_equal_steps import DATA, LENGTH, mlp

RANKS, BATCH = 3, 24
SIZES = (([13, 5, 6],), ([14, 0, 10],), ([22, 1, 1],), ([8, 8, 8],))


class Module(L.LightningModule):
    """Compares its gradients with those of one process before each step. mapping: training_step returns a dict."""

    def __init__(self, test, tune, mapping=False):
        super().__init__()
        self.net, self.test, self.tune, self.mapping = mlp(), test, tune, mapping
        self.union, self.seen, self.sizes = [], [], set()

    def training_step(self, batch, _):
        x, y, i = batch
        self.union += i.tolist()[: self.tune.tuner.size]
        loss = cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return {"loss": loss} if self.mapping else loss

    def validation_step(self, batch, _):
        self.log("valid", cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def on_before_optimizer_step(self, optimizer):
        everyone = [None] * RANKS
        dist.all_gather_object(everyone, self.union)
        samples, self.union = sum(everyone, []), []
        plain = mlp()
        plain.load_state_dict(self.net.state_dict())
        cross_entropy(plain(torch.stack([DATA[i][0] for i in samples])), torch.tensor([DATA[i][1] for i in samples])).backward()
        one, own = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (plain, self.net))
        self.test.assertLess(float((own - one).norm() / one.norm()), 1e-12)
        self.seen += samples
        self.sizes.add(tuple(map(len, everyone)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(tune, folder="", micro_steps=2, **arguments):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": bool(folder), "default_root_dir": folder or None}
    return L.Trainer(**{"accelerator": "cpu", "devices": RANKS, "strategy": "ddp", "max_epochs": 2, "accumulate_grad_batches": micro_steps, "use_distributed_sampler": False, "callbacks": [tune], **quiet, **arguments})


class TestLightning(unittest.TestCase):
    def job(self, child):
        processes.served(self, RANKS, lambda reports, _: SIZES[len(reports) % len(SIZES)], child, NODE_RANK="0")

    def test_union(self):
        def child(rank):
            for micro_steps, workers in ((1, 0), (2, 2)):
                tune = Tune()
                module = Module(self, tune, mapping=workers > 0)
                loader = tune.loader(DATA, global_batch=BATCH, micro_steps=micro_steps, num_workers=workers)
                trainer(tune, micro_steps=micro_steps).fit(module, loader, DataLoader(DATA[:8], batch_size=4))
                counts = collections.Counter(module.seen)
                self.assertEqual((set(counts.values()), len(counts)), ({2}, LENGTH))
                self.assertGreater(len(module.sizes), 2)

        self.job(child)

    def test_resume(self):
        def child(rank):
            folder = [tempfile.mkdtemp()]
            tune = Tune()
            whole = Module(self, tune)
            save = L.pytorch.callbacks.ModelCheckpoint(every_n_train_steps=1, save_top_k=-1, filename="{step}")
            fit = trainer(tune, folder[0], callbacks=[tune, save])
            fit.fit(whole, tune.loader(DATA, global_batch=BATCH, micro_steps=2))
            for step in (2, 6, 8):  # an epoch has 6
                tune = Tune()
                again = Module(self, tune)
                path = [os.path.join(os.path.dirname(save.best_model_path or save.last_model_path or ""), f"step={step}.ckpt")]
                dist.broadcast_object_list(path)
                trainer(tune).fit(again, tune.loader(DATA, global_batch=BATCH, micro_steps=2), ckpt_path=path[0], weights_only=False)
                self.assertEqual(again.seen, whole.seen[len(whole.seen) - len(again.seen):])
                self.assertEqual(len(again.seen), 2 * LENGTH - (step * BATCH if step < 6 else LENGTH + (step - 6) * BATCH))
                for a, b in zip(again.net.parameters(), whole.net.parameters()):
                    self.assertLess(float((a - b).abs().max()), 1e-12)

        self.job(child)

    def test_refused(self):
        def child(rank):
            for make, word in (
                (lambda t: (t.loader(DATA, global_batch=BATCH), {}), "accumulate_grad_batches=2"),
                (lambda t: (t.loader(DATA, global_batch=BATCH, micro_steps=2), {"use_distributed_sampler": True}), "distributed|sampler"),
                (lambda t: (DataLoader(DATA), {}), "tune.loader"),
            ):
                tune = Tune()
                loader, arguments = make(tune)
                with self.assertRaisesRegex((Usage, TypeError, L.fabric.utilities.exceptions.MisconfigurationException), word):
                    trainer(tune, **arguments).fit(Module(self, tune), loader)

        self.job(child)


if __name__ == "__main__":
    unittest.main()
