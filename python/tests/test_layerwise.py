"""python3 -m unittest discover -s python/tests, from the repository's root."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import checkpoint, layerwise

STEPS = 40


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 90), torch.nn.BatchNorm1d(90), torch.nn.ReLU(), torch.nn.Linear(90, 30), torch.nn.Linear(30, 1))


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def backward(m, step):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=g)
    torch.nn.functional.mse_loss(m(x), x.sum(1, keepdim=True)).backward()


def digest(m):
    return " ".join(f"{t.double().sum().item():.17g}" for t in m.state_dict().values())


def run(path):
    """The job that is killed: reports what it restored, what is durable, how it ended."""
    m = model()
    layers = layerwise.LayerWise(m, adam)
    with checkpoint.open_or_create(path, layers.tensors()) as ck:
        state = ck.restore()
        if state:
            print("restored", state.step, digest(m), flush=True)
        for step in range(state.step + 1 if state else 0, STEPS):
            with layers.saving(ck, step):
                backward(m, step)
            ck.wait()
            print("durable", step, flush=True)
    print("done", STEPS - 1, digest(m), flush=True)


class LayerWise(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.ckpt")

    def want(self):
        m = model()
        optimizer = adam(m.parameters())
        out = []
        for step in range(STEPS):
            optimizer.zero_grad()
            backward(m, step)
            optimizer.step()
            out.append(digest(m))
        return out

    def test_same_as_whole_steps(self):
        want = self.want()
        m = model()
        layers = layerwise.LayerWise(m, adam)
        with checkpoint.create(self.path, layers.tensors()) as ck:
            order = []
            write = ck.write
            ck.write = lambda *names: (order.extend(names), write(*names))
            for step in range(STEPS):
                with layers.saving(ck, step, scalars={"rate": 0.01}):
                    backward(m, step)
                self.assertEqual(digest(m), want[step])
            # Layers from the last, the rest at the end.
            self.assertLess(order.index("4.weight"), order.index("0.weight"))
            self.assertEqual(sorted(order[: len(ck.entries)]), sorted(e.name for e in ck.entries))
            with self.assertRaisesRegex(RuntimeError, "broken"):
                with layers.saving(ck, STEPS):
                    backward(m, STEPS)
                    raise RuntimeError("broken")
        m = model()
        layers = layerwise.LayerWise(m, adam)
        with checkpoint.open_(self.path, layers.tensors()) as ck:
            self.assertEqual(ck.restore(), (STEPS - 1, 0, b"", {"rate": 0.01}))
        self.assertEqual(digest(m), want[-1])

    def test_incomplete(self):
        t = {"a": (torch.zeros(5), checkpoint.PARAMETER), "b": (torch.zeros(3), checkpoint.BUFFER)}
        with checkpoint.create(self.path, t) as ck:
            ck.begin(1)
            ck.write("a")
            with self.assertRaises(checkpoint.Usage):
                ck.write("a")
            with self.assertRaises(checkpoint.Schema):
                ck.write("c")
            with self.assertRaisesRegex(checkpoint.Usage, "'b'"):
                ck.commit()
            with self.assertRaises(checkpoint.Usage):
                ck.commit()
            ck.save(2)
            ck.begin(3)  # close gives it up
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 2)

    def test_killed(self):
        want, durable, r = self.want(), -1, random.Random(3)
        for _ in range(60):
            p = subprocess.Popen([sys.executable, __file__, "run", self.path], stdout=subprocess.PIPE, text=True)
            left = r.randrange(1, 12)
            lines = []
            for line in p.stdout:
                lines.append(line.split(None, 2))
                left -= 1
                if left == 0:
                    time.sleep(r.random() * 0.003)
                    p.send_signal(signal.SIGKILL)
            p.wait()
            p.stdout.close()
            self.assertIn(p.returncode, (0, -signal.SIGKILL))
            for what, step, *found in lines:
                step = int(step)
                if what == "durable":
                    durable = max(durable, step)
                else:
                    self.assertEqual(found[0].strip(), want[step])
                    self.assertGreaterEqual(step, durable)
            if p.returncode == 0:
                return
        self.fail("it never ended")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2])
    else:
        unittest.main()
