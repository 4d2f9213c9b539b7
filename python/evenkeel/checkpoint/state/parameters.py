"""Loads only the parameters of a checkpoint, and finds the newest checkpoint."""

import contextlib
import os

from .. import tensor_file
from ..file import layout
from ..file.errors import Corrupt, Schema
from ..file.layout import BUFFER, PARAMETER
from . import sets


def newest(path):
    """The files of the newest checkpoint that a Job with this path saved, and its step. Corrupt, if there is none."""
    for _, _, paths, missing in sets.sets(os.fspath(path)):
        steps, _ = sets.common(paths, missing)
        if steps:
            return paths, steps[0]
    raise Corrupt(f"{path}: no checkpoint")


def load_parameters(path, module, rename=None, strict=True, buffers=True):
    """Loads a module's parameters and buffers alone from the newest checkpoint that verifies, and gives its step.

    path: a file, or a list of the files of all ranks. rename(name) gives the name in the file of a tensor of the module, None for one to leave as it
    is. With strict, a tensor that is not in the file is an error. Moments are not read.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    wanted = {}
    for name, t, kind in [(n, p.detach(), PARAMETER) for n, p in module.named_parameters()] + [(n, b, BUFFER) for n, b in module.named_buffers() if buffers]:
        there = rename(name) if rename else name
        if there is not None:
            wanted[there] = (t, kind)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tensor_file.open_(p, read_only=True)) for p in paths]
        entries = {e.name: e for ck in files for e in ck.entries}
        for name, (t, kind) in list(wanted.items()):
            if name not in entries:
                if strict:
                    raise Schema(f"{paths[0]}: tensor {name!r} is not in the file")
                del wanted[name]
                continue
            mine = layout.describe({name: (t, kind)})[0][0]
            if (mine.dtype, mine.shape) != (entries[name].dtype, entries[name].shape):
                raise Schema(f"{paths[0]}: tensor {name!r} has shape {mine.shape}, in the file {entries[name].shape}, or another type")
        steps = set.intersection(*({r.step for r in ck._found().values()} for ck in files))
        fault = None
        for step in sorted(steps, reverse=True):
            try:
                for ck in files:
                    ck.load(lambda e: wanted[e.name][0], step, wanted)
                return step
            except Corrupt as e:
                fault = e
        raise fault or Corrupt(f"{paths[0]}: there is no checkpoint of all its files")
