"""python3 -m unittest discover -s python/tests, from the repository's root; EVENKEEL names the built command. A rank is lost, and torchrun starts the job's process
group again."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch

import elastic_job
import fake_service

# Else the processes of the second start meet addresses of the first one's in the store that they share (pytorch/pytorch#135712), with or without Evenkeel.
RESTARTS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@unittest.skipUnless(os.environ.get("EVENKEEL_SLOW"), "slow: set EVENKEEL_SLOW=1 to run it, as .ci/run does")
class TestElastic(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *before, fatal=7, **environment):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "3", "--max_restarts", "1", "--monitor_interval", "0.1", "--redirects", "1", "--tee", "1"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")}
        p = subprocess.run([*before, *torchrun, os.path.join(HERE, "elastic_job.py"), self.folder, str(fatal)], env={**inherited, **RESTARTS, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True, timeout=120)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        end = torch.load(os.path.join(self.folder, "end.pt"))
        self.assertEqual((end["start"], end["rounds"]), (1, 20))
        self.assertEqual(sorted(end["used"]), list(range(elastic_job.LENGTH)))  # what was accumulated in the lost round came again
        self.assertTrue(bool(end["weight"].isfinite().all()))
        return end, p

    def test_generations(self):
        """The second start registers anew, under the same names; its reports begin with round 0, and none of the first start comes after it."""
        service = fake_service.Service(lambda reports, _: ([14, 12, 4], [4, 4, 4]))
        self.addCleanup(service.stop)
        end, _ = self.start(EVENKEEL_URL=service.url)
        (_, one, _), (_, two, _) = service.registered
        self.assertNotEqual(one["id"], two["id"])
        self.assertEqual([r["name"] for r in one["ranks"]], [r["name"] for r in two["ranks"]])
        self.assertEqual(end["first"], [14, 12, 4])
        rounds = [r["round"] for r in service.reports]
        self.assertEqual(rounds, [*range(rounds.index(0, 1)), *range(13)])
        self.assertLessEqual(rounds.index(0, 1), 7)

    @unittest.skipUnless(os.environ.get("EVENKEEL"), "EVENKEEL names the built command")
    def test_what_was_learnt_stays(self):
        log = os.path.join(self.folder, "run.jsonl")
        end, p = self.start(os.environ["EVENKEEL"], "serve", "--log", log, "--")
        self.assertLess(end["first"][2], 8, end)  # equal shares are 10: its pace is known from the first start
        with open(log) as f:
            starts = [x for x in map(json.loads, f) if "start" in x]
        self.assertEqual(len(starts), 2)
        self.assertIn("job: 3 ranks, global batch 30", p.stdout)
        again = subprocess.run([os.environ["EVENKEEL"], "run", "--replay", log], capture_output=True, text=True, timeout=120)
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)


if __name__ == "__main__":
    unittest.main()
