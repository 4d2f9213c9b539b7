"""Which samples a step trains on, derived from the step's number alone: a job that continues at step n needs no other position in the data.

    order = Steps(len(dataset), global_batch=64, steps=10_000, first=state.step + 1 if state else 0, seed=1)
    loader = DataLoader(dataset, batch_sampler=order, num_workers=2, generator=torch.Generator())
    for step, batch in enumerate(loader, order.first):

A loader's workers fetch batches long before they are trained on, so a sampler that counts the batches it gave out is ahead of the step. Steps counts
nothing. Every epoch has an order of its own; samples that do not fill a batch at its end go into the next epoch. The ranks divide each batch as
evenly as possible, so a job on another number of ranks trains on the same samples in every step.
"""

import torch


def shuffled(length, seed, epoch):
    """The order of an epoch's samples."""
    return torch.randperm(length, generator=torch.Generator().manual_seed((seed * 1_000_003 + epoch) % (1 << 63)))


class Steps:
    """The batch sampler of one rank, for torch's DataLoader. rank, ranks: by default those of torch.distributed, if it is in use."""

    def __init__(self, length, global_batch, steps, first=0, seed=0, rank=None, ranks=None):
        dist = getattr(torch, "distributed", None)
        spread = dist and dist.is_available() and dist.is_initialized()
        self.ranks = ranks if ranks is not None else dist.get_world_size() if spread else 1
        self.rank = rank if rank is not None else dist.get_rank() if spread else 0
        self.length, self.global_batch, self.steps, self.first, self.seed = length, global_batch, steps, first, seed
        if length < 1 or not 0 <= first or not 0 <= self.rank < self.ranks:
            raise ValueError(f"length {length}, first {first}, rank {self.rank} of {self.ranks}: give a sample or more, a first step from 0, and a rank below ranks")
        if global_batch < self.ranks:
            raise ValueError(f"global_batch is {global_batch}, which is less than a sample for each of {self.ranks} ranks")
        self._epoch, self._order = -1, None

    def _at(self, place):
        """The sample at a place in the endless row of epochs."""
        epoch, at = divmod(place, self.length)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, shuffled(self.length, self.seed, epoch)
        return int(self._order[at])

    def batch(self, step):
        """This rank's part of a step's samples."""
        begin = step * self.global_batch
        mine = range(self.global_batch * self.rank // self.ranks, self.global_batch * (self.rank + 1) // self.ranks)
        return [self._at(begin + i) for i in mine]

    def __iter__(self):
        return map(self.batch, range(self.first, self.steps))

    def __len__(self):
        return max(0, self.steps - self.first)
