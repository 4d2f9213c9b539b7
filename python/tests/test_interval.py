"""The automatic interval, with the cases of checkpoint/interval_test.go, and as a Job uses it."""

import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel.checkpoint import Job
from evenkeel.checkpoint.interval import Interval
from evenkeel.checkpoint.state import plan as plan_


def simulate(i, steps, step, stall, persist, after):
    """Steps of this length, in which a save of step s adds stall to step s + after, and lasts persist: (share, saves)."""
    total, last, until, saves = 0.0, -(1 << 20), -1.0, 0
    for s in range(steps):
        begun = s - last >= i.steps()
        if begun:
            last, saves = s, saves + 1
        d = step + (stall if s == last + after else 0)
        saving = begun or total < until
        if begun:
            until = total + d + persist
            i.saved(persist)
        total += d
        i.step(d, begun, saving)
    return total / (steps * step) - 1, saves


class Steps(unittest.TestCase):
    def test_interval(self):
        for step, stall, persist, after, want in (
            (0.5, 0, 0.2, 0, 1), (0.1, 0, 0.31, 0, 4), (0.5, 0.05, 0.2, 0, 3), (0.1, 0.1, 0.09, 1, 29), (0.001, 0.006, 0.007, 1, 172),
        ):  # fmt: skip
            i = Interval(0.035)
            self.assertEqual(i.steps(), 2)
            simulate(i, 200, step, stall, persist, after)
            self.assertEqual(i.steps(), want)
            share, saves = simulate(i, 2000, step, stall, persist, after)
            self.assertLessEqual(share, 0.037)
            self.assertGreaterEqual(saves, 2000 // want - 1)
        for bad in (0, 1, -1):
            with self.assertRaises(ValueError):
                Interval(bad)

    def test_adapts(self):
        i = Interval(0.035)
        for stall, want in ((0, 1), (0.035, 10), (0.007, 2)):
            simulate(i, 2000, 0.1, stall, 0.02, 0)
            self.assertEqual(i.steps(), want)

    def test_due(self):
        """A save that costs a fifth of a step in what save() takes, at a budget of 2%: about every tenth step."""
        model = torch.nn.Linear(4, 4)
        with tempfile.TemporaryDirectory() as folder, Job(os.path.join(folder, "x"), budget=0.02) as saved:
            saved.restore(model=model)
            plan, saves, intervals = plan_.Plan.blob, [], []

            def slow(p):
                time.sleep(0.004)
                return plan(p)

            plan_.Plan.blob = slow
            self.addCleanup(setattr, plan_.Plan, "blob", plan)
            for step in range(100):
                time.sleep(0.02)
                saved.ready()
                with torch.no_grad():
                    model.weight.add_(1)
                if saved.due():
                    saved.save(step)
                    saves.append(step)
                    intervals.append(saved.interval)
            self.assertEqual(intervals[0], 2)  # nothing is known yet
            self.assertEqual(saves[1] - saves[0], 2)
            self.assertGreaterEqual(max(intervals), 5)
            self.assertLess(len(saves), 60)
            self.assertEqual(saves[-1] - saves[-2], intervals[-2])


if __name__ == "__main__":
    unittest.main()
