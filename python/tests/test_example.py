"""python3 -m unittest discover -s python/tests, from the repository's root. The example of a PyTorch job, started without a launcher."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)

import processes


class TestExample(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkpoint = os.path.join(folder.name, "digits.pt")

    def job(self, ranks, *options):
        """What rank 0 prints."""
        port = processes.free_port()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")}
        environment.update(PYTHONPATH=os.path.join(ROOT, "python"), OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
        script = [sys.executable, os.path.join(ROOT, "examples", "pytorch", "train.py"), "--checkpoint", self.checkpoint, *options]
        jobs = [subprocess.Popen(script, env={**environment, "RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(ranks)]
        out = [j.communicate(timeout=120) for j in jobs]
        self.assertEqual([j.returncode for j in jobs], [0] * ranks, out)
        return out[0][0].splitlines()

    def test_interrupted_and_resumed(self):
        """1,500 samples an epoch are 12 rounds, one of them smaller; the interrupted epoch ends with what was left of it, by other ranks."""
        got = self.job(2, "--epochs", "2", "--stop-after", "17", "--micro-batch", "40")
        self.assertEqual([g.split(":")[0] for g in got], ["epoch 1, 12 rounds", "epoch 1, 17 rounds"])
        got = self.job(3, "--epochs", "4", "--deadline", "auto")
        self.assertEqual(got[0], "goes on in epoch 1, after 17 rounds")
        self.assertRegex(got[1], "^epoch 2, ")
        self.assertGreater(int(got[-1].split(": ")[1].split("%")[0]), 60)


if __name__ == "__main__":
    unittest.main()
