"""Pauses that a rank announces (tuner/pauses.py): the division against trying sample by sample, a job of processes against one that is not told."""

import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch

import evenkeel
import test_tuner
from evenkeel.tuner import Usage, client, pauses, sample_order
from evenkeel.tuner.round_vector import Did


class TestDivision(unittest.TestCase):
    def test_delayed_is_the_best(self):
        rng = random.Random(1)
        for _ in range(1000):
            shares = [rng.choice((0, rng.randint(1, 40))) for _ in range(rng.randint(1, 6))] + [1]
            late = [rng.choice((0.0, rng.uniform(0, 50))) if s else 0.0 for s in shares]
            found, tried = pauses.delayed(shares, late), [int(s > 0) for s in shares]
            for _ in range(sum(shares) - sum(tried)):
                tried[min((r for r, s in enumerate(shares) if s), key=lambda r: (tried[r] + 1 + late[r]) / shares[r])] += 1

            def ends(of):
                return max((n + d) / s for n, d, s in zip(of, late, shares) if s)

            self.assertLessEqual(ends(shares) - ends(found), 1 + 1e-9)  # a pause is worth a round at most
            self.assertEqual(sum(found), sum(shares))
            self.assertEqual([n > 0 for n in found], [s > 0 for s in shares])
            self.assertAlmostEqual(ends(found), ends(tried))
        self.assertEqual(pauses.delayed([4, 8, 2], [2.0, 4.0, 1.0]), [4, 8, 2])  # all begin late alike

    def test_only_what_nobody_has_drawn(self):
        plans = sample_order.Plans(client.Plan(1, [10, 10], [5, 5]))
        plans.delay([Did(1.0, 10, 1, drawn=3, pause=0.6, pause_before=5), Did(1.0, 10, 1, drawn=4)], 4)
        self.assertEqual([plans.at(n).shares for n in (4, 5, 6)], [[10, 10], [7, 13], [10, 10]])
        self.assertEqual([plans.at(n).number for n in (4, 5, 6)], [1, 0, 1])  # the service refuses reports of sizes that it did not hand out
        plans.adopt(client.Plan(2, [5, 15], [5, 5]), 4, 4)
        self.assertEqual([plans.at(n).shares for n in (4, 5, 6)], [[10, 10], [1, 19], [5, 15]])
        plans.delay([Did(1.0, 10, 1, drawn=5, pause=0.2, pause_before=5), Did(1.0, 10, 1, drawn=4)], 4)
        self.assertEqual(plans.at(5).shares, [1, 19])
        plans.delay([Did(1.0, 10, 1, drawn=5), Did(0.0, 0, 0, drawn=4, pause=3.0, pause_before=6)], 4)  # it was not measured
        self.assertEqual(plans.at(6).shares, [5, 15])
        plans.delay([Did(1.0, 10, 1, input=1.0, drawn=5, pause=0.8, pause_before=7), Did(1.0, 10, 1, drawn=5, pause=0.4, pause_before=8)], 4)
        self.assertEqual([plans.at(n).shares for n in (6, 7, 8)], [[5, 15], [2, 18], [6, 14]])
        plans.delay([Did(1.0, 10, 1, drawn=5), Did(1.0, 10, 1, drawn=5)], 4)  # taken back
        self.assertEqual(plans.at(6).shares, [5, 15])

    def test_measures(self):
        p = pauses.Pauses()

        def gap(number, seconds):
            p.ended(10.0)
            p.began(number, 10.0 + seconds)

        gap(0, 0.1)
        gap(1, 3.0)  # a pause that was not announced
        p.expect("save", 1, 1, 0.0)
        p.expect("evaluate", 1, 2, 2.0)
        self.assertEqual([p.next(n) for n in (1, 2, 3, 4)], [(0.0, 3), (0.0, 3), (2.0, 4), (0.0, 0)])
        gap(3, 0.6)
        p.expect("save", 8, 0, 7.0)
        self.assertAlmostEqual(p.next(4)[0], 0.48)
        gap(9, 0.05)  # it did not come
        p.expect("save", 9, 2, 0.0)
        self.assertEqual(p.next(9), (0.0, 12))
        for wrong in ({"after": -1, "seconds": 0.0}, {"after": 0, "seconds": -1.0}, {"after": 0, "seconds": float("nan")}):
            with self.assertRaisesRegex(Usage, "numbers from 0"):
                p.expect("save", 9, **wrong)


class TestJob(test_tuner.Ranks):
    def test_saves(self):
        """Rank 0 saves after every fourth round, for half of a round's time; one save does not come. Loaders of two ranks draw ahead."""

        def child(rank, port):
            clock = test_tuner.Clock()
            job = test_tuner.Job(rank, 4, port, net=torch.nn.Linear(8, 3).double(), local=True, clock=clock)
            loader = job.loader(global_batch=40, workers=rank % 2)
            ends, sizes = [], []
            while len(ends) < 40:
                for x, y, _ in job.tuner.steps(loader):
                    number = len(ends)
                    if rank == 0 and number % 4 == 0:
                        job.tuner.expect("save", after=4)
                    sizes += [0] * (number == len(sizes))
                    sizes[number] += len(x)
                    clock.now += 0.01 * len(x)
                    test_tuner.cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        ends.append(number)
                        job.optimizer.step()
                        job.optimizer.zero_grad()
                        if rank == 0 and number % 4 == 0 and number != 20:
                            clock.now += 0.05
            all_sizes = [None] * 4
            torch.distributed.all_gather_object(all_sizes, sizes)
            for number, own in enumerate(zip(*all_sizes)):
                assert sum(own) == 40, own
                late = number % 4 == 1 and 5 < number != 25  # the first is measured; after the one that did not come, none is expected
                assert own[0] in (6, 7) and max(own) <= 12 if late else own == (10, 10, 10, 10), (number, own)

        self.run_(4, child)

    def test_equal_steps(self):
        """The same under equal micro-steps. Where nobody says that more samples fit, no rank takes more."""

        def child(rank, port):
            torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
            for micro_batch in (6, 0):
                clock = test_tuner.Clock()
                net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 3))
                tuner = evenkeel.EqualSteps(net, clock=clock)
                loader = tuner.loader(torch.utils.data.TensorDataset(torch.randn(1600, 8)), global_batch=40, micro_steps=2, micro_batch=micro_batch)
                sizes = []
                net.module.register_forward_pre_hook(lambda _, given: setattr(clock, "now", clock.now + 0.01 * len(given[0])))
                for (x,) in tuner.steps(loader):
                    number = tuner.order.round
                    if rank == 0 and number % 4 == 0:
                        tuner.expect("save", after=4)
                    sizes += [0] * (number == len(sizes))
                    sizes[number] += len(x)
                    (net(x).mean() * tuner.scale).backward()
                    clock.now += 0.02 * len(x)
                    if tuner.synchronised and rank == 0 and number % 4 == 0:
                        clock.now += 0.15
                tuner.close()
                all_sizes = [None] * 4
                torch.distributed.all_gather_object(all_sizes, sizes)
                for number, own in enumerate(zip(*all_sizes)):
                    late = number % 4 == 1 and number > 5 and micro_batch
                    assert own[0] in (6, 7) and sum(own) == 40 and max(own) <= 12 if late else own == (10, 10, 10, 10), (number, own)

        self.run_(4, child)


if __name__ == "__main__":
    unittest.main()
