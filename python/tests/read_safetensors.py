"""Loads a safetensors file into PyTorch with the standard library alone: read_safetensors.py FILE.

Prints of each tensor, by name: its type, shape and the SHA-256 of its bytes as torch holds them.
"""

import hashlib
import json
import struct
import sys

import torch

TYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}

with open(sys.argv[1], "rb") as f:
    data = bytearray(f.read())
(length,) = struct.unpack_from("<Q", data)
header = json.loads(bytes(data[8 : 8 + length]))
for name, entry in sorted(header.items()):
    if name == "__metadata__":
        continue
    begin, end = entry["data_offsets"]
    t = torch.frombuffer(data[8 + length + begin : 8 + length + end], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    bits = t.view(torch.int16) if t.dtype in (torch.bfloat16, torch.float16) else t
    print(name, entry["dtype"], list(t.shape), hashlib.sha256(bits.numpy().tobytes()).hexdigest())
