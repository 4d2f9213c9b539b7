"""Saves and loads with torch on request, a line at a time: save PATH, load PATH. Answers with the seconds."""

import os
import sys
import time

import torch

size, layers = int(sys.argv[1]), int(sys.argv[2])
model = {f"layer.{i:02d}.weight": torch.rand(size // 4 // layers) for i in range(layers)}
print(torch.__version__, flush=True)
for line in sys.stdin:
    what, path = line.split(None, 1)
    path = path.strip()
    begun = time.perf_counter()
    if what == "save":
        with open(path, "wb") as f:
            torch.save(model, f)
            f.flush()
            os.fsync(f.fileno())
    else:
        torch.load(path)
    print(time.perf_counter() - begun, flush=True)
