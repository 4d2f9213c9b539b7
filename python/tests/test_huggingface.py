"""Hugging Face's Trainer and TRL's SFTTrainer with uneven shares: before each of the optimizer's steps the gradient is that of one process with all samples of
the round, and steps, logs, evaluation and resuming are the Trainer's own."""

import collections
import copy
import os
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch import nn

try:
    import datasets
    import deepspeed  # noqa: F401  by accelerate, else in each process
    import peft
    import tokenizers
    import transformers
    import trl
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import processes
from evenkeel.trainers.huggingface import tuned
from evenkeel.tuner import Usage

os.environ["HF_HUB_OFFLINE"] = "1"
transformers.logging.set_verbosity_error()
LENGTH, RANKS, EACH = 66, 3, 6  # the last round of an epoch has 12 samples with one micro-step, 12 of 36 with two
SIZES = (([11, 5, 2],), ([10, 0, 8],), ([16, 1, 1],), ([6, 6, 6],))
CONFIG = GPT2Config(vocab_size=17, n_positions=16, n_embd=8, n_layer=2, n_head=2, num_labels=3, pad_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


def text(i):
    """A text of unequal length; of some samples no token counts."""
    g = torch.Generator().manual_seed(i)
    ids = torch.randint(1, 17, (3 + i % 9,), generator=g)
    return {"idx": i, "input_ids": ids, "labels": torch.full_like(ids, -100) if i % 5 < 2 else ids}


def sequence(i):
    return {**text(i), "labels": torch.tensor(i % 3)}


def vector(i):
    g = torch.Generator().manual_seed(i)
    return {"idx": i, "x": torch.randn(5, generator=g, dtype=torch.float64), "labels": torch.randn((), generator=g, dtype=torch.float64)}


class Regression(nn.Module):
    """A mean loss, in a model that takes what it is given and does not use it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x, labels=None, **_):
        out = self.net(x)[:, 0]
        return {"loss": (out - labels).square().mean(), "logits": out}


class NoItems(Regression):
    def forward(self, x, labels=None):
        return super().forward(x, labels)


def collate(samples):
    first = samples[0]
    if "x" in first:
        return {k: torch.stack([torch.as_tensor(s[k]) for s in samples]) for k in first if k != "idx"}
    out = {"input_ids": nn.utils.rnn.pad_sequence([s["input_ids"] for s in samples], batch_first=True)}
    out["attention_mask"] = (out["input_ids"] != 0).long()
    out["labels"] = torch.stack([s["labels"] for s in samples]) if first["labels"].dim() == 0 else nn.utils.rnn.pad_sequence([s["labels"] for s in samples], batch_first=True, padding_value=-100)
    return out


class Case:
    """net() makes the model; sample(i) a sample; loss(plain, samples) is the loss of one process. factor: what the Trainer's own gradient is of it."""

    arguments, sample, factor, base, function, lengths = {}, staticmethod(text), 1, Trainer, None, None
    most = 1e-12

    def net(self):
        return GPT2LMHeadModel(CONFIG)

    def trainer(self, net, args, compare):
        data = [self.sample(i) for i in range(LENGTH)]

        def collator(samples):
            return {**collate(samples), "idx": [s["idx"] for s in samples]}

        return tuned(self.base, lengths=self.lengths)(model=net, args=TrainingArguments(**args), train_dataset=data, eval_dataset=data[:9], data_collator=collator, compute_loss_func=self.function, callbacks=[compare])

    def loss(self, plain, samples):
        """With its own sum over tokens; the Trainer counts those of the first place, too, for some models."""
        batch = collate(samples)
        logits, labels = plain(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1], batch["labels"][:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (labels if self.shifts else batch["labels"]).ne(-100).sum()


class Causal(Case):
    """Its loss is computed in single precision, whatever the model's."""

    arguments, most = {"per_device_train_batch_size": EACH}, 1e-6


class Function(Causal):
    """A loss function of the user, in double precision."""

    most = 1e-12

    @staticmethod
    def function(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), reduction="sum") / num_items_in_batch

    def loss(self, plain, samples):
        batch = collate(samples)
        return self.function(plain(batch["input_ids"], attention_mask=batch["attention_mask"]), batch["labels"], batch["labels"].ne(-100).sum())


class MicroSteps(Causal):
    arguments = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "dataloader_num_workers": 2}


class Classes(Case):
    """As Mean."""

    sample, factor = staticmethod(sequence), RANKS

    def net(self):
        return GPT2ForSequenceClassification(CONFIG)

    def loss(self, plain, samples):
        return plain(**collate(samples)).loss


class Mean(Case):
    """The Trainer multiplies the loss of a model that takes any argument by the ranks, as if it had used num_items_in_batch, and does not divide it by the
    micro-steps."""

    sample, factor, arguments = staticmethod(vector), RANKS * 2, MicroSteps.arguments

    def net(self):
        return Regression()

    def loss(self, plain, samples):
        return plain(**collate(samples))["loss"]


class NoItemsMean(Mean):
    factor = 1

    def net(self):
        return NoItems()


class OwnLoss(NoItemsMean):
    """compute_loss overridden, with the Trainer's own word for a mean; it gathers something of each sample, as TRL's trainers do."""

    class base(Trainer):
        loss_is_scaled_for_ga = False

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            out = model(**inputs)
            got, every = self.accelerator.gather_for_metrics({"rows": out["logits"].detach(), "loss": out["loss"].detach()}), [None] * RANKS
            dist.all_gather_object(every, out["logits"].detach())
            assert got["rows"].equal(torch.cat(every)) and len(got["loss"]) == RANKS, got
            return (out["loss"], out) if return_outputs else out["loss"]


LENGTHS = [3 + i % 9 for i in range(LENGTH)]


class Lengths(MicroSteps):
    """Micro-batches of unequal numbers of samples, by what they cost."""

    lengths = LENGTHS


class LengthsMean(Mean):
    lengths = LENGTHS


class Sft(Causal):
    """TRL, with PEFT's adapters and rows that it packs: a row is a sample."""

    base, packing = trl.SFTTrainer, True
    arguments = MicroSteps.arguments

    def net(self):
        return peft.get_peft_model(GPT2LMHeadModel(CONFIG), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False))

    def trainer(self, net, args, compare):
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(i): i for i in range(17)}, unk_token="0"))
        words = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="0", pad_token="0")
        config = trl.SFTConfig(**args, packing=self.packing, max_length=14, bf16=False, gradient_checkpointing=False)
        rows = [{"input_ids": [int(t) for t in text(i)["input_ids"]]} for i in range(3 * LENGTH)]
        made = tuned(self.base)(model=net, args=config, train_dataset=datasets.Dataset.from_list(rows), processing_class=words, callbacks=[compare])
        made.train_dataset = made.train_dataset.add_column("idx", list(range(len(made.train_dataset))))
        self.rows, self.theirs = made.train_dataset, made.data_collator
        made.data_collator = lambda samples: {**self.theirs(samples), "idx": [s["idx"] for s in samples]}
        return made

    def sample(self, i):
        return self.rows[i]

    def loss(self, plain, samples):
        batch = self.theirs(samples)
        whole = batch.pop("labels")
        logits, labels = plain(**batch, use_cache=False).logits[:, :-1], whole[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (labels if self.shifts else whole).ne(-100).sum()


class Padded(Sft):
    packing, arguments = False, Causal.arguments


class Compare(TrainerCallback):
    """Compares gradients before each step, by the samples that the ranks collated."""

    def __init__(self, test, case, plain):
        self.test, self.case, self.plain = test, case, plain
        self.trainer, self.mine, self.seen, self.plans = None, [], [], set()

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        o = self.trainer.evenkeel.order
        number = o.round - 1  # the tuner's round is over
        mine, self.mine = self.mine, []
        everyone = [None] * RANKS
        dist.all_gather_object(everyone, mine)
        samples = sum(everyone, [])
        self.plans.add(tuple(o.plan(number).shares))
        model = model.module if hasattr(model, "module") else model
        self.plain.load_state_dict(model.state_dict())
        self.plain.zero_grad()
        (self.case.loss(self.plain, [self.case.sample(i) for i in samples]) * self.case.factor).backward()
        one, own = (torch.cat([p.grad.flatten() for p in m.parameters() if p.grad is not None]) for m in (self.plain, model))
        self.test.assertLess(float((own - one).norm() / one.norm()), self.case.most)
        self.seen += samples


class Job:
    def __init__(self, test, case, folder, **arguments):
        torch.manual_seed(1)
        net = case.net().double()
        self.compare = Compare(test, case, copy.deepcopy(net))
        args = {"output_dir": folder, "report_to": [], "use_cpu": True, "remove_unused_columns": False, "max_grad_norm": 0, "num_train_epochs": 2, "logging_steps": 3, "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 5}
        self.trainer = case.trainer(net, {**args, **case.arguments, **arguments}, self.compare)
        self.compare.trainer, case.shifts = self.trainer, self.trainer._loss_shifts_labels
        inner = self.trainer.training_step

        def training_step(model, inputs, *a, **k):
            self.compare.mine += inputs.pop("idx")[: self.trainer.evenkeel.size]
            return inner(model, inputs, *a, **k)

        self.trainer.training_step = training_step


class TestTrainer(unittest.TestCase):
    def job(self, child):
        return processes.served(self, RANKS, lambda reports, _: SIZES[len(reports) % len(SIZES)], child)

    def test_union(self):
        for case in (Causal, Function, MicroSteps, Classes, Mean, NoItemsMean, OwnLoss, Lengths, LengthsMean, Sft, Padded):
            with self.subTest(case.__name__), tempfile.TemporaryDirectory() as folder:

                def child(rank):
                    job = Job(self, case(), folder, **({} if case.arguments else Causal.arguments))
                    job.trainer.train()
                    counts = collections.Counter(job.compare.seen)
                    self.assertEqual((set(counts.values()), len(counts)), ({2}, len(job.trainer.train_dataset)))
                    self.assertGreater(len(job.compare.plans), 1)

                service = self.job(child)
                self.assertGreater(len(service.reports), 3)

    def test_the_trainers_own(self):
        """Steps, logs and evaluation are those without a tuner; a job that resumes amid an epoch ends as one that was not stopped."""

        def child(rank):
            case = Causal()
            with tempfile.TemporaryDirectory() as own:
                folder = [own]
                dist_ready = Job(self, case, own, num_train_epochs=1)  # initialises the process group
                dist.broadcast_object_list(folder)
                whole = Job(self, case, folder[0], save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=3)
                out = whole.trainer.train()
                if rank == 0:  # it saves alone, and has announced it
                    self.assertGreater(whole.trainer.evenkeel._pauses._seconds["save"], 0)
                steps = 2 * -(-LENGTH // (EACH * RANKS))
                self.assertEqual((out.global_step, whole.trainer.state.max_steps), (steps, steps))
                self.assertGreaterEqual(sum("eval_loss" in h for h in whole.trainer.state.log_history), steps // 3)
                self.assertAlmostEqual(out.metrics["train_samples_per_second"] * out.metrics["train_runtime"], 2 * LENGTH, delta=2)
                for at in (2, 6):  # within each of both epochs
                    again = Job(self, case, folder[0])
                    again.trainer.train(resume_from_checkpoint=os.path.join(folder[0], f"checkpoint-{at}"))
                    self.assertEqual(again.compare.seen, whole.compare.seen[len(whole.compare.seen) - len(again.compare.seen):])
                    self.assertEqual(again.trainer.state.global_step, steps)
                    for a, b in zip(again.trainer.model.parameters(), whole.trainer.model.parameters()):
                        self.assertLess(float((a - b).abs().max()), 1e-12)
                dist.barrier()

        self.job(child)

    def test_refused(self):
        with self.assertRaisesRegex(Usage, "tuned already"):
            tuned(tuned(Trainer))
        for own in ("get_train_dataloader", "_get_train_sampler", "_inner_training_loop"):
            with self.assertRaisesRegex(Usage, rf"tuned\(Mine\): its {own}\(\) draws the samples"):
                tuned(type("Mine", (Trainer,), {own: lambda self: None}))

        def child(rank):
            with tempfile.TemporaryDirectory() as folder:
                for arguments in ({"train_sampling_strategy": "group_by_length"}, {"average_tokens_across_devices": False}, {"ignore_data_skip": True}):
                    with self.assertRaisesRegex(Usage, next(iter(arguments))):
                        Job(self, Causal(), folder, **arguments).trainer.train()
                data = list(range(3))
                for lengths in ([1, 2], [1, 2, float("nan")], [1, -2, 3], [[1], [2, 3], [4]], ["a", "b", "c"]):
                    with self.assertRaisesRegex(Usage, "lengths=.*give 3 numbers from 0"):
                        tuned(Trainer, lengths=lengths)(model=Causal().net(), args=TrainingArguments(folder, report_to=[], use_cpu=True), train_dataset=data).get_train_dataloader()

        self.job(child)


if __name__ == "__main__":
    unittest.main()
