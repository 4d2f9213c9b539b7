"""torchtitan's Trainer: a line in the function of your config registry.

    from evenkeel.trainers.torchtitan import tuned

    def llama3_mixed() -> Trainer.Config:
        return tuned(llama3_8b())

The batch of a round stays the config's own, training.global_batch_size; only its division among the data-parallel ranks changes. torchtitan sums losses and
divides by the valid tokens of all ranks, so any division is exact, and nothing is scaled here. Each rank reads its own part of the data, as before, and
faster if its share is larger. Checkpoints are those of a job that is not tuned.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from ..tuner.errors import Usage
from ..tuner.structure import join
from .equal_steps import EqualSteps

_ROUNDS = 64  # of what the tuner takes for an epoch; the data know no end


def tuned(config: Trainer.Config, largest: int = 0) -> Trainer.Config:
    """The same config of a trainer whose ranks take as many samples as let all finish together. largest is the largest micro-batch that fits on this rank."""
    base = config._owner

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(type(config)):  # type: ignore[misc]
        pass

    made = type(f"Tuned{base.__name__}", (_Tuned, base), {"Config": Config, "largest": largest})
    return made.Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)})


@dataclasses.dataclass(kw_only=True, slots=True)
class _Single(BaseDataLoader.Config):
    """The user's dataloader, with batches of one sample, so that its state is exact whatever the sizes."""

    inner: BaseDataLoader.Config

    def build(self, local_batch_size: int, snapshot_every_n_steps: int | None = None, **kwargs: Any) -> Any:
        return self.inner.build(local_batch_size=1, snapshot_every_n_steps=snapshot_every_n_steps and snapshot_every_n_steps * local_batch_size, **kwargs)


class _Stream(torch.utils.data.Dataset):
    """The samples of a rank in the order in which its own loader has them, whichever are asked for."""

    def __init__(self, source: Any, length: int):
        self._samples, self._length = iter(source), length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, _: int) -> Any:
        try:
            return next(self._samples)
        except StopIteration:
            raise Usage("this rank's data have ended, and those of others have not: give the dataloader infinite=True") from None


class _Steps(EqualSteps):
    workers = 0

    def begin(self, workers: int = 0) -> None:
        super().begin(self.workers)  # those that read


class _Tuned(Trainer):
    largest = 0

    def __init__(self, config: Trainer.Config):
        p = config.parallelism
        wrong = {
            "expert parallelism: ranks wait for one another within a layer, so none has a time of its own": p.expert_parallel_degree > 1,
            "pipeline, tensor or context parallelism: the tuner divides batches among data-parallel ranks alone": max(p.pipeline_parallel_degree, p.tensor_parallel_degree, p.context_parallel_degree) > 1,
            "training.disable_cuda_graphs=False: set it to True, a graph replays a single size": utils.device_type == "cuda" and not config.training.disable_cuda_graphs,
        }
        for reason, found in wrong.items():
            if found:
                raise Usage(reason)
        super().__init__(dataclasses.replace(config, dataloader=_Single(inner=config.dataloader)))
        self.evenkeel = _Steps(self.model_parts[0])
        self.evenkeel.workers = getattr(config.dataloader, "num_workers", 0)

    def batch_generator(self, data_iterable: Any) -> Iterator[Any]:
        return super().batch_generator(self._batches(data_iterable))

    def _batches(self, source: Any) -> Iterator[Any]:
        tuner, steps = self.evenkeel, self.gradient_accumulation_steps
        batch = self.config.training.local_batch_size * torch.distributed.get_world_size() * steps
        loader = tuner.loader(_Stream(source, _ROUNDS * batch), batch, steps, self.largest, shuffle=False, collate_fn=lambda b: join(b, [1] * len(b)))
        while True:
            for inputs, labels in loader:
                yield inputs, labels if tuner.handed else torch.full_like(labels, IGNORE_INDEX)

    def forward_backward_step(self, **kwargs: Any) -> torch.Tensor:
        self.evenkeel.start()
        loss = super().forward_backward_step(**kwargs)
        self.evenkeel.stop()
        return loss

    def close(self) -> None:
        self.evenkeel.close()
        super().close()
