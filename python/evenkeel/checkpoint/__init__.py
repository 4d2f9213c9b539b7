"""Checkpoints of a PyTorch job, in files that are complete after every save.

    from evenkeel.checkpoint import Job

Job saves and restores a job's live objects: model, optimizer, schedulers, generators. LayerWise updates and saves each layer while the layers below it
still compute gradients. load_parameters loads only the parameters of a model. evenkeel.checkpoint.callbacks supports Lightning and transformers,
evenkeel.checkpoint.interchange reads and writes other formats. create and open_ give access to a single file of named tensors.

`evenkeel checkpoint` inspects, verifies and exports the files; docs/reference/formats/checkpoint.md describes them. The package needs Linux and allows one
writer per file.
"""

from .file.errors import CheckpointError, Corrupt, Format, Locked, Schema, Usage
from .file.layout import BUFFER, MOMENT, PARAMETER, State
from .layerwise import LayerWise
from .objects import Job
from .state.parameters import load_parameters, newest
from .tensor_file import Checkpoint, create, open_

__all__ = [
    "BUFFER", "MOMENT", "PARAMETER", "Checkpoint", "CheckpointError", "Corrupt", "Format", "Job", "LayerWise", "Locked", "Schema", "State", "Usage",
    "create", "load_parameters", "newest", "open_",
]  # fmt: skip

for _error in (CheckpointError, Corrupt, Format, Locked, Schema, Usage):
    _error.__module__ = __name__  # the public name
