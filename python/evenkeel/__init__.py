"""Evenkeel for PyTorch: reads schedules written by `evenkeel bucket schedule`.

    sampler = ScheduleSampler("epoch0.jsonl", rank=rank)
    for batch in DataLoader(data, batch_sampler=sampler): ...

Standard library alone; torch is not imported here.
"""
from .schedule import ScheduleSampler

__all__ = ["ScheduleSampler"]
