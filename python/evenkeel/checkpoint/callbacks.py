"""Checkpoints within the trainers of Lightning and transformers, whose callbacks these are. Both restore when training begins, and save when due() says so
or at a fixed number of steps. A step is saved when its evaluation is over.
"""

import copy
import dataclasses
import json
import os
import zlib
from types import SimpleNamespace

from . import interchange, tensor_file
from .file.errors import Usage
from .objects import Job
from .state import values
from .state.parameters import newest


class _Callback:
    """What both callbacks share."""

    saved = None  # the Job, during training
    _generators = None  # the restored generators, until the trainer is where they were saved

    def _continue_generators(self):
        if self._generators is not None:
            values.set_generators(self._generators)
            self._generators = None

    def _close(self, wait):
        if self.saved is not None:
            saved, self.saved = self.saved, None
            saved.close(wait)


def _between_batches(state, loaders):
    """The state of Lightning's loops between two batches. After a step's validation and schedulers, Lightning has already fetched the next batch and counts
    it as ready. Restored like that, the loops would skip it if it is an epoch's last, and a loader with a state would always skip it."""
    state = copy.deepcopy(state)
    progress = state.get("epoch_loop.batch_progress")
    if progress and progress["current"]["ready"] > progress["current"]["completed"]:
        for counts in (progress["current"], progress["total"]):
            counts.update({k: counts["completed"] for k in ("ready", "started", "processed") if k in counts})
        progress["is_last_batch"] = False
        if "combined_loader" in state.get("state_dict", {}):
            state["state_dict"]["combined_loader"] = loaders or []
    return state


def lightning(path, every=0, **options):
    """A callback for Lightning's Trainer. every: optimizer steps between saves; 0: the automatic interval. Other options are Job's.

    It saves module, optimizers, schedulers, the loops' progress and the generators. Lightning does not restore the position of a data loader within
    an epoch: use a loader with a state, or save at the end of epochs. Only automatic optimization is supported.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class Checkpoints(_Callback, Callback):
        def __init__(self):
            super().__init__()
            self._step = -1  # the newest step that was saved or restored
            self._loaders = None  # the states of loaders after the newest batch that was trained on

        def _objects(self, trainer, module):
            if not module.automatic_optimization:
                raise Usage("manual optimization is not supported; use Job, with ready() before each optimizer.step()")
            loops = SimpleNamespace(load_state_dict=trainer.fit_loop.load_state_dict)
            loops.state_dict = lambda: _between_batches(trainer.fit_loop.state_dict(), self._loaders)
            out = {"model": module, "loops": loops}
            out.update({f"optimizer{i}": o for i, o in enumerate(trainer.optimizers)})
            out.update({f"scheduler{i}": c.scheduler for i, c in enumerate(trainer.lr_scheduler_configs)})
            scaler = getattr(getattr(trainer, "precision_plugin", None), "scaler", None)
            if scaler is not None:
                out["scaler"] = scaler
            return out

        def on_fit_start(self, trainer, module):
            if getattr(trainer, "ckpt_path", None):
                raise Usage("the Trainer restores from ckpt_path; leave out ckpt_path or the callback")
            self.saved = Job(path, **options)
            state = self.saved.restore(**self._objects(trainer, module))
            if state:  # the generators are set when the first batch is fetched, as when they were saved
                self._step, self._generators = state.step, values.generators()

        def on_train_batch_end(self, trainer, module, *_):
            self._loaders = copy.deepcopy(trainer.fit_loop.state_dict().get("state_dict", {}).get("combined_loader"))

        def on_train_epoch_start(self, trainer, module):
            self._loaders = None  # an epoch begins with new loaders

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            self._continue_generators()
            self._save(trainer, module, False)  # the last step is complete now, with validation and schedulers

        def _save(self, trainer, module, last):
            step = trainer.global_step - 1
            if self.saved is None or step <= self._step:
                return
            due = (step + 1) % every == 0 if every else self.saved.due()
            if due or last:
                self.saved.save(step, **self._objects(trainer, module))
                self._step = step

        def on_before_optimizer_step(self, trainer, module, optimizer, *_):
            self.saved.ready()

        def on_train_end(self, trainer, module):
            self._save(trainer, module, True)
            self.saved.wait()

        def on_exception(self, trainer, module, exception):
            self._close(False)

        def teardown(self, trainer, module, stage):
            self._close(True)

    return Checkpoints()


def transformers(path, every=0, **options):
    """A callback for Hugging Face's Trainer. every: steps between saves; 0: the automatic interval. Other options are Job's.

    To resume, call trainer.train(resume_from_checkpoint=resume_folder(path, folder)). The Trainer reads its position in the data from the folder, and the
    callback restores the rest exactly. Set save_strategy="no" if you need no other checkpoints.
    """
    from transformers import TrainerCallback

    class Checkpoints(_Callback, TrainerCallback):
        _stepped = False  # whether a step was made that was not looked at

        @staticmethod
        def _objects(state, model, optimizer, lr_scheduler):
            optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps both
            lr_scheduler = getattr(lr_scheduler, "scheduler", lr_scheduler)
            plain = {k: v for k, v in dataclasses.asdict(state).items() if isinstance(v, (int, float, str, bool, list, dict, type(None)))}
            return {"model": model, "optimizer": optimizer, "scheduler": lr_scheduler, "trainer": SimpleNamespace(state_dict=lambda: plain, load_state_dict=lambda _: None)}

        def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
            self.saved = Job(path, **options)
            before = values.generators()
            found = self.saved.restore(**self._objects(state, model, optimizer, lr_scheduler))
            at = found.step + 1 if found else 0
            if at != state.global_step:
                self._close(False)
                raise Usage(f"{path} has {at} steps, the Trainer begins after {state.global_step}; call train(resume_from_checkpoint=folder) with a folder of "
                            "callbacks.resume_folder")
            if found:
                self._generators = values.generators()
                values.set_generators(before)  # until the Trainer has skipped the earlier batches

        def on_epoch_begin(self, args, state, control, **objects):
            self._complete(state, **objects)
            if float(state.epoch or 0).is_integer():  # saved before the sampler drew the order of this epoch
                self._continue_generators()

        def on_step_begin(self, args, state, control, **objects):
            self._complete(state, **objects)
            self._continue_generators()

        def on_pre_optimizer_step(self, args, state, control, **_):
            self.saved.ready()

        def on_step_end(self, args, state, control, **_):
            self._stepped = True  # the step's evaluation comes later, and moves the generators

        def _complete(self, state, model=None, optimizer=None, lr_scheduler=None, last=False, **_):
            stepped, self._stepped = self._stepped, False
            if stepped and (state.global_step % every == 0 if every else self.saved.due() or last):
                self.saved.save(state.global_step - 1, **self._objects(state, model, optimizer, lr_scheduler))

        def on_epoch_end(self, args, state, control, **objects):
            if state.global_step >= state.max_steps:
                self._complete(state, last=True, **objects)

        def on_train_end(self, args, state, control, **objects):
            if not args.load_best_model_at_end:  # else the model is another step's
                self._complete(state, last=True, **objects)
            self._close(True)

    return Checkpoints()


def resume_folder(path, folder):
    """Creates a folder for resume_from_checkpoint with the Trainer's state and the weights. Returns its name."""
    paths, step = newest(path)
    with tensor_file.open_(paths[0], read_only=True) as ck:
        state, _ = ck.at(step)
    tree = json.loads(zlib.decompress(state.random[8:]))["objects"]
    if "trainer" not in tree:
        raise Usage(f"{path} was not saved by the callback for transformers")
    os.makedirs(folder, exist_ok=True)
    plain = values.decode(tree["trainer"]["state"], lambda *_: None)
    with open(os.path.join(folder, "trainer_state.json"), "w") as f:
        json.dump(plain, f, indent=2, sort_keys=True)
    interchange.to_safetensors(paths, os.path.join(folder, "model.safetensors"), step)
    return folder
