"""DeepSpeed's engine, with ZeRO stages 0 to 3:

    from evenkeel.trainers.deepspeed import Tune

    engine, *_ = deepspeed.initialize(model=model, config=config)
    tuner = Tune(engine)
    for x, y in tuner.steps(tuner.loader(data, num_workers=8)):
        engine.backward(criterion(engine(x), y) * tuner.scale)              # mean over its samples
        engine.step()

A round has the engine's train_batch_size samples, in its gradient_accumulation_steps micro-steps. The engine averages gradients where stages 2 and 3 cut
them into parts, so weights must be known before: steps(loader, weight).
"""

from typing import Any

import torch.distributed as dist

from ..tuner.errors import Usage
from .equal_steps import EqualSteps, Loader


class Tune(EqualSteps):
    """Of one engine. local: see EqualSteps."""

    def __init__(self, engine: Any, local: bool = True):
        wrong = {
            "curriculum learning by data_efficiency: DeepSpeed's loader applies it, and the tuner draws the samples": engine.curriculum_learning_enabled(),
            "a PipelineModule: its engine draws micro-batches by itself, all of one size": engine.pipeline_parallelism,
            "managed_gradient_accumulation=false: leave it out; the tuner divides a round into gradient_accumulation_steps": not engine.managed_gradient_accumulation(),
            "tensor or sequence parallelism: the tuner divides batches among data-parallel ranks alone": engine.dp_world_size != dist.get_world_size() or engine.sequence_parallel_size > 1,
        }
        if found := [w for w, is_so in wrong.items() if is_so]:
            raise Usage("; ".join(found))
        super().__init__(engine, divided=True, local=local)
        self._engine = engine
        self._before: int | None = None  # the engine's count when the micro-step began

    def loader(self, data: Any, global_batch: int = 0, *args: Any, **arguments: Any) -> Loader:
        """EqualSteps.loader without micro_steps, which are the engine's. global_batch: 0 is the engine's train_batch_size."""
        return super().loader(data, global_batch or self._engine.train_batch_size(), self._engine.gradient_accumulation_steps(), *args, **arguments)

    def start(self) -> None:
        super().start()
        number, of = self._step + 1, self.order.micro_steps
        if self._engine.is_gradient_accumulation_boundary() != (number == of):
            raise Usage(
                f"the engine's round does not end with the tuner's (micro-step {number} of {of}; gradient_accumulation_steps {self._engine.gradient_accumulation_steps()}): "
                "leave these as they were, and after an exception or break amid a round make a new engine and load a checkpoint"
            )
        self._before = self._engine.micro_steps

    def stop(self) -> None:
        if self._engine.micro_steps - (self._before or 0) != 1:
            raise Usage("call engine.step() once in each micro-step; the engine knows which is the last")
        super().stop()
        self._before = None

    def _over(self) -> bool:
        return self._before not in (None, self._engine.micro_steps) and self._step + 1 == self.order.micro_steps
