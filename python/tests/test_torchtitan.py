"""torchtitan's Trainer with uneven shares: before each of the optimizer's steps the gradient is that of one process with all samples of the round, and a
checkpoint continues where it was. The Trainer wants a GPU; here it is told that processors are its devices."""

import dataclasses
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

DEVICE = {
    "get_device_name": lambda _=None: "cpu",
    "get_device_properties": lambda _=None: types.SimpleNamespace(total_memory=1 << 30),
    "memory_stats": lambda _=None: {},
    "reset_peak_memory_stats": lambda: None,
    "empty_cache": lambda: None,
    "current_device": lambda: 0,
}  # what torch.cpu lacks
try:
    with mock.patch("torch._utils._get_available_device_type", lambda: "cpu"), mock.patch.multiple(torch.cpu, create=True, **DEVICE):
        import torchtitan.trainer as titan
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import TORCH_DTYPE_MAP, ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.tools import utils

import processes
from evenkeel.trainers.torchtitan import tuned
from evenkeel.tuner import Usage

RANKS, EACH, LENGTH, STEPS, CLIP = 3, 8, 8, 9, 0.5
SIZES = (([13, 5, 6],), ([14, 0, 10],), ([21, 2, 1],), ([8, 8, 8],))


class Stream(torch.utils.data.IterableDataset):
    """Tokens of a rank, some of which have no label."""

    def __init__(self, rank, end):
        self.rank, self.end, self.at = rank, end, 0

    def __iter__(self):
        while self.at < self.end:
            g = torch.Generator().manual_seed(1000 * self.rank + self.at)
            tokens = torch.randint(0, 2048, (LENGTH + 1,), generator=g)
            labels = torch.where(torch.rand(LENGTH, generator=g) < 0.2 * self.rank, -100, tokens[1:])
            self.at += 1
            yield {"input": tokens[:-1], "positions": torch.arange(LENGTH)}, labels

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Data(ParallelAwareDataloader):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        end: int = 1 << 30

    def __init__(self, config, *, dp_world_size, dp_rank, tokenizer, seq_len, local_batch_size, snapshot_every_n_steps=1):
        kept = {"num_workers": config.num_workers, "snapshot_every_n_steps": snapshot_every_n_steps}
        super().__init__(Stream(dp_rank, config.end), dp_rank=dp_rank, dp_world_size=dp_world_size, batch_size=local_batch_size, **kept)


class Words(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        pass

    encode = decode = get_vocab_size = None


class Double(CrossEntropyLoss):
    """torchtitan's own is in single precision."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(CrossEntropyLoss.Config):
        pass

    def __init__(self, config, *, compile_config=None):
        super().__init__(config)
        self.fn = lambda pred, labels, global_vocab_size=None: cross_entropy(pred.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)


def spec():
    s = model_registry("debugmodel")
    for _, _, parent, field in s.model.traverse(FlexAttention.Config):
        setattr(parent, field, ScaledDotProductAttention.Config())  # the other one needs a GPU
    s.model.layers = s.model.layers[:2]
    return s


def config(folder, micro_steps=2, save=0, workers=0, **arguments):
    return titan.Trainer.Config(**{
        "model_spec": spec(), "dump_folder": folder, "loss": Double.Config(), "tokenizer": Words.Config(), "optimizer": default_adamw(lr=1e-3),
        "dataloader": Data.Config(num_workers=workers), "training": TrainingConfig(local_batch_size=EACH, global_batch_size=EACH * RANKS * micro_steps, seq_len=LENGTH, steps=STEPS, max_norm=CLIP, mixed_precision_param="float32"),
        "checkpoint": CheckpointManager.Config(enable=save > 0, interval=max(save, 1), last_save_model_only=False), "activation_checkpoint": None, **arguments,
    })  # fmt: skip


def sample(rank, at):
    stream = Stream(rank, at + 1)
    stream.at = at
    return next(iter(stream))


def recorded(trainer):
    """The inputs and labels that it trains on, from now on."""
    seen, inner = [], trainer.fwd_bwd_fn

    def forward_backward(inputs, labels, *rest):
        seen.append((inputs, labels))
        return inner(inputs, labels, *rest)

    trainer.fwd_bwd_fn = forward_backward
    return seen


def whole(model, of):
    return {n: of(p).full_tensor().detach().clone() for n, p in model.named_parameters()}


class TestTorchtitan(unittest.TestCase):
    def job(self, child, micro_steps=2):
        def start(rank):
            TORCH_DTYPE_MAP["float32"] = torch.float64
            mock.patch.multiple(torch.cpu, create=True, **DEVICE).start()  # in this process alone
            child(rank)

        return processes.served(self, RANKS, lambda reports, _: [[micro_steps * s for s in SIZES[len(reports) % len(SIZES)][0]]], start)

    def test_union(self):
        chunked = ChunkedLossWrapper.Config(loss_fn=Double.Config())  # adds gradients up in single precision
        for micro_steps, workers, loss, most in ((1, 0, Double.Config(), 1e-12), (3, 1, chunked, 1e-7)):

            def child(rank):
                with tempfile.TemporaryDirectory() as folder:
                    self.compare(rank, tuned(config(folder, micro_steps, workers=workers, loss=loss)).build(), micro_steps, most)

            self.assertGreater(len(self.job(child, micro_steps).reports), STEPS // 2)

    def compare(self, rank, trainer, micro_steps, most):
        batches, plans, seen, own = trainer.batch_generator(trainer.dataloader), set(), recorded(trainer), 0
        plain = spec().model
        plain.update_from_config(config=trainer.config)
        with utils.set_default_dtype(torch.float64):
            plain = plain.build()
        plain.init_weights(buffer_device=None)
        for trainer.step in range(1, STEPS + 1):
            plain.load_state_dict(whole(trainer.model_parts[0], lambda p: p))
            plain.zero_grad()
            trainer.train_step(batches)
            everyone = [None] * RANKS
            dist.all_gather_object(everyone, seen)
            inputs, labels = (torch.cat([b[k] for of in everyone for b in of]) for k in (0, 1))
            self.assertEqual(int(labels.ne(-100).any(1).sum()), EACH * RANKS * micro_steps)
            plans.add(tuple(sum(int(b[1].ne(-100).any(1).sum()) for b in of) for of in everyone))
            logits = plain(inputs, positions=torch.arange(LENGTH).expand(len(inputs), LENGTH))
            (cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100) / labels.ne(-100).sum()).backward()
            one = torch.cat([p.grad.flatten() for p in plain.parameters()])
            mine = torch.cat([g.flatten() for g in whole(trainer.model_parts[0], lambda p: p.grad).values()])
            one *= min(CLIP / (one.norm() + 1e-6), 1)  # as torch clips
            self.assertLess(float((mine - one).norm() / one.norm()), most)
            for row in (row for b in seen for row in b[0]):  # no sample of the stream is left out
                self.assertTrue(torch.equal(row, sample(rank, own)[0]["input"]))
                own += 1
            seen.clear()
        self.assertGreater(len(plans), 2)
        self.assertTrue(any(0 in p for p in plans), plans)
        trainer.close()

    def test_resume(self):
        """A checkpoint has the position in the data, and a job that is not tuned goes on from that of one that was."""
        with tempfile.TemporaryDirectory() as folder:
            for tune, steps in ((True, 3), (True, 5), (False, 6)):

                def child(rank):
                    c = config(folder, 2, save=1)
                    c.training.steps = steps
                    trainer = (tuned(c) if tune else c).build()
                    seen, path = recorded(trainer), os.path.join(folder, f"read-{rank}")
                    trainer.train()
                    rows, at = [row for b in seen for row in b[0]], 0
                    if os.path.exists(path):
                        with open(path) as f:
                            at = int(f.read())
                    self.assertEqual(len(seen), 2 * (steps if steps == 3 else 2 if steps == 5 else 1))
                    for k, row in enumerate(rows):
                        self.assertTrue(torch.equal(row, sample(rank, at + k)[0]["input"]), (steps, at + k))
                    with open(path, "w") as f:
                        f.write(str(at + len(rows)))
                    trainer.close()

                self.job(child)

    def test_refused(self):
        def child(rank):
            with tempfile.TemporaryDirectory() as folder:
                with self.assertRaisesRegex(Usage, "pipeline, tensor"):
                    tuned(config(folder, parallelism=ParallelismConfig(tensor_parallel_degree=3))).build()
                with self.assertRaisesRegex(Usage, "expert"):
                    tuned(config(folder, parallelism=ParallelismConfig(expert_parallel_degree=3))).build()
                with mock.patch.object(utils, "device_type", "cuda"), self.assertRaisesRegex(Usage, "disable_cuda_graphs"):
                    tuned(config(folder)).build()
                trainer = tuned(config(folder, dataloader=Data.Config(end=9))).build()
                with self.assertRaisesRegex(Usage, "infinite=True"):
                    trainer.train()

        self.job(child)


if __name__ == "__main__":
    unittest.main()
