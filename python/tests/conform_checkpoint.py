"""The Python half of the suite that judges both writers and both readers, run by go test ./checkpoint.

    conform_checkpoint.py record FOLDER SLOTS [past]    every write and flush of a run, past the page cache or through it, as JSON lines
    conform_checkpoint.py read FILE PATCHES.json    what restore() says of the file under each list of patches
"""

import base64
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import checkpoint
from evenkeel.checkpoint.file import direct_io, layout, transfer

M = (1 << 64) - 1
ARRAYS = (
    ("embedding", checkpoint.PARAMETER, torch.float32, (30, 100)), ("dense.weight", checkpoint.PARAMETER, torch.float32, (7, 100)),
    ("dense.weight.m", checkpoint.MOMENT, torch.float64, (700,)), ("seen", checkpoint.BUFFER, torch.int64, (1,)),
    ("empty", checkpoint.BUFFER, torch.uint8, (0,)), ("mask", checkpoint.BUFFER, torch.uint8, (4097,)),
)  # fmt: skip


def contents(step):
    """As the Go tests' model(step)."""
    out = {}
    for k, (name, kind, dtype, shape) in enumerate(ARRAYS):
        x, data = (step * 0x9E3779B97F4A7C15 + k) & M, bytearray()
        for _ in range(torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()):
            x = (x * 6364136223846793005 + 1442695040888963407) & M
            data.append(x >> 56)
        t = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
        out[name] = (t, kind)
    return out


def record(folder, slots, past):
    events, real = [], (os.pwrite, os.fdatasync, os.fsync)

    def pwrite(fd, data, at):
        n = real[0](fd, data, at)
        if len(data) != 4 << 20 and any(data):  # not the zeros of a creation
            events.append({"kind": "write", "at": at, "data": base64.b64encode(bytes(data[:n])).decode()})
        elif len(data) == 8:
            events.append({"kind": "write", "at": at, "data": base64.b64encode(bytes(8)).decode()})
        return n

    def flush(sync):
        def run(fd):
            sync(fd)
            events.append({"kind": "flush"})

        return run

    came = direct_io.Direct._came

    def arrived(direct, i, got):  # what is only on its way counts for nothing
        s = direct.slots[i]
        if got > 0:
            events.append({"kind": "write", "at": s.at, "data": base64.b64encode(s.memory[:got]).decode()})
        return came(direct, i, got)

    direct_io.Direct._came = arrived
    transfer.PAST_FROM = 0 if past else 1 << 60
    os.pwrite, os.fdatasync, os.fsync = pwrite, flush(real[1]), flush(real[2])
    path = os.path.join(folder, "run.ckpt")
    with checkpoint.create(path, contents(0), slots=slots) as ck:
        if (ck._access.direct is not None) != past:
            return print(json.dumps({"kind": "unsupported"}))
        events.append({"kind": "created", "at": os.path.getsize(path)})
        for step in range(1, 8):
            ck._named = contents(step)
            if step == 4:
                ck.begin(400)
                ck.write("embedding")
                ck.abort()
            ck.save(step, cursor=17 * step, random=bytes([step]) * (step % 5), scalars={"rate": 1 / step, "beta1_power": float("inf")})
            ck.wait()
            events.append({"kind": "ack", "step": step})
    for e in events:
        print(json.dumps(e))


def verdict(path, models):
    named = contents(0)
    try:
        with checkpoint.open_(path, named, read_only=True) as ck:
            state = ck.restore()
            if state is None:
                return {"kind": "empty"}
            for name, (t, _) in models(state.step).items():
                a, b = (layout.memory(x) for x in (named[name][0], t))
                if bytes(a) != bytes(b):
                    return {"kind": "wrong bytes", "step": state.step}
            return {"kind": "restored", "step": state.step, "said": bool(ck.faults)}
    except checkpoint.Corrupt:
        return {"kind": "damaged"}
    except checkpoint.Format:
        return {"kind": "format"}
    except checkpoint.Schema:
        return {"kind": "schema"}


def read(path, patches):
    kept = {}

    def models(step):
        if step not in kept:
            kept[step] = contents(step)
        return kept[step]

    with open(patches) as f:
        trials = json.load(f)
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    for trial in trials:
        before = [(at, os.pread(fd, len(base64.b64decode(data)), at)) for at, data in trial["patches"]]
        for at, data in trial["patches"]:
            os.pwrite(fd, base64.b64decode(data), at)
        tail = b""
        if trial.get("cut"):
            tail = os.pread(fd, size - trial["cut"], trial["cut"])
            os.truncate(fd, trial["cut"])
        print(json.dumps(verdict(path, models)))
        if tail:
            os.pwrite(fd, tail, trial["cut"])
        for at, data in reversed(before):
            os.pwrite(fd, data, at)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "record":
        record(sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ["past"])
    else:
        read(sys.argv[2], sys.argv[3])
