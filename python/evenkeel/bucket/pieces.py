"""Batches of one anchor duration as a data set, for evenkeel.Tuner to deal out."""

import array
import dataclasses
import json

import torch
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from .loader import source
from .place import check
from .schedule import Sampler


@dataclasses.dataclass
class Piece:
    """One batch. weight is the factor of its mean loss over samples with which the tuner's mean over pieces is that over samples; label_weight
    likewise over what `labels` counts. Both have the mean 1 over an epoch."""

    data: object  # what collate_fn made
    weight: float
    label_weight: object  # None without `labels`
    samples: list  # positions in the data set

    def pin_memory(self):
        """For DataLoader(pin_memory=True)."""
        return dataclasses.replace(self, data=pin_memory(self.data))


class Pieces(Dataset):
    """The batches of an epoch, each about as much work as any other, so that a rank's time is its number of pieces times its pace.

        pieces = evenkeel.bucket.Pieces(dataset, lengths, "plan.json", collate_fn=collate)
        batches = tuner.batches(pieces.begin, global_batch=64, micro_batch=1)      # 64 pieces a round
        loader = DataLoader(pieces, batch_sampler=batches, collate_fn=list)
        for (piece,) in tuner.steps(loader):
            (piece.weight * mean_loss(model(piece.data))).backward()

    dataset, lengths, plan, seed, labels, command, cache   as Loader's; the plan may be for any number of ranks
    collate_fn   of the samples of a piece

    Every sample that the plan batches is in one piece an epoch, and the pieces of each epoch are cut anew. The weights divide by the mean number of
    samples of a piece, so that all samples of an epoch count alike: a round that happens to have more samples counts more."""

    def __init__(self, dataset, lengths, plan, *, seed=1, labels=None, collate_fn=default_collate, command=None, cache=None):
        check(dataset, labels)
        self.dataset, self._labels, self._collate = dataset, labels, collate_fn
        self._source = source(lengths, str(plan), len(dataset), seed, command, cache)
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # workers that outlive an epoch see it, too
        self._read = None
        self.begin(0)

    def begin(self, epoch):
        """Goes to an epoch, and says how many pieces it has."""
        self._epoch[0] = epoch
        return len(self)

    def __len__(self):
        return len(self._places()[1])

    def _places(self):
        """The schedule's file, where its pieces begin there, and their samples and labels in all."""
        epoch = int(self._epoch[0])
        if self._read is None or self._read[0] != epoch:
            path = self._source.schedule(epoch, 1, [1.0], None)
            at, samples, labels = array.array("q"), 0, 0
            for place, batch in Sampler(path, 0, 1).places():
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
