"""python3 -m unittest discover -s python/tests, from the repository's root; EVENKEEL names the built command."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks.py")


class Ranks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_(self, *args, **environment):
        p = subprocess.run([sys.executable, SCRIPT, *map(str, args)], capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
        self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(p.stdout)

    @unittest.skipUnless(os.environ.get("EVENKEEL_SLOW"), "slow: set EVENKEEL_SLOW=1 to run it, as .ci/run does")
    def test_killed(self):
        got = self.run_("kill", 14, 2, 3)
        self.assertEqual((got["faults"], got["kills"]), ([], 14))
        self.assertGreater(got["restored"], 3)
        past = self.run_("kill", 6, 2, 4, RANKS_PAST="1")
        self.assertEqual((past["faults"], past["kills"]), ([], 6))

    def test_guides_scripts(self):
        for call in ("dcp.async_save(", "saved.save("):
            folder = os.path.join(self.folder, call)
            os.mkdir(folder)
            got = self.run_("guide", folder, call)
            self.assertTrue(got["same"], got)
            self.assertEqual((got["other samples"], got["steps"]), ([], 30))
            self.assertGreater(got["kills"], 2)

    def test_other_number_of_ranks(self):
        got = self.run_("reshard", self.folder, 4, 2, 4, 1, 2)
        for g in got:
            self.assertEqual(g["codes"], [0] * g["ranks"], g)
            self.assertTrue(g["same"], g)
        self.assertEqual(got[2]["files"], [f"run.ckpt.g3.{r}of4" for r in range(4)])
        if os.environ.get("EVENKEEL"):
            files = sorted(glob.glob(os.path.join(self.folder, "run.ckpt.g*")))
            subprocess.run([os.environ["EVENKEEL"], "checkpoint", "verify", *files], check=True, capture_output=True)
            out = os.path.join(self.folder, "all.safetensors")
            subprocess.run([os.environ["EVENKEEL"], "checkpoint", "export", *files, "--out", out], check=True, capture_output=True)

    def test_refuses(self):
        said = self.run_("refuse", self.folder)
        for what, part in {
            "steps": "the ranks save different steps: [0, 1]", "unchanged": "has no state_dict", "differ": "the parameters differ between ranks 0 and 1", "world": "pass reshard=True",
            "missing": "is missing, but other files of its set have checkpoints", "zeroed": "commit record: not of this file and slot",
        }.items():  # fmt: skip
            for rank in said[what]:
                self.assertIn(part, rank, what)
        self.assertEqual(said["good again"], [0, 0])


if __name__ == "__main__":
    unittest.main()
