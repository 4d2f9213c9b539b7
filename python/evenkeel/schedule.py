"""A batch sampler in the manner of torch.utils.data.Sampler."""
import json


class ScheduleSampler:
    """Yields one rank's batches of an epoch, each a list of sample positions.

    `weights` and `steps` run beside the batches: multiply a batch's mean loss by its
    weight before the backward pass, so that DDP's mean over ranks is the mean over
    samples; call the optimiser when the step changes (a faster rank may have several
    batches in a step). Every rank has every step: where one has no samples, the batch
    is empty and only the others' gradients count.

    The file is read at each iteration, line by line. Only offsets of the rank's
    lines are held.
    """

    def __init__(self, path, rank, step=0):
        self.path, self.rank = path, rank
        self._lines = []  # (step, offset)
        self.weights, self.steps = [], []
        with open(path, "rb") as f:
            head = f.readline()
            try:
                self.header = json.loads(head)
            except ValueError:
                self.header = None
            if not isinstance(self.header, dict) or self.header.get("evenkeel_schedule") != 1:
                raise ValueError(f"{path}:1: no schedule of version 1")
            if not 0 <= rank < self.header["ranks"]:
                raise ValueError(f"{path}: rank {rank} of {self.header['ranks']}")
            first = max(step, self.header["first_step"])
            end, last, at = False, None, len(head)
            for number, line in enumerate(f, 2):
                try:
                    row = json.loads(line)
                except ValueError as e:
                    raise ValueError(f"{path}:{number}: {e}") from None
                if row.get("end"):
                    end = True
                elif row["step"] >= first and row["rank"] == rank:
                    for missed in range(first if last is None else last + 1, row["step"]):
                        self._add(missed, None, 0.0)
                    last = row["step"]
                    self._add(last, at, row["weight"])
                at += len(line)
            if not end:
                raise ValueError(f"{path}: cut off, it has no end")
            for missed in range(first if last is None else last + 1, self.header["steps"]):
                self._add(missed, None, 0.0)

    def _add(self, step, offset, weight):
        self._lines.append(offset)
        self.steps.append(step)
        self.weights.append(weight)

    def __len__(self):
        return len(self._lines)

    def __iter__(self):
        with open(self.path, "rb") as f:
            for offset in self._lines:
                if offset is None:
                    yield []
                    continue
                f.seek(offset)
                yield json.loads(f.readline())["samples"]

    def state(self, step):
        """What `evenkeel bucket schedule --resume` continues before this step."""
        h = self.header
        return {"version": 1, "data": h["data"], "ranks": h["ranks"], "seed": h["seed"],
                "epoch": h["epoch"], "step": step}
