"""Samples whose lengths are known only when they are processed: ranks tell one another the lengths, and send samples to the rank that trains on them."""

import pickle

import torch
import torch.distributed as dist

from .schedule import ScheduleError


class Exchange:
    """Messages between the ranks, through a group of gloo."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks, self.group = rank, ranks, None
        if ranks > 1:
            if not (dist.is_available() and dist.is_initialized()):
                raise ScheduleError(f"{ranks} ranks that learn lengths late need torch.distributed: call init_process_group first")
            self.group = dist.new_group(backend="gloo")

    def gather(self, make):
        """What make() returns on each rank, told to all. An error of one is raised on all."""
        try:
            fault, message = None, (True, make())
        except Exception as e:
            fault, message = e, (False, f"{type(e).__name__}: {e}")
        heard = [message] * self.ranks
        if self.group:
            dist.all_gather_object(heard, message, group=self.group)
        if fault:
            raise fault
        for r, (well, told) in enumerate(heard):
            if not well:
                raise ScheduleError(f"rank {r}: {told}")
        return [told for _, told in heard]

    def swap(self, samples, parts):
        """Sends samples, of which this rank has some by place, to the ranks that have their places in micro-batches, and returns this rank's."""
        sent = [pickle.dumps({k: samples[k] for m in p for k in m if k in samples} if r != self.rank else {}) for r, p in enumerate(parts)]
        mine = {k for m in parts[self.rank] for k in m}
        out = {k: s for k, s in samples.items() if k in mine}
        if self.group:
            sizes = torch.tensor([len(s) for s in sent])
            coming = torch.empty_like(sizes)
            dist.all_to_all_single(coming, sizes, group=self.group)
            data = torch.empty(int(coming.sum()), dtype=torch.uint8)
            dist.all_to_all_single(data, torch.frombuffer(bytearray(b"".join(sent)), dtype=torch.uint8), coming.tolist(), sizes.tolist(), group=self.group)
            for part in data.split(coming.tolist()):
                out.update(pickle.loads(part.numpy().tobytes()))
        return out


def tokens(sample):
    """The tokens of a processed sample."""
    if isinstance(sample, dict):
        if "input_ids" not in sample:
            raise ScheduleError("a sample is a dictionary without input_ids; give length=, a function of a sample")
        sample = sample["input_ids"]
    return len(sample)
