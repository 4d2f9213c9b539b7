"""Lightning's Trainer, with any of its strategies that average gradients over ranks:

    from evenkeel.trainers.lightning import Tune

    tune = Tune()
    trainer = L.Trainer(strategy="ddp", accumulate_grad_batches=4, use_distributed_sampler=False, callbacks=[tune])
    trainer.fit(module, tune.loader(data, global_batch=256, micro_steps=4, num_workers=8))

training_step returns a mean over its samples, which is scaled before the backward pass; what it logs is not. A checkpoint has the position in the data.
"""

from typing import Any

import torch
from lightning.pytorch import Callback

from ..tuner.errors import Usage
from .equal_steps import EqualSteps, Loader


class Tune(Callback):
    """The callback of one trainer. local: see EqualSteps."""

    def __init__(self, local: bool = True):
        self.tuner = EqualSteps(divided=True, local=local)
        self._inner: Any = None

    def loader(self, data: Any, global_batch: int, micro_steps: int = 1, **arguments: Any) -> Loader:
        """EqualSteps.loader: give it to fit, or return it in train_dataloader. micro_steps is the trainer's accumulate_grad_batches."""
        return self.tuner.loader(data, global_batch, micro_steps, **arguments)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if not pl_module.automatic_optimization:
            raise Usage("automatic_optimization = False: use evenkeel.EqualSteps in training_step, and multiply the loss by its scale before manual_backward")
        self._inner = pl_module.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            out = self._inner(*args, **kwargs)
            if isinstance(out, torch.Tensor):
                return out * self.tuner.scale
            return {**out, "loss": out["loss"] * self.tuner.scale} if out is not None else None

        pl_module.training_step = training_step

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loader, order = trainer.train_dataloader, getattr(self.tuner, "order", None)
        if order is None or getattr(loader, "batch_sampler", None) is not order:
            raise Usage("the trainer does not train on the loader of tune.loader(): give that to fit, and Trainer use_distributed_sampler=False")
        if trainer.accumulate_grad_batches != order.micro_steps:
            raise Usage(f"accumulate_grad_batches={trainer.accumulate_grad_batches}, and tune.loader has micro_steps={order.micro_steps}: give both the same")
        self.tuner.watch(trainer.strategy.model)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.tuner.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.tuner.stop()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._inner is not None:
            pl_module.training_step, self._inner = self._inner, None
            self.tuner.close()
