"""Batches of equal duration as a data set, for evenkeel.Tuner to distribute."""

import array
import dataclasses
import json

import torch
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from .loader import Schedules
from .place import check
from .schedule import Schedule


@dataclasses.dataclass
class Piece:
    """One batch. Multiply its mean loss over samples by weight, or its mean loss over label tokens by label_weight: the tuner's mean over pieces is
    then the mean over samples or label tokens. Both weights have the mean 1 over an epoch."""

    data: object  # what collate_fn returned
    weight: float
    label_weight: object  # None without `labels`
    samples: list  # positions in the data set

    def pin_memory(self):
        """For DataLoader(pin_memory=True)."""
        return dataclasses.replace(self, data=pin_memory(self.data))


class Pieces(Dataset):
    """The batches of an epoch. All take about the same time, so a rank's time is about proportional to its number of pieces.

    dataset, lengths, plan, seed, labels, command, cache   as in Loader; the plan may be for any number of ranks
    collate_fn   makes the data of a piece from its samples

    Every sample that the plan batches is in one piece of an epoch. Each epoch is cut anew. Weights are relative to the mean number of samples of a
    piece, so all samples of an epoch count the same, and a round with more samples counts more."""

    def __init__(self, dataset, lengths, plan, *, seed=1, labels=None, collate_fn=default_collate, command=None, cache=None):
        check(dataset, labels)
        self.dataset, self._labels, self._collate = dataset, labels, collate_fn
        self._source = Schedules(lengths, str(plan), len(dataset), seed, command, cache)
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # shared with workers that outlive an epoch
        self._read = None
        self.begin(0)

    def begin(self, epoch):
        """Goes to an epoch and returns its number of pieces."""
        self._epoch[0] = epoch
        return len(self)

    def __len__(self):
        return len(self._places()[1])

    def _places(self):
        """The schedule's path, the position of each piece in it, and the sums of their samples and labels."""
        epoch = int(self._epoch[0])
        if self._read is None or self._read[0] != epoch:
            path = self._source.file(epoch, 1, [1.0], None)
            at, samples, labels = array.array("q"), 0, 0
            for place, batch in Schedule(path, 0, 1).lines():
                at.append(place)
                samples += len(batch.samples)
                labels += 0 if self._labels is None else sum(self._labels[i] for i in batch.samples)
            self._read = epoch, (path, at, samples, float(labels))
        return self._read[1]

    def __getitem__(self, k):
        path, at, samples, labels = self._places()
        with open(path, "rb") as f:
            f.seek(at[k])
            own = json.loads(f.readline())["samples"]
        label_weight = None
        if self._labels is not None:
            label_weight = float(sum(self._labels[i] for i in own)) * len(at) / labels if labels else 0.0
        return Piece(self._collate([self.dataset[i] for i in own]), len(own) * len(at) / samples, label_weight, own)
