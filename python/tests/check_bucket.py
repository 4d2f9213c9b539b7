"""Run by cmd/evenkeel's tests: python3 check_bucket.py SCHEDULE SAMPLES"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch
from torch.utils.data import DataLoader, TensorDataset

from evenkeel.bucket import Sampler, ScheduleError


def fails(f, *words):
    try:
        f()
    except ScheduleError as e:
        assert all(w in str(e) for w in words), e
        return
    raise AssertionError("no error")


path, samples = sys.argv[1], int(sys.argv[2])
ranks = Sampler(path, 0).header["ranks"]
data = TensorDataset(torch.arange(samples))
seen = []
weights = []
for rank in range(ranks):
    s = Sampler(path, rank, ranks)
    assert isinstance(s, torch.utils.data.Sampler)
    loaded = [b[0].tolist() for b in DataLoader(data, batch_sampler=s)]
    assert len(loaded) == len(s)
    by_step = [b for step in s.steps() for b in step]
    assert [b.samples for b in by_step] == loaded
    for b in by_step:
        weights.append(b.weight / len(b.samples))
        seen += b.samples
    assert s.step == s.header["steps"]
assert sorted(seen) == list(range(samples)), "not every sample exactly once"
assert max(weights) - min(weights) < 1e-9, "not every sample of one weight"

s = Sampler(path, 0)
steps = s.steps()
next(steps), next(steps)
state = json.loads(json.dumps(s.state_dict()))
assert state["step"] == 1, state  # the second is begun, not done
rest = Sampler(path, 0, step=state["step"])
assert list(rest) == [b.samples for _, b in Sampler(path, 0).places() if b.step >= 1]
for begin in range(s.header["steps"] + 1):  # from every step, found without reading those before
    r = Sampler(path, 0, step=begin)
    assert list(r.places()) == [p for p in Sampler(path, 0).places() if p[1].step >= begin]
    assert len(r) == len(list(r))
fails(lambda: Sampler(path, ranks), "rank")
fails(lambda: Sampler(path, 0, ranks + 1), "ranks")
with tempfile.TemporaryDirectory() as d:
    text = open(path, "rb").read()
    bad = os.path.join(d, "bad.jsonl")
    for spoilt, word in ((text[:-40], "bad"), (text.replace(b'"samples":[', b'"samples":[0,', 2), "checksum")):
        with open(bad, "wb") as f:
            f.write(spoilt)
        fails(lambda: Sampler(bad, 0), word)
    # Another system's file: other order of fields, no checksum, a line that is wrong.
    lines = ['{"ranks":1,"steps":2,"samples":4,"format":"evenkeel-schedule","version":1}', '{"samples":[1,2],"rank":0,"step":0}',
             '{"samples":[3],"rank":0,"step":1}', '{"end":true}']
    for change, want in ((None, [[1, 2], [3]]), ((2, '{"rank":0}'), "not a batch"), ((1, lines[2].replace(":1}", ":2}")), "after 2")):
        with open(bad, "w") as f:
            f.write("\n".join(change[1] if change and n == change[0] else line for n, line in enumerate(lines)) + "\n")
        if change:
            fails(lambda: list(Sampler(bad, 0)), want)
        else:
            assert list(Sampler(bad, 0)) == want
            assert [b.samples for step in Sampler(bad, 0, step=1).steps() for b in step] == [[3]]
print("ok")
