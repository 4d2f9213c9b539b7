"""Checkpoints in other formats: safetensors, and torch.distributed.checkpoint (DCP)."""

import contextlib
import inspect
import json
import os
import struct
import warnings

import torch

from .file import layout
from .file.errors import Corrupt, Schema, Usage
from .file.layout import MOMENT, PARAMETER
from .state.parameters import opened, wanted

_NAMES = {1: "F16", 2: "BF16", 3: "F32", 4: "F64", 5: "I8", 6: "I16", 7: "I32", 8: "I64", 9: "U8", 10: "U16", 11: "U32", 12: "U64", 13: "BOOL"}
_KINDS = {2: "moment", 3: "buffer"}  # as the Go package names them
_MAX_HEADER = 100 << 20


@contextlib.contextmanager
def _opened(paths, step):
    """The arrays of a step, by default the newest, as name -> (file, place); and the step."""
    with opened(paths) as (files, steps):
        step = steps[0] if step is None else step
        yield {place[0].name: (ck, place) for ck in files for place in ck.at(step)[1]}, step


def _read(ck, place):
    t = torch.empty(place[0].shape, dtype=layout.TORCH[place[0].dtype])
    ck.read(place, t)
    return t


@contextlib.contextmanager
def replacing(out, mode, **options):
    """Opens a file for writing. It replaces an existing file when everything is written and durable."""
    temporary = f"{out}.writing"
    try:
        with open(temporary, mode, **options) as f:
            yield f
            f.flush()
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
    if os.uname().machine not in ("x86_64", "aarch64"):
        raise Usage("safetensors needs a little-endian machine")
    with _opened(paths, step) as (places, step):
        entries = sorted((p[0] for _, p in places.values() if moments or p[0].kind != MOMENT), key=_by_size)
        kinds = {e.name: _KINDS[e.kind] for e in entries if e.kind != PARAMETER}
        metadata = {"evenkeel.step": str(step), "evenkeel.cursor": "0", "evenkeel.random": "", "evenkeel.scalars": "{}", "evenkeel.kinds": json.dumps(kinds)}
        _write(out, entries, metadata, lambda e: _read(*places[e.name]))
        return step


def write_safetensors(tensors, out):
    """Writes named tensors as a safetensors file. An existing file is replaced at the end."""
    entries = sorted(layout.describe({n: (t, PARAMETER) for n, t in tensors.items()})[0], key=_by_size)
    _write(out, entries, {}, lambda e: layout.stored(tensors[e.name]))


def _by_size(e):
    return -layout.SIZES[e.dtype], e.name


def _write(out, entries, metadata, read):
    header, at = {}, 0
    for e in entries:
        header[e.name] = {"dtype": _NAMES[e.dtype], "shape": list(e.shape), "data_offsets": [at, at + e.length]}
        at += e.length
    header["__metadata__"] = {"format": "pt", **metadata}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(out, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for e in entries:
            f.write(layout.memory(read(e)))


def _header(f, size):
    (n,) = struct.unpack("<Q", f.read(8).ljust(8, b"\xff"))
    if not 2 <= n <= _MAX_HEADER or n > size - 8:
        raise Corrupt(f"a header of {n} bytes in a file of {size}; is it a safetensors file?")
    try:
        header = json.loads(f.read(n))
        header.pop("__metadata__", None)
        at = 0
        for name, e in sorted(header.items(), key=lambda i: i[1]["data_offsets"]):
            begin, end = e["data_offsets"]
            if begin != at or end < begin or e["dtype"] not in _NAMES.values() or any(type(d) is not int or d < 0 for d in e["shape"]):
                raise Corrupt(f"tensor {name!r}: {e} is invalid")
            at = end
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Corrupt(f"header: {e!r}") from None
    if at != size - 8 - n:
        raise Corrupt(f"tensors of {at} bytes, the file has {size - 8 - n} for them; is it truncated?")
    return header, 8 + n


def from_safetensors(path, module, rename=None, strict=True):
    """Loads a module's parameters and buffers from a safetensors file. rename and strict are as in checkpoint.load_parameters. If a tensor does not fit,
    nothing is changed."""
    with open(path, "rb") as f:
        try:
            header, start = _header(f, os.fstat(f.fileno()).st_size)
        except Corrupt as e:
            raise Corrupt(f"{path}: {e}") from None
        loads = []
        for there, t, e in wanted(path, module, rename, strict, header):
            was = header[there]
            if (_NAMES[e.dtype], list(e.shape), e.length) != (was["dtype"], was["shape"], was["data_offsets"][1] - was["data_offsets"][0]):
                raise Schema(f"{path}: tensor {there!r} is {was['dtype']} of shape {was['shape']}, in the module {_NAMES[e.dtype]} of {list(e.shape)}")
            loads.append((t, e, start + was["data_offsets"][0]))
        for t, e, at in loads:
            here = t if layout.plain(t) else torch.empty(e.shape, dtype=layout.TORCH[e.dtype])
            f.seek(at)
            if f.readinto(layout.memory(here)) != e.length:
                raise Corrupt(f"{path}: the file ends")
            if here is not t:
                with torch.no_grad():
                    t.copy_(torch.view_as_complex(here) if t.is_complex() else here)


def _alone(dcp, what, state, **storage):
    """Saves or loads without the other ranks. In torch 2.6 only the deprecated functions can."""
    do = getattr(dcp, what)
    if "no_dist" not in inspect.signature(do).parameters:
        do = getattr(dcp, f"{what}_state_dict")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*deprecated")
        do(state, **storage, no_dist=True)


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
    _alone(dcp, "save", state, storage_writer=dcp.FileSystemWriter(folder))
    return step


def from_dcp(folder, module):
    """Loads a module's parameters and buffers, which torch.distributed.checkpoint wrote below "model"."""
    import torch.distributed.checkpoint as dcp
    state = {"model": module.state_dict()}
    _alone(dcp, "load", state, storage_reader=dcp.FileSystemReader(folder))
    module.load_state_dict(state["model"])
