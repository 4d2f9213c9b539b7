"""What both loaders share."""

import collections
import contextlib
import dataclasses
import os

import torch.distributed
from torch.utils.data import DataLoader, IterableDataset

from .schedule import ScheduleError

_OURS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "in_order")


@dataclasses.dataclass(eq=False)
class MicroBatch:
    """A batch of a rank."""

    samples: list  # positions in the data set
    step: int  # optimizer step within the epoch
    last: bool  # whether it is the rank's last batch of the step: exchange gradients with it, then step the optimizer
    weight: float  # multiply a mean loss over samples by it: with DDP's mean over ranks, every sample of the epoch counts the same
    token_weight: float  # the same for a mean loss over input tokens, or over target tokens if samples are pairs
    label_weight: float = None  # the same for a mean loss over label tokens; None without the loader's `labels`
    idle: bool = False  # whether the rank has no work in this step; all weights are then 0
    ranks: list = None  # over which its only sample is cut: each takes a part, and as its loss the part's sum over the count of the whole sample; None: it is not
    equal: bool = False  # whether all ranks have equally many batches in each step
    data: object = dataclasses.field(default=None, repr=False)  # what collate_fn returned

    def sync(self, model):
        """A context for the forward and the backward pass. In it, DDP and FSDP exchange gradients only with the last batch of a step, and FSDP2 with each,
        which adds up to the same. A forward pass outside leaves DDP set for the batch before, and ranks may wait for one another forever. Full
        sharding communicates in every forward pass, so ranks must have equally many batches."""
        if hasattr(model, "no_sync"):
            return contextlib.nullcontext() if self.last else model.no_sync()
        if not self.equal and torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise ScheduleError(
                f"batch.sync({type(model).__name__}): it has no no_sync(), so ranks with unequal numbers of batches would wait forever; pass the model that "
                "DDP returned or, for FSDP2, give the ranks equally many batches: BatchLoader(counts=\"equal\"), or a plan with --micro-batches 1")
        return contextlib.nullcontext()


class Epochs:
    """The position of a loader: an epoch, and a step in it."""

    epoch = step = 0

    def set_epoch(self, epoch):
        """Goes to the beginning of an epoch. If the loader is in that epoch already, as after load_state_dict, it stays where it is."""
        if epoch < self.epoch:
            raise ScheduleError(f"epoch {epoch} after {self.epoch}: epochs only go forward; load_state_dict goes back")
        if epoch != self.epoch:
            self._go(epoch, 0)


class Stream(Epochs):
    """A loader whose batches torch's DataLoader fetches. _micro() yields those from where the loader stands."""

    def _start(self, dataset, others):
        self._queue = collections.deque()
        self._loader = DataLoader(dataset, batch_sampler=_Positions(self), **others)

    def __iter__(self):
        queue = self._queue = collections.deque()
        for data in self._loader:
            b = queue.popleft()
            b.data = data
            self.step = b.step + b.last
            yield b
            if queue is not self._queue:
                raise ScheduleError("another iteration over the loader began during this one")
        self._go(self.epoch + 1, 0)


class _Positions:
    """The positions that DataLoader's workers fetch."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for b in self.loader._micro():
            self.loader._queue.append(b)
            yield b.samples


def check(dataset, labels=None, others=()):
    """Refuses a data set without positions, labels of another data set, and arguments of DataLoader that a plan replaces."""
    if wrong := [k for k in _OURS if k in others]:
        raise ScheduleError(f"{', '.join(wrong)}: the plan says which samples make a batch; leave it out")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ScheduleError("the data set has no length and no positions (an IterableDataset); the loader needs both")
    if labels is not None and len(labels) != len(dataset):
        raise ScheduleError(f"labels: {len(labels)} of them; the data set has {len(dataset)} samples")


def place(rank, ranks):
    """The rank and the number of ranks: as given, or of torch.distributed, or of the environment."""
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
