"""Finds the newest checkpoint, and loads only the parameters of a checkpoint."""

import contextlib
import os

from .. import tensor_file
from ..file import layout
from ..file.errors import Corrupt, Schema
from ..file.layout import BUFFER, PARAMETER
from . import sets
from .plan import contents


def newest(path):
    """The files and the step of the newest checkpoint of Job(path). Raises Corrupt if there is none."""
    for _, _, paths, missing in sets.sets(os.fspath(path)):
        steps, _ = sets.common(paths, missing)
        if steps:
            return paths, steps[0]
    raise Corrupt(f"{path}: no checkpoint")


@contextlib.contextmanager
def opened(paths):
    """Opens a file, or the files of all ranks. Returns them, and the steps that all of them have, newest first."""
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    with contextlib.ExitStack() as stack:
        files = sorted((stack.enter_context(tensor_file.open_(p, read_only=True)) for p in paths), key=lambda ck: ck.rank)
        sets.of_one_set(files)
        steps = set.intersection(*({r.step for r in ck._found().values()} for ck in files))
        if not steps:
            raise Corrupt(f"{paths[0]}: there is no checkpoint of all its files")
        yield files, sorted(steps, reverse=True)


def wanted(path, module, rename, strict, entries):
    """Yields the parameters and buffers of a module that are in a file: (name in the file, tensor, its entry)."""
    tensors = [(n, p.detach(), PARAMETER) for n, p in module.named_parameters()] + [(n, b, BUFFER) for n, b in contents(module)[0]]
    for name, t, kind in tensors:
        name = rename(name) if rename else name
        if name in entries:
            yield name, t, layout.describe({name: (t, kind)})[0][0]
        elif name is not None and strict:
            raise Schema(f"{path}: tensor {name!r} is not in the file")


def load_parameters(path, module, rename=None, strict=True):
    """Loads only a module's parameters and buffers from the newest checkpoint that verifies. Returns its step.

    path: a file, or a list of the files of all ranks. rename(name): the name in the file of a tensor of the module, or None to leave the tensor as
    it is. strict: a tensor that is not in the file is an error.
    """
    with opened(path) as (files, steps):
        entries, into = {e.name: e for ck in files for e in ck.entries}, {}
        for name, t, mine in wanted(files[0].path, module, rename, strict, entries):
            if (mine.dtype, mine.shape) != (entries[name].dtype, entries[name].shape):
                raise Schema(f"{files[0].path}: tensor {name!r} has shape {mine.shape}, in the file {entries[name].shape}, or another type")
            into[name] = t
        fault = None
        for step in steps:
            try:
                sets.at(files, step)
                for ck in files:
                    ck.load(lambda e: into[e.name], step, into)
                return step
            except Corrupt as e:
                fault = e
        raise fault
