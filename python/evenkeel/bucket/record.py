"""Writes an online epoch as a schedule, so that it can be replayed."""

import itertools
import json
import os
import zlib

from .schedule import ScheduleError


class Record:
    """The schedule of an epoch. Rank 0 writes it during the epoch, as NAME.part until the end."""

    def __init__(self, name, loader, begin):
        self.path = str(name).replace("{epoch}", str(loader.epoch))
        self.loader, self.part = loader, self.path + ".part"
        lines = []
        if begin:
            try:
                with open(self.part, "rb") as f:
                    lines = [l for l in f if l.endswith(b"\n") and json.loads(l)["step"] < begin]
            except (OSError, ValueError, KeyError):
                pass
            if {json.loads(l)["step"] for l in lines} != set(range(begin)):
                raise ScheduleError(f"{self.part}: steps before step {begin} are missing; restore the file that the job wrote, or resume without record=")
        self.file = open(self.part, "wb")
        self.file.writelines(lines)
        self.file.flush()

    def add(self, step, parts, factors):
        for r, (p, f) in enumerate(zip(parts, factors)):
            if p.positions:
                line = {"step": step, "rank": r, "weight": f[0], "token_weight": f[1], "samples": p.positions}
                self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.file.flush()

    def end(self, grouping):
        me = self.loader
        self.file.close()
        steps, shortest = me.step, 0
        with open(self.part, "rb") as f:
            for line in f:
                value = json.loads(line)
                steps, shortest = value["step"] + 1, value["samples"][-1]
        header = {"format": "evenkeel-schedule", "version": 1, "samples": len(me.dataset), "ranks": me.ranks, "steps": steps, "data": "online",
                  "plan": me._plan["checksum"], "seed": me.seed, "epoch": me.epoch, "from": 0, "skipped": 0, "limit": me._costs.longest, "idle": shortest}
        whole = self.path + ".whole"
        with open(whole, "wb") as out, open(self.part, "rb") as lines:
            crc = 0
            for line in itertools.chain([json.dumps(header, separators=(",", ":")).encode() + b"\n"], lines):
                out.write(line)
                crc = zlib.crc32(line, crc)
            out.write(b'{"end":true,"crc32":"%08x"}\n' % crc)
            out.flush()
            os.fsync(out.fileno())
        os.replace(whole, self.path)
        os.remove(self.part)
