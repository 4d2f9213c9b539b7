"""Hugging Face's Trainer, and what is derived from it, such as TRL's SFTTrainer:

    from evenkeel.trainers.huggingface import tuned

    trainer = tuned(Trainer)(model=model, args=args, train_dataset=data)

The batch of a round stays the Trainer's own: per_device_train_batch_size x gradient_accumulation_steps x ranks. Only its division among the ranks changes, so
steps, schedules, logs and checkpoints are as before. Where the Trainer divides the loss by the tokens of all ranks (num_items_in_batch) any division is
exact; where the loss is a mean, it is scaled here. largest is the largest micro-batch that fits on this rank. With lengths, the tokens of each sample, or
the name of the data set's column that has them, the ranks share what samples cost instead of their number; cost is that of an array of lengths.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from accelerate.utils import recursively_apply
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from ..tuner.errors import Usage
from .equal_steps import EqualSteps, Loader


def attention(lengths: Any) -> Any:
    """A usual cost of samples: squares weigh as much as tokens at 8192 of them."""
    return lengths + lengths * lengths / 8192


def tuned(base: type[Trainer], largest: int = 0, lengths: Any = None, cost: Callable[[Any], Any] = attention) -> type[Trainer]:
    """The class of a trainer whose ranks take as many samples, or with lengths as costly ones, as let all finish together."""
    if issubclass(base, _Tuned):
        raise Usage(f"tuned({base.__name__}): it is tuned already")
    for name in ("get_train_dataloader", "_get_train_sampler", "_inner_training_loop"):
        if getattr(base, name) is not getattr(Trainer, name):
            raise Usage(f"tuned({base.__name__}): its {name}() draws the samples in an order of its own, as trainers of groups of answers need; the tuner would draw others")
    return type(f"Tuned{base.__name__}", (_Tuned, base), {"largest": largest, "lengths": lengths, "cost": staticmethod(cost)})


@contextlib.contextmanager
def _unequal(accelerator: Any) -> Iterator[None]:
    """What trainers gather of each sample, as those of TRL do for their metrics, has as many rows as the rank has samples; the accelerator gathers equal shapes alone."""
    gather = accelerator.gather

    def rows(t: torch.Tensor) -> torch.Tensor:
        if t.dim() == 0:
            return gather(t)
        counts = gather(torch.tensor([len(t)], device=t.device)).tolist()
        padded = gather(torch.cat([t, t.new_zeros(max(counts) - len(t), *t.shape[1:])]))
        return torch.cat([part[:n] for part, n in zip(padded.split(max(counts)), counts)])

    accelerator.gather = functools.partial(recursively_apply, rows)
    try:
        yield
    finally:
        del accelerator.gather


class _Position(TrainerCallback):
    """Takes over the position of a checkpoint, which the Trainer has loaded by then."""

    def __init__(self, trainer: "_Tuned"):
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        tuner = self._trainer.evenkeel
        tuner.order.round = state.global_step
        tuner.begin(args.dataloader_num_workers)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.save_strategy == "steps" and state.save_steps:
            self._trainer.evenkeel.expect("save", after=state.save_steps - state.global_step % state.save_steps - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.evenkeel.close()


class _Tuned(Trainer):
    largest, lengths = 0, None
    cost: Callable[[Any], Any]
    evenkeel: EqualSteps
    _means: bool | None = None  # whether the loss is a mean over the micro-batch; None: not known yet
    _training = False

    def get_train_dataloader(self) -> Loader:
        theirs, args = super().get_train_dataloader(), self.args
        self._check(theirs)
        if not hasattr(self, "evenkeel"):
            self.add_callback(_Position(self))
        self.evenkeel, self._means = EqualSteps(divided=True), None
        kept = {k: getattr(theirs, k) for k in ("collate_fn", "num_workers", "pin_memory", "worker_init_fn", "prefetch_factor", "persistent_workers", "multiprocessing_context")}
        seed = args.seed if args.data_seed is None else args.data_seed
        shuffle = args.train_sampling_strategy == "random"
        return self.evenkeel.loader(theirs.dataset, self.get_total_train_batch_size(args), args.gradient_accumulation_steps, self.largest, seed, shuffle, args.dataloader_drop_last, self._costs(), **kept)

    def _costs(self) -> Any:
        if self.lengths is None:
            return None
        if self.largest:
            raise Usage(f"largest={self.largest} counts samples; leave it out beside lengths")
        count = len(self.train_dataset)
        try:
            lengths = numpy.asarray(self.train_dataset[self.lengths] if isinstance(self.lengths, str) else self.lengths, float)
        except (TypeError, ValueError):  # words, or lists of tokens
            lengths = numpy.zeros(0)
        if lengths.shape != (count,) or not ((lengths >= 0) & (lengths < numpy.inf)).all():
            raise Usage(f"lengths={str(self.lengths)[:40]!r}: give {count} numbers from 0, one per sample, or the name of the column that has them")
        return self.cost(lengths)

    def _check(self, loader: Any) -> None:
        args = self.args
        wrong = {
            "an IterableDataset: the tuner draws the samples; give a map-style dataset": isinstance(loader.dataset, torch.utils.data.IterableDataset),
            f"train_sampling_strategy={args.train_sampling_strategy!r}: the tuner draws the samples; leave it at 'random', or give 'sequential'": args.train_sampling_strategy not in ("random", "sequential"),
            "average_tokens_across_devices=False: leave it out, or a token of a rank with few would weigh more": not args.average_tokens_across_devices,
            "auto_find_batch_size=True: leave it out; tuned(Trainer, largest=N) says what fits on a rank": args.auto_find_batch_size,
            "ignore_data_skip=True: leave it out, samples would come twice": args.ignore_data_skip,
            "tensor, context or sequence parallelism: the tuner divides batches among data-parallel ranks alone": self.get_tp_size() * self.get_cp_size() * self.get_sp_size() > 1,
            "several GPUs in one process: start the script with torchrun, one process for each": args.n_gpu > 1,
        }
        for reason, found in wrong.items():
            if found:
                raise Usage(reason)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        sizes = self.evenkeel.order.sizes(self.evenkeel.order.round)
        return super().get_batch_samples((self._blank(b) if not n else b for n, b in zip(sizes, epoch_iterator)), num_batches, device)

    def _blank(self, batch: Any) -> Any:
        """A micro-batch that does not count has no tokens, either."""
        if (self.model_accepts_loss_kwargs or self.compute_loss_func is not None) and self._means is not True:
            for k in ("labels", "shift_labels"):
                if k in batch and not batch[k].is_floating_point():
                    batch[k] = torch.full_like(batch[k], -100)
        return batch

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.evenkeel.watch(model)
        self.evenkeel.start()
        self._training = True
        try:
            loss = super().training_step(model, *args, **kwargs)
        finally:
            self._training = False
        self.evenkeel.stop()
        return loss

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        if self._training and self._means is None:
            self._means = self._probe(model, inputs, num_items_in_batch)
        with _unequal(self.accelerator) if self._training else contextlib.nullcontext():
            loss = super().compute_loss(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        return loss * self.evenkeel.scale if self._training and self._means else loss

    def _probe(self, model: Any, inputs: Any, items: Any) -> bool | None:
        """Whether the loss is a mean over the micro-batch. Models may accept num_items_in_batch and not use it, so it is tried: is the loss half as large
        for twice as many items?"""
        if self.loss_is_scaled_for_ga is not None:
            return not self.loss_is_scaled_for_ga
        if items is None:
            return True
        if super().compute_loss.__module__.startswith("trl."):
            return False
        ratio = []
        for n in (items, 2 * items):
            with torch.no_grad(), torch.random.fork_rng():
                ratio.append(float(super().compute_loss(model, dict(inputs), num_items_in_batch=n)))
        votes = torch.tensor([ratio[0] > 1.5 * ratio[1], 0 < ratio[0] <= 1.5 * ratio[1]], dtype=torch.float64)
        self.evenkeel.add_up(votes)  # ranks whose labels are all masked cannot say
        return None if votes[0] == votes[1] else bool(votes[1] > votes[0])
