"""Lets all ranks continue together, or raise an error together."""

import torch

from ..file.errors import CheckpointError


def text(error):
    return str(error) if error else None


class Ranks:
    """A group of torch.distributed with operations of its own, or one process. group: by default all ranks, if torch.distributed is in use."""

    def __init__(self, group=None):
        self.rank, self.ranks, self.group = 0, 1, None
        dist = getattr(torch, "distributed", None)
        if dist and dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1:
            # A separate group on the CPU, so that its operations never mix with those of the training.
            members = [dist.get_global_rank(group, i) for i in range(dist.get_world_size(group))] if group else None
            self.group = dist.new_group(members, backend="gloo")
            self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)

    def _gather(self, *values):
        """Every rank's values, by rank."""
        if self.ranks == 1:
            return [values]
        out = [None] * self.ranks
        torch.distributed.all_gather_object(out, values, group=self.group)
        return out

    @staticmethod
    def _raise(error, said):
        """error: this rank's, or None; said: the text of each rank's, or None."""
        if error:
            raise error
        for rank, text in enumerate(said):
            if text is not None:
                raise CheckpointError(f"rank {rank}: {text}")

    def _agree(self, error, *values):
        """Raises on all ranks if one has an error; otherwise returns the values of every rank."""
        got = self._gather(text(error), *values)
        self._raise(error, [said for said, *_ in got])
        return [v for _, *v in got]

    def _everywhere(self, do):
        error = value = None
        try:
            value = do()
        except (CheckpointError, OSError) as e:
            error = e
        self._agree(error)
        return value
