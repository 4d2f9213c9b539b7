"""Ray Train with uneven shares: the gradient is that of one process with all samples of the round, and when a worker is killed, Ray starts the loop again from
its checkpoint, which goes on amid the epoch."""

import collections
import json
import os
import signal
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
sys.path[:0] = [HERE, ROOT]
os.environ.update(RAY_TRAIN_V2_ENABLED="1", RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.2", RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S="300")

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

try:
    import ray.train.torch
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e
import evenkeel
import fake_service
import pages
from test_equal_steps import BATCH, DATA, LENGTH, mlp

RANKS = 2
SIZES = (([18, 6],), ([24, 0],), ([1, 23],))


def train(config):
    """What a worker does."""
    torch.set_num_threads(1)
    rank, checkpoint = ray.train.get_context().get_world_rank(), ray.train.get_checkpoint()
    plain, model = mlp(), ray.train.torch.prepare_model(mlp())
    tuner = evenkeel.EqualSteps(model)
    loader = tuner.loader(DATA, global_batch=BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.module.load_state_dict(state["model"])
        tuner.load_state_dict(state["evenkeel"])
    for _ in range(state["epoch"] if checkpoint else 0, 2):
        for x, y, i in tuner.steps(loader):
            optimizer.zero_grad()
            (cross_entropy(model(x), y) * tuner.scale).backward()
            everyone = [None] * RANKS
            dist.all_gather_object(everyone, i.tolist()[: tuner.size])
            samples = sum(everyone, [])
            plain.load_state_dict(model.module.state_dict())
            plain.zero_grad()
            cross_entropy(plain(torch.stack([DATA[s][0] for s in samples])), torch.tensor([DATA[s][1] for s in samples])).backward()
            one, own = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (plain, model))
            number = tuner.order.round
            if rank == 0:
                with open(config["log"], "a") as f:
                    print(json.dumps([checkpoint is not None, number, samples, tuner.order.counts(number), float((own - one).norm() / one.norm())]), file=f)
            optimizer.step()
            if tuner.synchronised and number == 2 and checkpoint is None:
                with tempfile.TemporaryDirectory() as folder:
                    torch.save({"epoch": 0, "model": model.module.state_dict(), "evenkeel": tuner.state_dict()}, os.path.join(folder, "state.pt"))
                    ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)
            if number == 4 and rank == 1 and checkpoint is None:
                ray.train.get_all_reported_checkpoints()  # waits until it is
                os.kill(os.getpid(), signal.SIGKILL)
    tuner.close()


class TestRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=RANKS, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False, logging_level="error", runtime_env={"env_vars": {"PYTHONPATH": f"{HERE}:{ROOT}"}})
        cls.addClassCleanup(ray.shutdown)

    def test_example(self):
        """The page's diff on Ray's own example. The service gives three quarters to the first worker."""
        service = fake_service.Service(lambda reports, _: [[6, 2]])
        self.addCleanup(service.stop)
        _, script, changed = pages.example("trainers-ray.md", os.path.join(os.path.dirname(ray.train.__file__), "examples", "pytorch", "torch_linear_example.py"))
        self.assertLessEqual(changed, 4)
        names = {"__name__": "torch_linear_example", "URL": {"env_vars": {"EVENKEEL_URL": service.url}}}
        exec(script.replace("storage_path=storage_path)", "storage_path=storage_path, worker_runtime_env=URL)"), names)
        with tempfile.TemporaryDirectory() as folder:
            self.assertLess(names["train_linear"](num_workers=RANKS, epochs=1, storage_path=folder)["loss"], 20)
        self.assertGreater(len(service.reports), 1000 // 8 - 10)
        self.assertEqual([r["samples"] for r in service.reports[-10]["ranks"]], [6, 2])

    def test_union_and_resume(self):
        service = fake_service.Service(lambda reports, _: SIZES[len(reports) // 2 % len(SIZES)])
        self.addCleanup(service.stop)
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            run = ray.train.RunConfig(storage_path=folder, failure_config=ray.train.FailureConfig(max_failures=1), worker_runtime_env={"env_vars": {"EVENKEEL_URL": service.url}})
            ray.train.torch.TorchTrainer(train, train_loop_config={"log": log}, scaling_config=ray.train.ScalingConfig(num_workers=RANKS), run_config=run).fit()
            with open(log) as f:
                rounds = [json.loads(line) for line in f]
        self.assertEqual([r[:2] for r in rounds if r[0]], [[True, n] for n in range(3, 12)])
        self.assertEqual([r[1] for r in rounds if not r[0]], list(range(len(rounds) - 9)))
        self.assertLess(max(r[4] for r in rounds), 1e-12)
        counts = collections.Counter(s for r in rounds if r[0] or r[1] < 3 for s in r[2])
        self.assertEqual((set(counts.values()), len(counts)), ({2}, LENGTH))
        self.assertGreater(len({tuple(r[3]) for r in rounds}), 2)
        self.assertEqual(len(service.registered), 2)


if __name__ == "__main__":
    unittest.main()
