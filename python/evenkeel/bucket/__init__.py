"""Batches of samples of unequal length that take all ranks the same time: docs/guides/bucket-pytorch.md.

Sampler reads schedule files and needs only the standard library; the others need torch.
"""

from .schedule import Batch, Sampler, ScheduleError

__all__ = ["Batch", "BatchLoader", "Loader", "MicroBatch", "OnlineLoader", "Piece", "Pieces", "Sampler", "ScheduleError", "measured", "packed", "partition"]

try:
    from .batches import BatchLoader
    from .cost import measured
    from .loader import Loader
    from .online import OnlineLoader
    from .packing import packed
    from .partition import partition
    from .pieces import Piece, Pieces
    from .place import MicroBatch
except ImportError as e:
    _missing = str(e)

    def __getattr__(name):
        if name in __all__:
            raise ImportError(f"evenkeel.bucket.{name} needs PyTorch: {_missing}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
