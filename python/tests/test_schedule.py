"""Run by the Go test of cmd/evenkeel: SCHEDULE is a schedule file, SAMPLES its data's size, RANKS its ranks."""
import os
import unittest

import torch
from torch.utils.data import DataLoader

from evenkeel import ScheduleSampler

PATH, SAMPLES, RANKS = os.environ["SCHEDULE"], int(os.environ["SAMPLES"]), int(os.environ["RANKS"])


class Schedule(unittest.TestCase):
    def test_every_sample_once_through_a_data_loader(self):
        data = torch.arange(SAMPLES)
        seen, weighted = [], {}
        for rank in range(RANKS):
            sampler = ScheduleSampler(PATH, rank)
            loaded = list(DataLoader(data, batch_sampler=[b for b in sampler if b]))
            seen += [int(i) for batch in loaded for i in batch]
            self.assertEqual(len(set(sampler.steps)), sampler.header["steps"])
            for step, weight, batch in zip(sampler.steps, sampler.weights, sampler):
                weighted.setdefault(step, []).append((weight, len(batch)))
        self.assertEqual(sorted(seen), list(range(SAMPLES)))
        for parts in weighted.values():
            self.assertAlmostEqual(sum(w for w, _ in parts), RANKS)
            total = sum(n for _, n in parts)
            for weight, n in parts:
                self.assertAlmostEqual(weight, n * RANKS / total)

    def test_resume(self):
        whole, half = ScheduleSampler(PATH, 0), ScheduleSampler(PATH, 0, step=3)
        self.assertEqual([b for s, b in zip(whole.steps, whole) if s >= 3], list(half))
        self.assertEqual(whole.state(3)["step"], 3)

    def test_damaged(self):
        bad = PATH + ".bad"
        with open(PATH, "rb") as f, open(bad, "wb") as g:
            g.write(f.read()[:-50])
        with self.assertRaises(ValueError):
            ScheduleSampler(bad, 0)
        with self.assertRaises(ValueError):
            ScheduleSampler(PATH, RANKS)


if __name__ == "__main__":
    unittest.main()
