"""Which samples a step trains on."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import Steps


class Order(unittest.TestCase):
    def test_every_sample_once_an_epoch_on_any_ranks(self):
        for length, batch, ranks in ((10, 4, 1), (10, 4, 3), (7, 7, 2), (5, 13, 4), (64, 16, 4)):
            steps = 3 * length
            whole = Steps(length, batch, steps, seed=3, rank=0, ranks=1)
            parts = [Steps(length, batch, steps, seed=3, rank=r, ranks=ranks) for r in range(ranks)]
            row = []
            for step, batches in enumerate(zip(*parts)):
                self.assertEqual(sum(batches, []), whole.batch(step))
                self.assertLessEqual(max(map(len, batches)) - min(map(len, batches)), 1)
                row += sum(batches, [])
            self.assertEqual(len(row), steps * batch)
            epochs = [row[i : i + length] for i in range(0, len(row) - length + 1, length)]
            for epoch in epochs:
                self.assertEqual(sorted(epoch), list(range(length)))
            self.assertGreater(len(set(map(tuple, epochs))), 1, "all epochs have one order")

    def test_goes_on_where_it_was_and_needs_no_count(self):
        def drawn(first, workers):
            order = Steps(50, 8, 20, first, seed=1, rank=1, ranks=2)
            loader = torch.utils.data.DataLoader(range(50), batch_sampler=order, num_workers=workers, generator=torch.Generator())
            self.assertEqual(len(loader), 20 - first)
            return [b.tolist() for b in loader]

        before = torch.get_rng_state()
        all_ = drawn(0, 2)
        self.assertEqual(drawn(7, 0), all_[7:])
        self.assertEqual(drawn(20, 0), [])
        self.assertTrue(torch.equal(before, torch.get_rng_state()))
        self.assertNotEqual([Steps(50, 8, 20, seed=2, rank=1, ranks=2).batch(0)], all_[:1])

    def test_refuses(self):
        for bad in (dict(length=0), dict(global_batch=1), dict(first=-1), dict(rank=2)):
            with self.assertRaises(ValueError):
                Steps(**{"length": 10, "global_batch": 4, "steps": 5, "rank": 0, "ranks": 2, **bad})


if __name__ == "__main__":
    unittest.main()
