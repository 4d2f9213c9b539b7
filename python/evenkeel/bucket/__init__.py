"""Batches of samples of unequal length that take all ranks the same time.

    loader = evenkeel.bucket.Loader(dataset, lengths, "plan.json", num_workers=4)
    for batch in loader:
        with batch.sync(model):                  # DDP's all-reduce comes with the last batch of the step
            loss = batch.weight * mean_loss(model(batch.data))
            loss.backward()
        if batch.last:
            optimizer.step(); optimizer.zero_grad()

Loader(dataset, "plan.json", online=True) needs no lengths. Pieces(dataset, lengths, "plan.json") is for jobs with evenkeel.Tuner. Sampler reads
schedule files and needs only the standard library; the others need torch. See docs/guides/bucket-pytorch.md.
"""

from .schedule import Batch, Sampler, ScheduleError

__all__ = ["Batch", "Loader", "MicroBatch", "OnlineLoader", "Piece", "Pieces", "Sampler", "ScheduleError"]

try:
    from .loader import Loader
    from .online import OnlineLoader
    from .pieces import Piece, Pieces
    from .place import MicroBatch
except ImportError as e:
    _missing = str(e)

    def __getattr__(name):
        if name in ("Loader", "MicroBatch", "OnlineLoader", "Piece", "Pieces"):
            raise ImportError(f"evenkeel.bucket.{name} needs PyTorch: {_missing}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
