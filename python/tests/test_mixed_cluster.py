"""examples/mixed-cluster, small: Evenkeel's job through all that happens in a day of 90 seconds."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(HERE, "..", "..", "examples", "mixed-cluster")
sys.path[:0] = [EXAMPLE]

if os.geteuid() or not shutil.which("ip"):
    raise unittest.SkipTest("network namespaces need root and the program ip")

import run


def note(at, step, tokens, begun, busy=0.0):
    return json.dumps({"at": at, "step": step, "tokens": tokens, "loss": float(tokens), "busy": busy, "run": begun}) + "\n"


class TestDay(unittest.TestCase):
    def test_evenkeel(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "day")
            said = subprocess.run([sys.executable, "-W", "ignore", os.path.join(EXAMPLE, "run.py"), "--out", out, "--only", "evenkeel", "--seconds", "90"], capture_output=True, text=True, timeout=400)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            with open(os.path.join(out, "table.json")) as f:
                row = json.load(f)["evenkeel"]
            self.assertGreater(row["tokens_per_second"], 2000, row)
            self.assertTrue(0 < row["idle"] < 1, row)
            with open(os.path.join(out, "figure.svg")) as f:
                self.assertIn("host lost", f.read())
            steps = {}  # of each start of the ranks
            for host in range(3):
                with open(os.path.join(out, "evenkeel", f"log.{host}")) as f:
                    for line in f:
                        n = json.loads(line)
                        steps.setdefault(n["run"], []).append(n["step"])
            starts = [own for _, own in sorted(steps.items())]
            self.assertGreater(len(starts), 3)  # ranks were started again
            before = max(max(own) for own in starts[:3])
            for own in starts[3:]:  # from the newest step that was durable on all hosts: saves that find no free slot are left out
                self.assertGreater(own[0], before - 20)
                before = max(before, max(own))


class TestNotes(unittest.TestCase):
    def test_what_a_restart_takes_back_does_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "log.0"), "w") as f:
                f.writelines([note(99, 0, 1, 90, 1.0), note(101, 1, 10, 90, 1.5), note(102, 2, 100, 90, 2.5), note(106, 2, 1000, 105, 0.25), note(131, 3, 10000, 105, 9.0)])
            with open(os.path.join(folder, "log.1"), "w") as f:
                f.writelines([note(102.5, 2, 100, 90), note(107, 3, 7, 105), '{"at": 1'])
            kept, busy = run.notes(folder, 100, 30)
            self.assertEqual([(at, tokens) for at, tokens, _ in kept], [(1, 10), (6, 1000), (7, 7)])
            self.assertAlmostEqual(busy, 0.5 + 1.0 + 0.25)


if __name__ == "__main__":
    unittest.main()
