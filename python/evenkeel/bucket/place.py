"""What the loaders share: a batch, and which rank this is."""

import contextlib
import os

import torch.distributed
from torch.utils.data import IterableDataset

from .schedule import ScheduleError

OURS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


class MicroBatch:
    """What a rank computes at once.

    data          what the DataLoader collated
    samples       positions in the data set
    step          optimizer step within the epoch
    last          whether it is the rank's last of the step: exchange gradients with it, then step the optimizer
    weight        factor of a mean loss over samples with which DDP's mean over ranks is that over all samples of the step
    token_weight  the same for a mean loss over input tokens; where samples have a source and a target, over the targets' tokens
    label_weight  the same for a mean loss over label tokens; None without the loader's `labels`
    idle          the rank has no work in this step and takes part with all weights 0
    """

    __slots__ = ("data", "samples", "step", "last", "weight", "token_weight", "label_weight", "idle")

    def __init__(self, samples, step, last, weight, token_weight, label_weight=None, idle=False):
        self.data, self.samples, self.step, self.last = None, samples, step, last
        self.weight, self.token_weight, self.label_weight, self.idle = weight, token_weight, label_weight, idle

    def sync(self, model):
        """The context for both forward and backward: with DDP or FSDP, gradients are then exchanged with the last batch of a step only.
        A forward pass outside it makes DDP exchange at once, and the other ranks wait for ever. Full sharding communicates in every
        forward pass, so it needs a plan with --micro-batches 1. FSDP2 has no no_sync() and is refused."""
        if hasattr(model, "no_sync"):
            return contextlib.nullcontext() if self.last else model.no_sync()
        if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise ScheduleError(f"batch.sync({type(model).__name__}): it has no no_sync(), so each of a step's batches would exchange gradients and ranks wait for ever; give it the model as DDP or FSDP wrapped it")
        return contextlib.nullcontext()

    def __repr__(self):
        return f"MicroBatch(step={self.step}, {len(self.samples)} samples, weight={self.weight:.4g}, last={self.last}, idle={self.idle})"


def check(dataset, labels=None, why="lengths belong to positions"):
    """Refuses a data set without positions, and labels that are not its own."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ScheduleError(f"the data set has no length and no positions (an IterableDataset): {why}")
    if labels is not None and len(labels) != len(dataset):
        raise ScheduleError(f"labels: {len(labels)} of them; the data set has {len(dataset)} samples")


def place(rank, ranks):
    if (rank is None) != (ranks is None):
        raise ScheduleError("give both rank and ranks, or neither")
    if rank is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if not 0 <= rank < ranks:
        raise ScheduleError(f"rank {rank} of {ranks}")
    return rank, ranks
