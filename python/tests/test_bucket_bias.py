"""What training on batches of unequal numbers of samples converges to, in every mode: the same as on shuffled batches of one size."""

import os
import random
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

try:
    import numpy

    from evenkeel.bucket import BatchLoader, Loader
except ImportError as e:
    raise unittest.SkipTest(f"needs PyTorch: {e}")

EVENKEEL = os.environ.get("EVENKEEL")
SAMPLES, RANKS, EPOCHS, SEEDS, SIZE = 2000, 2, 10, 6, 8


def train(epochs, adam):
    """The losses of short and of long samples after training a linear model that both draw to other weights. epochs: of each, its steps: for each
    batch its positions and the factor of its mean loss, divided by the number of ranks. The rate falls to 0."""
    w, m, v = numpy.zeros((3, SIZE))
    total, t = sum(map(len, epochs)), 0
    for steps in epochs:
        for batches in steps:
            g = sum(f * X[s].T @ (X[s] @ w - Y[s]) / len(s) for s, f in batches)
            rate = (.05 if adam else .04) * (1 - t / total)
            t += 1
            m, v = .9 * m + .1 * g, .999 * v + .001 * g * g
            w = w - rate * (m / (1 - .9 ** t) / (numpy.sqrt(v / (1 - .999 ** t)) + 1e-8) if adam else g)
    loss = (X @ w - Y) ** 2
    return loss[SHORT].mean(), loss[~SHORT].mean()


r, g = random.Random(1), numpy.random.RandomState(2)
LENGTHS = [max(4, min(1024, int(r.lognormvariate(5, 1)))) for _ in range(SAMPLES)]
SHORT = numpy.argsort(numpy.argsort(LENGTHS, kind="stable")) < SAMPLES // 2
X = g.randn(SAMPLES, SIZE)
Y = numpy.where(SHORT, X @ g.randn(SIZE), X @ g.randn(SIZE)) + .5 * g.randn(SAMPLES)


@unittest.skipUnless(EVENKEEL, "needs the command: set EVENKEEL to its path")
class TestBias(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        with open(self.file("lengths.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in LENGTHS)
        with open(self.file("table.csv"), "w") as f:
            f.write("length,batch,seconds,peak_bytes\n")
            f.writelines(f"{l},{b},{.02 + 1e-4 * l * b},{l * b}\n" for l in (4, 64, 256, 1024) for b in (1, 2, 4, 8, 32, 128) if l * b <= 8192)

    def file(self, name):
        return os.path.join(self.folder, name)

    def plan(self, *more):
        subprocess.run([EVENKEEL, "bucket", "plan", "--lengths", self.file("lengths.txt"), "--table", self.file("table.csv"), "--ranks", str(RANKS), *more,
                        "--out", self.file("plan.json")], check=True, capture_output=True)
        return self.file("plan.json")

    def check(self, runs, apart=.02):
        """runs: epochs of each seed. Averages of all seeds are compared with those of as many shuffled steps of one size."""
        for adam in (False, True):
            plain = numpy.array([train([[[(s, 1)] for s in numpy.array_split(numpy.random.RandomState([seed, e]).permutation(SAMPLES), len(steps))]
                                        for e, steps in enumerate(run)], adam) for seed, run in enumerate(runs)])
            got = numpy.array([train(run, adam) for run in runs])
            numpy.testing.assert_allclose(got.mean(0), plain.mean(0), rtol=apart)

    def loaded(self, plan, seed):
        loaders, run = [Loader(range(SAMPLES), LENGTHS, plan, rank=rank, ranks=RANKS, seed=seed, cache=self.folder) for rank in range(RANKS)], []
        for epoch in range(EPOCHS):
            steps = None
            for loader in loaders:
                loader.set_epoch(epoch)
                steps = steps or [[] for _ in range(loader.steps)]
                for batch in loader._micro():
                    steps[batch.step].append((batch.samples, batch.weight / RANKS))
            run.append(steps)
        return run

    def test_global_batches(self):
        """As on the undivided batches, to the last digits."""
        for more in ({"micro_batches": 2}, {"counts": "free", "packed": True, "memory": 2048, "speeds": [1, .5]}):
            loaders = [BatchLoader(range(SAMPLES), LENGTHS, 40, rank=rank, ranks=RANKS, **more) for rank in range(RANKS)]
            run, plain = [], []
            for epoch in range(2):
                run.append([[] for _ in range(loaders[0].steps)])
                plain.append([[(loaders[0].step_samples(step, epoch), 1)] for step in range(loaders[0].steps)])
                for loader in loaders:
                    loader.set_epoch(epoch)
                    for batch in loader._micro():
                        run[-1][batch.step].append((batch.samples, batch.weight / RANKS))
            for adam in (False, True):
                numpy.testing.assert_allclose(train(run, adam), train(plain, adam), rtol=1e-9)

    def test_offline(self):
        plan = self.plan()
        self.check([self.loaded(plan, seed) for seed in range(1, SEEDS + 1)])


if __name__ == "__main__":
    unittest.main()
