"""python3 -m unittest discover -s python/tests, from the repository's root. A job whose service is killed and started again on its journal."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel
import processes

EVENKEEL = os.environ.get("EVENKEEL")
KILLS = int(os.environ.get("EVENKEEL_TEST_KILLS", "4"))


@unittest.skipUnless(EVENKEEL, "EVENKEEL is not set: the program to run")
@unittest.skipUnless(os.environ.get("EVENKEEL_SLOW"), "slow: set EVENKEEL_SLOW=1 to run it, as .ci/run does")
class TestKilled(unittest.TestCase):
    def serve(self):
        return subprocess.Popen([EVENKEEL, "serve", "--state", self.folder, "--listen", f"127.0.0.1:{self.port}"], stderr=subprocess.DEVNULL)

    def state(self, rounds=0):
        """Of the job, once it has so many."""
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/jobs/job", timeout=5) as answer:
                    state = json.load(answer)
                    if state["rounds"] >= rounds:
                        return state
            except OSError:
                pass  # it is not up, or the job not there
            time.sleep(0.05)
        self.fail("the service does not come up, or the job does not go on")

    def test_goes_on(self):
        """The job stays in its generation; every sample comes once an epoch; the sizes found before a kill hold after it."""
        self.port = processes.free_port()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        environment = mock.patch.dict(os.environ, {"EVENKEEL_URL": f"http://127.0.0.1:{self.port}", "EVENKEEL_JOB": "job"})
        environment.start()
        self.addCleanup(environment.stop)
        over = os.path.join(self.folder, "over")

        def child(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            torch.manual_seed(1)
            x = torch.randn(640, 8)
            data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long(), torch.arange(640))
            ddp = DDP(torch.nn.Linear(8, 2))
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            tuner = evenkeel.Tuner(ddp)
            loader = torch.utils.data.DataLoader(data, batch_sampler=tuner.batches(len(data), global_batch=32))
            while True:
                mine = []
                for inputs, labels, which in tuner.steps(loader):
                    time.sleep(0.0005 * (1 + 2 * rank) * len(inputs))
                    mine += which.tolist() if tuner.counts else []
                    cross_entropy(ddp(inputs), labels).backward()
                    if tuner.synchronised:
                        optimizer.step()
                        optimizer.zero_grad()
                everyone = [None, None]
                dist.all_gather_object(everyone, (mine, os.path.exists(over)))
                assert sorted(everyone[0][0] + everyone[1][0]) == list(range(640)), "not every sample once"
                if all(o for _, o in everyone):
                    break
            tuner.close()
            assert rank or tuner._exchange._client.counts["refused"] == 0, tuner._exchange._client.counts

        service = self.serve()
        states = []

        def kill():
            nonlocal service
            rng = random.Random(3)
            self.state(20)
            for _ in range(KILLS):
                time.sleep(rng.uniform(0.1, 0.8))
                states.append(self.state())
                service.kill()
                service.wait()
                time.sleep(rng.uniform(0, 0.4))
                service = self.serve()
                states.append(self.state())
            states.append(self.state(states[-1]["rounds"] + 10))
            open(over, "w").close()

        try:
            processes.run(self, 2, child, beside=kill)
        finally:
            service.kill()
            service.wait()
        self.assertEqual({s["generation"] for s in states}, {1})
        for before, after in zip(states, states[1:]):
            self.assertGreaterEqual(after["rounds"], before["rounds"])
            self.assertGreaterEqual(after["plan"], before["plan"])
        for s in states:  # 24 and 8 take the same time
            self.assertGreater(s["ranks"][0]["share"], 19, s)
        self.assertEqual(states[-1]["reports"].get("malformed", 0), 0)


if __name__ == "__main__":
    unittest.main()
