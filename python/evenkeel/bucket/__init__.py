"""Batches of samples of unequal length that take all ranks the same time: docs/guides/bucket.md."""

from .batches import BatchLoader
from .cost import Costs, measured, profile
from .loader import Loader
from .packing import packed
from .partition import partition
from .place import MicroBatch
from .schedule import ScheduleError

__all__ = ["BatchLoader", "Costs", "Loader", "MicroBatch", "ScheduleError", "measured", "packed", "partition", "profile"]
