"""Checkpoints in other formats: safetensors, and torch.distributed.checkpoint (DCP)."""

import contextlib
import inspect
import json
import os
import warnings

import safetensors.torch
import torch

from .file import layout
from .file.errors import Corrupt, Schema
from .file.layout import MOMENT, PARAMETER
from .state import sets
from .state.parameters import opened, wanted

_KINDS = {2: "moment", 3: "buffer"}  # as the Go package names them


@contextlib.contextmanager
def _opened(paths, step):
    """The arrays of a step, by default the newest, as name -> (file, place); and the step."""
    with opened(paths) as (files, steps):
        step = steps[0] if step is None else step
        yield {place[0].name: (ck, place) for ck, (_, found) in zip(files, sets.at(files, step)) for place in found}, step


def _read(ck, place):
    t = torch.empty(place[0].shape, dtype=layout.TORCH[place[0].dtype])
    ck.read(place, t)
    return t


@contextlib.contextmanager
def replacing(out):
    """Yields the name of a file to write. It replaces an existing file when everything is written and durable."""
    temporary = f"{out}.writing"
    try:
        yield temporary
        with open(temporary, "rb") as f:
            os.fsync(f.fileno())
        os.replace(temporary, out)
    except OSError as e:
        e.filename = e.filename or out  # the error of a full disk has no name
        raise
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def to_safetensors(paths, out, step=None, moments=False):
    """Writes the parameters and buffers of a checkpoint file, or of the files of all ranks, as a safetensors file; with moments=True, the moments too.
    Every tensor is verified. An existing file is replaced at the end. step: by default the newest that all files have. Returns the step."""
    with _opened(paths, step) as (places, step):
        entries = [p[0] for _, p in places.values() if moments or p[0].kind != MOMENT]
        kinds = {e.name: _KINDS[e.kind] for e in entries if e.kind != PARAMETER}
        metadata = {"evenkeel.step": str(step), "evenkeel.cursor": "0", "evenkeel.random": "", "evenkeel.scalars": "{}", "evenkeel.kinds": json.dumps(kinds)}
        _save({e.name: _read(*places[e.name]) for e in entries}, out, metadata)
        return step


def write_safetensors(tensors, out):
    """Writes named tensors as a safetensors file. An existing file is replaced at the end."""
    _save({n: layout.stored(t).clone() for n, t in tensors.items()}, out, {})  # cloned, because the library refuses shared memory


def _save(tensors, out, metadata):
    with replacing(out) as temporary:
        try:
            safetensors.torch.save_file(tensors, temporary, {"format": "pt", **metadata})
        except safetensors.SafetensorError as e:
            raise OSError(f"{out}: {e}") from None


def from_safetensors(path, module, rename=None, strict=True):
    """Loads a module's parameters and buffers from a safetensors file. rename and strict are as in checkpoint.load_parameters. If a tensor does not fit,
    nothing is changed."""
    loads = []
    try:
        with safetensors.safe_open(path, "pt") as f:
            for there, t, e in wanted(path, module, rename, strict, set(f.keys())):
                new = f.get_tensor(there)
                if (new.dtype, new.shape) != (layout.TORCH[e.dtype], e.shape):
                    raise Schema(f"{path}: tensor {there!r} is {new.dtype} of shape {tuple(new.shape)}, in the module {layout.TORCH[e.dtype]} of {e.shape}")
                loads.append((t, new))
            with torch.no_grad():
                for t, new in loads:
                    t.copy_(torch.view_as_complex(new) if t.is_complex() else new)
    except safetensors.SafetensorError as e:
        raise Corrupt(f"{path}: {e}; is it a safetensors file?") from None


def to_dcp(paths, folder, step=None):
    """Writes a checkpoint in the format of torch.distributed.checkpoint, without other ranks: parameters and buffers below "model", moments below
    "optimizer.state.NAME". Returns the step."""
    import torch.distributed.checkpoint as dcp
    with _opened(paths, step) as (places, step):
        state, names = {"model": {}, "optimizer": {"state": {}}}, sorted((n for n, (_, p) in places.items() if p[0].kind == PARAMETER), key=len, reverse=True)
        for name, (ck, place) in places.items():
            e, t = place[0], _read(ck, place)
            of = next((p for p in names if name.startswith(p + ".")), None) if e.kind == MOMENT else None
            if of is None:
                state["model"][name] = t
            else:
                state["optimizer"]["state"].setdefault(of, {})[name[len(of) + 1 :]] = t
    # torch 2.6 can save without other ranks only by the deprecated function.
    save = dcp.save if "no_dist" in inspect.signature(dcp.save).parameters else dcp.save_state_dict
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deprecated")
        save(state, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    return step
