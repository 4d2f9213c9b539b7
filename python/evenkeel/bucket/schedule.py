"""Reads schedules of `evenkeel bucket schedule`."""

import json
import re
import zlib
from collections import namedtuple

Batch = namedtuple("Batch", "step weight token_weight samples")

# The beginning of a line as evenkeel writes it. It saves parsing the lines of other ranks.
_USUAL = re.compile(rb'\{"step":(\d+),"rank":(\d+),')


class ScheduleError(ValueError):
    """What was given does not fit the job, or a file is damaged."""


class Schedule:
    """The batches of one rank in one epoch. The constructor compares the whole file with its checksum; lines are read one at a time."""

    def __init__(self, path, rank, ranks):
        self.path, self.rank = path, rank
        with open(path, "rb") as f:
            head = f.readline()
            try:
                self.header = h = json.loads(head)
                known = h["format"] == "evenkeel-schedule" and h["version"] == 1 and h["ranks"] == ranks
            except (ValueError, KeyError, TypeError):
                known = False
            if not known:
                raise ScheduleError(f"{path}: not a schedule of version 1 for {ranks} ranks")
            self._start = self._end = f.tell()
            crc, last = zlib.crc32(head), b""
            for line in f:
                self._end, crc, last = self._end + len(last), zlib.crc32(last, crc), line
        if last != b'{"end":true,"crc32":"%08x"}\n' % crc:
            raise ScheduleError(f"{path}: the file is truncated, or was changed or damaged; remove it")
        self.first, self.end = h["from"], h["steps"]

    def _batches(self, step):
        """This rank's batches from a step on."""
        with open(self.path, "rb") as f:
            f.seek(at := self._start)
            while at < self._end:
                line = f.readline()
                m = _USUAL.match(line)
                if int(m[1]) >= step and int(m[2]) == self.rank:
                    value = json.loads(line)
                    yield Batch(value["step"], value["weight"], value["token_weight"], value["samples"])
                at += len(line)

    def steps(self, step):
        """Yields for every step from this one on the list of this rank's batches. It is empty if the rank has no work in the step."""
        batches = self._batches(step)
        ahead = next(batches, None)
        for now in range(step, self.end):
            own = []
            while ahead is not None and ahead.step == now:
                own.append(ahead)
                ahead = next(batches, None)
            yield own

    def state(self, step):
        """The resume state before a step, as `evenkeel bucket schedule --resume` reads it in JSON."""
        h = self.header
        state = {"version": 1, **{k: h[k] for k in ("data", "plan", "ranks", "seed", "epoch")}, "step": step}
        if parts := [dict(p) for p in h.get("parts", ())]:
            parts[-1]["steps"] = step - sum(p["steps"] for p in parts[:-1])
            state["parts"] = parts
        return state
