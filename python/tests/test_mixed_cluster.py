"""examples/mixed-cluster, small: Evenkeel's job through all that happens in a day of 90 seconds; and how days are drawn and scored."""

import json
import os
import random
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
import scenario


def note(at, step, tokens, begun, busy=0.0, samples=()):
    return json.dumps({"at": at, "step": step, "tokens": tokens, "loss": float(tokens), "busy": busy, "run": begun, "samples": list(samples)}) + "\n"


class TestDay(unittest.TestCase):
    def test_evenkeel(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "day")
            said = subprocess.run([sys.executable, "-W", "ignore", os.path.join(EXAMPLE, "run.py"), "--out", out, "--entries", "evenkeel", "--seconds", "90"], capture_output=True, text=True, timeout=400)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            with open(os.path.join(out, "table.json")) as f:
                (row,) = json.load(f)
            self.assertGreater(row["tokens_per_second"], 1000, row)
            self.assertTrue(0 < row["idle"] < 1 and 0 < row["of_bound"] < 1, row)
            self.assertLessEqual(row["sample_times"][1] - row["sample_times"][0], 1, row)  # none lost or repeated
            self.assertGreaterEqual(row["starts"], 5, row)  # three ranks, and again without the lost host
            self.assertLess(row["steps_taken_back"], 20, row)
            with open(os.path.join(out, "figure.svg")) as f:
                self.assertIn("host lost", f.read())


class TestScore(unittest.TestCase):
    def test_what_a_restart_takes_back_does_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "log.0"), "w") as f:
                f.writelines([note(99, 0, 1, 90, 1.0), note(101, 1, 10, 90, 1.5, [0, 2]), note(102, 2, 100, 90, 2.5, [1]), note(106, 2, 1000, 105, 0.25, [1]), note(131, 3, 10000, 105, 9.0)])
            with open(os.path.join(folder, "log.1"), "w") as f:
                f.writelines([note(102.5, 2, 100, 90, 0.0, [3]), note(107, 3, 7, 105, 0.0, [3]), '{"at": 1'])
            day = scenario.Scenario(30, [1, 2], [{"what": "killed", "at": 10}])
            row, timed = run.score(day, folder, 100, 5.0, [11] * 4)
        run.judge([{**row, "tokens_per_second": 2 * row["tokens_per_second"], "start": 1.0}, row], day, [11] * 4)
        self.assertEqual([(at, tokens) for at, tokens, _ in timed], [(1, 10), (6, 1000), (7, 7)])
        self.assertAlmostEqual(row["idle"], 1 - (0.5 + 1.0 + 0.25) / 60)
        self.assertEqual([row[k] for k in ("steps", "steps_taken_back", "starts", "longest_pause", "sample_times")], [4, 1, 2, 3.5, [1, 1]])
        self.assertEqual(row["of_first"], 0.5)
        self.assertAlmostEqual(row["of_bound"], 1017 / 29 / (1.5 * 10 / scenario.seconds_of(1, 11)))


class TestScenario(unittest.TestCase):
    def test_bound(self):
        """Devices of 10 and 5 samples of 11 tokens a second: lost 10 of 100 seconds, 4 times slower for 20, a loader of a second for 10, and restarts."""
        each = scenario.seconds_of(1, 11)

        def bound(events, start=0.0):
            return scenario.Scenario(100, [1, 2], events).bound([11], start) * each / 10  # in devices of pace 1

        self.assertAlmostEqual(bound([]), 1.5)
        self.assertAlmostEqual(bound([{"what": "host lost", "host": 1, "at": 20, "until": 30}]), 1.45)
        self.assertAlmostEqual(bound([{"what": "host lost", "host": 1, "at": 20, "until": 30}], 4), 1.45 - 0.04 - 0.06)
        self.assertAlmostEqual(bound([{"what": "co-tenant", "host": 0, "at": 50, "until": 70, "by": 4}]), 1.35)
        self.assertAlmostEqual(bound([{"what": "slow loader", "host": 0, "at": 50, "until": 60, "by": 1}]), 1.4 + 0.1 * each)
        self.assertAlmostEqual(bound([{"what": "killed", "host": 0, "at": 98}], 4), 1.47)
        self.assertAlmostEqual(bound([{"what": "power lost", "at": 10, "until": 20}]), 1.35)

    def test_draws_are_read_and_scaled(self):
        for seed in range(300):
            day = scenario.draw(seed)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump(vars(day), f)
                f.flush()
                again = scenario.read(f.name).scaled(random.Random(seed).uniform(1, 1000))
            self.assertEqual([e["what"] for e in again.events], [e["what"] for e in day.events])
            self.assertAlmostEqual(again.bound([11], 0), day.bound([11], 0))
            self.assertTrue(day.events and 2 <= len(day.paces) <= 4, seed)

    def test_bad(self):
        for events, said in (([{"what": "rain", "at": 1}], "what is one of co-tenant"), ([{"what": "killed", "at": 101}], "within the 100 seconds"), ([{"what": "killed", "host": 2, "at": 1}], "among the 2"), ([{"what": "host lost", "at": 1, "until": 2}], "'power lost' is for that")):
            with self.assertRaisesRegex(ValueError, said):
                scenario.Scenario(100, [1, 2], events)
        with self.assertRaisesRegex(ValueError, "the quickest is 1"):
            scenario.Scenario(100, [0.5, 2], [])


if __name__ == "__main__":
    unittest.main()
