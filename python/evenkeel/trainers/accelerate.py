"""Hugging Face Accelerate, in a loop of your own:

    from evenkeel.trainers.accelerate import Tune

    tuner = Tune(accelerator)
    loader = tuner.loader(data, global_batch=256, num_workers=8)            # accelerator.prepare takes it, and leaves it as it is
    for x, y in tuner.steps(loader):
        with accelerator.accumulate(model):
            accelerator.backward(criterion(model(x), y) * tuner.scale)      # mean over its samples
            optimizer.step(); scheduler.step(); optimizer.zero_grad()

A round has the accelerator's gradient_accumulation_steps. save_state and load_state keep the position in the data.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, send_to_device

from ..tuner.errors import Usage
from .equal_steps import EqualSteps, Loader


class Tune(EqualSteps):
    """Of one accelerator. Give the model if it prepares several: times are taken of one."""

    def __init__(self, accelerator: Accelerator, model: torch.nn.Module | None = None, local: bool = True):
        kind, mesh = accelerator.distributed_type, accelerator.parallelism_config
        if kind in (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM, DistributedType.XLA):
            raise Usage(f"{kind.value}: Accelerate hands the loop's steps to it; only DDP and FSDP are tuned here")
        if mesh is not None and mesh.non_data_parallel_size > 1:
            raise Usage("parallelism_config with tensor, context or sequence parallelism: the tuner divides batches among data-parallel ranks alone")
        super().__init__(model, divided=True, local=local)
        self._accelerator, self._before = accelerator, -1  # the accelerator's count when the micro-step began; -1: between micro-steps
        accelerator.register_for_checkpointing(self)

    def loader(self, data: Any, global_batch: int, *args: Any, **arguments: Any) -> Loader:
        """EqualSteps.loader without micro_steps, which are the accelerator's."""
        loader = super().loader(data, global_batch, self._accelerator.gradient_accumulation_steps, *args, **arguments)
        loader._is_accelerate_prepared = True  # type: ignore[attr-defined]  # prepare would deal its batches out again
        return loader

    def begin(self, workers: int = 0) -> None:
        if self._model is None:
            if len(models := self._accelerator._models) != 1:
                raise Usage(f"{len(models)} models are prepared: say which one to time by Tune(accelerator, model)")
            self.watch(models[0])
        super().begin(workers)

    def steps(self, loader: Loader, weight: Callable[[Any], float] | None = None) -> Iterator[Any]:
        a = self._accelerator
        for batch in super().steps(loader, weight):
            yield send_to_device(batch, a.device, non_blocking=a.non_blocking) if a.device_placement else batch

    def start(self) -> None:
        super().start()
        self._before = self._accelerator.step

    def stop(self) -> None:
        self._agree()
        super().stop()
        self._before = -1

    @property
    def scale(self) -> float:
        self._agree()
        return super().scale

    def _over(self) -> bool:
        return self._before not in (-1, self._accelerator.step) and self._accelerator.sync_gradients and self._step + 1 == self.order.micro_steps

    def _agree(self) -> None:
        """The optimizer steps when Accelerate says so."""
        a, number, of = self._accelerator, self._step + 1, self.order.micro_steps
        if a.step == self._before or a.sync_gradients != (number == of):
            raise Usage(
                f"the round of the accelerator does not end with the tuner's (micro-step {number} of {of}, sync_gradients {a.sync_gradients}, step {a.step}): enter "
                "accelerator.accumulate once in each micro-step and before scale is read, leave gradient_accumulation_steps as it was, and iterate prepared loaders to their end"
            )
