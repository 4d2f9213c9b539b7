"""Faults in a job that the service tunes (experiments/live/faults.py), a few of them; and what measures links. EVENKEEL names the built command."""

import importlib.util
import multiprocessing
import os
import sys
import tempfile
import unittest

import processes

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch
import torch.distributed as dist

from evenkeel.tuner import link

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "experiments", "live", "faults.py")
spec = importlib.util.spec_from_file_location("faults", SCRIPT)
faults = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)


@unittest.skipUnless(sys.platform == "linux", "sockets are paced on Linux alone")
class TestLink(unittest.TestCase):
    def test_slow_rank_has_the_longest_time(self):
        for ranks, slow in ((2, 0), (3, 0), (4, 2), (5, 4)):
            took = multiprocessing.get_context("fork").Array("d", ranks)
            with tempfile.TemporaryDirectory() as folder:

                def child(rank, _):
                    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
                    dist.barrier()
                    if rank == slow:
                        faults.pace_sockets(1e6)
                    took[rank] = link.seconds(dist.group.WORLD, rank, ranks, link.message([torch.nn.Parameter(torch.zeros(250_000))]))
                    dist.barrier()

                processes.run(self, ranks, child)
            self.assertGreater(min(took) if ranks == 2 else took[slow], 0.05)  # 250 kB at 1 MB a second
            if ranks > 2:
                self.assertEqual(max(range(ranks), key=lambda r: took[r]), slow, list(took))


@unittest.skipUnless(os.environ.get("EVENKEEL_SLOW") and os.environ.get("EVENKEEL"), "slow: set EVENKEEL_SLOW=1 and EVENKEEL to run it, as .ci/run does")
class TestFaults(unittest.TestCase):
    def test_cause_is_named(self):
        with faults.service() as url:
            for kind in ("input", "compute", "network"):
                got = faults.judge(faults.case_of(kind, 2, before=12), url)
                self.assertTrue(got["right"], (kind, got["named"], got["rank"], got["size"]))
                self.assertGreater(got["of_equal"], 0.8, kind)  # other work may share the machine
            tiny = faults.starved()
            self.assertGreater(tiny["tuned"], tiny["equal"])


if __name__ == "__main__":
    unittest.main()
