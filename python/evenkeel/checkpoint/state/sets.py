"""The files of a job. Each generation has one file per rank."""

import errno
import glob
import os
import re

from .. import tensor_file
from ..file import layout
from ..file.errors import Corrupt, Schema


def names(path, generation, ranks):
    """The files of a generation, by rank."""
    if ranks == 1 and generation == 0:
        return [path]
    return [f"{path}.g{generation}.{r}of{ranks}" for r in range(ranks)]


def sets(path):
    """The existing generations of files, newest first: (generation, ranks, paths, missing paths)."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    found = {}
    for p in glob.glob(glob.escape(path) + ".g*"):
        m = re.fullmatch(r"\.g(\d+)\.(\d+)of(\d+)", p[len(path) :])
        if m:
            found.setdefault((int(m[1]), int(m[3])), set()).add(p)
    out = []
    for (generation, ranks), there in sorted(found.items(), reverse=True):
        paths = [f"{path}.g{generation}.{r}of{ranks}" for r in range(ranks)]
        out.append((generation, ranks, paths, [p for p in paths if p not in there]))
    if os.path.lexists(path):
        out.append((0, 1, [path], []))
    return out


def of_one_set(files):
    """Raises Schema if files, by rank, are not all files of one set."""
    for rank, ck in enumerate(files):
        if (ck.id, ck.rank, ck.ranks) != (files[0].id, rank, len(files)):
            raise Schema(f"{ck.path}, of rank {ck.rank} of {ck.ranks}, and {files[0].path} are not the files of one set: give those that one job has written")


def at(files, step):
    """What each file has at a step, see Reader.at(). Raises Corrupt if it is not one save of all ranks."""
    found = [ck.at(step) for ck in files]
    for ck, (state, _) in zip(files, found):
        if state.random.startswith(layout.DCP):
            raise Schema(f"{ck.path}: step {step} was saved by torch.distributed.checkpoint: load it with evenkeel.dcp.Reader")
        if state.nonce != found[0][0].nonce:
            raise Corrupt(f"{files[0].path} and {ck.path}: their checkpoints of step {step} are of different saves")
    return found


def common(paths, missing):
    """The steps that all files of a set have, newest first, and the damage that was found. No step: no checkpoint of all ranks was made."""
    steps, faults, started, everywhere, never, files = None, [], False, 0, False, []
    for p in paths:
        if p in missing:
            continue
        with tensor_file.open_(p, read_only=True) as ck:
            files.append(ck)
            here = {r.step for r in ck._found().values()}
            faults += [f"{p}: {f}" for f in ck.faults]
            everywhere = max(everywhere, ck._note.all_sequence)
            fault = ck._empty_fault() if not here else None
            if fault:
                faults.append(f"{p}: {fault}")
            started = started or bool(here) or bool(fault)
            never = never or not here and not fault
            steps = here if steps is None else steps & here
    if missing:
        if started:
            raise Corrupt(f"{missing[0]} is missing, but other files of its set have checkpoints; restore it")
        return [], []
    of_one_set(files)
    if not steps and (everywhere or not never):
        raise Corrupt(f"no step is on all {len(paths)} ranks: {'; '.join(faults) or 'the ranks hold different steps'}")
    return sorted(steps, reverse=True), faults
