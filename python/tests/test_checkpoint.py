"""python3 -m unittest discover -s python/tests, from the repository's root; EVENKEEL names the built command."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import checkpoint, xxh3


def train(model, optimizer, step):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=g)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()


def job(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


class Hash(unittest.TestCase):
    def test_twin(self):
        if xxh3._native is None:
            self.skipTest("no libxxhash to compare with")
        r = random.Random(1)
        for n in list(range(0, 520)) + [1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 100_000, 5_000_001]:
            b = r.randbytes(n)
            self.assertEqual(xxh3.hash64(b), xxh3.hash64_numpy(b), n)

    def test_known(self):  # from the reference implementation's own checks
        self.assertEqual(xxh3.hash64_numpy(b""), 0x2D06800538D394C2)


class File(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "run.ckpt")

    def test_resume_is_the_same_run(self):
        model, optimizer = job(1)
        for step in range(8):
            train(model, optimizer, step)
        want = [p.clone() for p in model.parameters()]

        model, optimizer = job(1)
        with checkpoint.open_or_create(self.path, checkpoint.tensors(model, optimizer)) as ck:
            self.assertIsNone(ck.restore())
            for step in range(5):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step, cursor=step * 16, random=b"abc", scalars={"rate": 0.01})
        model, optimizer = job(2)
        with checkpoint.open_or_create(self.path, checkpoint.tensors(model, optimizer)) as ck:
            with self.assertRaises(checkpoint.Usage):
                ck.save(9)
            state = ck.restore()
            self.assertEqual(state, (4, 64, b"abc", {"rate": 0.01}))
            for step in range(5, 8):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step)
            ck.wait()
        for a, b in zip(want, model.parameters()):
            self.assertTrue(torch.equal(a, b))

    def test_damage_falls_back(self):
        t = {"w": (torch.zeros(5000), checkpoint.PARAMETER), "half": (torch.zeros(3, dtype=torch.bfloat16), checkpoint.BUFFER)}
        with checkpoint.create(self.path, t) as ck:
            for step in range(1, 5):
                ck.ready()
                t["w"][0].fill_(step)
                ck.save(step)
                ck.wait()
            newest = max(range(3), key=lambda i: ck._slots[i][0])
            at = ck._first + newest * ck._size + 77
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(b"\xff")
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 3)
            self.assertTrue((t["w"][0] == 3).all())
            self.assertIn("'w'", ck.faults[0])
            with self.assertRaises(checkpoint.Locked):
                checkpoint.open_(self.path, t)
            ck.save(4)
        with open(self.path, "r+b") as f:
            for slot in range(3):
                f.seek((2 + slot) * 4096 + 20)
                f.write(b"\xff\xff")
        with checkpoint.open_(self.path, t) as ck:
            with self.assertRaises(checkpoint.Corrupt):
                ck.restore()
        other = {"v": t["w"], "half": t["half"]}
        with self.assertRaisesRegex(checkpoint.Schema, "'v'"):
            checkpoint.open_(self.path, other)

    @unittest.skipUnless(os.environ.get("EVENKEEL"), "EVENKEEL does not name the command")
    def test_go_reads_and_writes(self):
        model, optimizer = job(3)
        with checkpoint.create(self.path, checkpoint.tensors(model, optimizer)) as ck:
            for step in range(4):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step, cursor=9, random=b"\0\1", scalars={"inf": float("inf")})
        run = lambda *a: subprocess.run([os.environ["EVENKEEL"], "checkpoint", *a], check=True, capture_output=True, text=True, cwd=self.folder).stdout
        slots = json.loads(run("verify", "run.ckpt", "--json"))["files"][0]["slots"]
        self.assertEqual(sorted(s["step"] for s in slots if s["verified"]), [1, 2, 3])
        run("export", "run.ckpt", "--out", "m.safetensors")
        run("import", "--from", "m.safetensors", "back.ckpt")
        other, optimizer = job(4)
        with checkpoint.open_(os.path.join(self.folder, "back.ckpt"), checkpoint.tensors(other, optimizer)) as ck:
            self.assertEqual(ck.restore(), (3, 9, b"\0\1", {"inf": float("inf")}))
        for a, b in zip(model.state_dict().values(), other.state_dict().values()):
            self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
