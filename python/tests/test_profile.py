"""evenkeel.profile: a model is measured on this machine's CPU, and the program runs and exports by the file."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from evenkeel import profile  # noqa: E402

EVENKEEL = os.environ.get("EVENKEEL")
MODEL = """
import torch

def make():
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    model.eval()
    def samples(n):
        x, y = torch.randn(n, 64), torch.randint(10, (n,))
        def loss():
            assert model.training
            return torch.nn.functional.cross_entropy(model(x), y)
        return loss
    return model, samples

def ends(error):
    def made():
        model, samples = make()
        def least(n):
            if n > 4:
                raise error
            return samples(n)
        return model, least
    return made

memory, interrupt, fault = ends(torch.OutOfMemoryError("CUDA out of memory.")), ends(KeyboardInterrupt()), ends(RuntimeError("a fault"))

def nothing():
    return make()[0], lambda n: (_ for _ in ()).throw(RuntimeError("not enough memory"))

def stepped():
    model, samples = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.step = lambda: print("stepped")
    return model, samples, optimizer

def no_loss():
    return make()[0], lambda n: lambda: {"loss": 1}

def frozen():
    return make()[0].requires_grad_(False), len

def alone():
    return make()[0]
"""


class Profiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        sys.modules["small"] = types.ModuleType("small")
        self.addCleanup(sys.modules.pop, "small")
        exec(MODEL, vars(sys.modules["small"]))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        with open("small.py", "w") as f:
            f.write(MODEL)

    def run_in(self, *command):
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), OMP_NUM_THREADS="1")
        p = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(p.returncode, 0, p.stderr + p.stdout)
        return p.stdout

    def measure(self, *arguments, status=0):
        """What the command says on standard output, or, with status 2, on standard error."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["profile", "--out", "small.csv", "--each", "0.01", *arguments]), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                got = profile.main()
            except SystemExit as e:
                got = e.code
        self.assertEqual(got, status, out.getvalue() + err.getvalue())
        return (err if status == 2 else out).getvalue()

    def rows(self):
        with open("small.csv") as f:
            return [line.split(",") for line in f.read().splitlines()]

    @unittest.skipUnless(EVENKEEL, "EVENKEEL names no program")
    def test_the_program_runs_and_exports_by_it(self):
        said = self.run_in(sys.executable, "-W", "ignore", "-m", "evenkeel.profile", "small:make", "--batches", "64,256,1024", "--out", "small.csv", "--each", "0.1")
        self.assertRegex(said, r"(?s)^small on cpu\n.* 64 .* 256 .*1024 ")
        cluster = "global_batch: 512\n" + said[said.index("  workload:"):].replace("\n  ", "\n").strip().replace("count: 1", "count: 4")
        with open("cluster.yaml", "w") as f:
            f.write(cluster + "\n")
        report, = json.loads(self.run_in(EVENKEEL, "profiles", "check", "small.csv", "--json"))["profiles"]
        self.assertEqual([report[k] for k in ("device", "workload", "points", "first", "last", "memory_known")], ["cpu", "small", 3, 64, 1024, False])
        sizes = json.loads(self.run_in(EVENKEEL, "export", "--cluster", "cluster.yaml", "--profiles", "small.csv"))
        self.assertEqual([n["share"] for n in sizes["nodes"]], [128] * 4)
        self.run_in(EVENKEEL, "run", "--cluster", "cluster.yaml", "--profiles", "small.csv", "--rounds", "3")

    def test_sizes_double_until_memory_runs_out(self):
        said = json.loads(self.measure("small:memory", "--device", "a-card", "--workload", "mine", "--json"))
        self.assertEqual((said["ended"], said["memory_bytes"]), ("out of memory", None))
        rows = self.rows()
        self.assertEqual(rows[0], ["device", "workload", "micro_batch", "seconds", "peak_bytes"])
        self.assertEqual([r[:3] + r[4:] for r in rows[1:]], [["a-card", "mine", str(n), ""] for n in (1, 2, 4)])
        self.assertEqual([(p["micro_batch"], p["seconds"]) for p in said["points"]], [(int(r[2]), float(r[3])) for r in rows[1:]])

    def test_what_was_measured_is_kept(self):
        self.assertIn("8 interrupted", self.measure("small:interrupt", status=130))
        self.assertEqual([r[2] for r in self.rows()[1:]], ["1", "2", "4"])

    def test_passes_of_a_size(self):
        """As many as --each asks for, within the least and the most, however long they take."""
        import torch

        rng, model = random.Random(1), torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(200):
            now, passes, each = [0.0], [], rng.choice((0.0, 2.0, 1e9, 10 ** rng.uniform(-3, 3)))

            def loss():
                passes.append(10 ** rng.uniform(-4, 1))
                now[0] += passes[-1]
                return model(torch.ones(1)).sum()

            with mock.patch.object(profile.time, "perf_counter", lambda: now[0]):
                profile.measure(model, lambda n: loss, optimizer, 1, each)
            counted = passes[profile.WARM:]
            self.assertTrue(profile.LEAST <= len(counted) <= profile.MOST)
            self.assertTrue(sum(counted) >= each * (1 - 1e-9) or len(counted) == profile.MOST)
            self.assertTrue(sum(counted[:-1]) < each or len(counted) == profile.LEAST)

    def test_most_and_the_own_optimizer(self):
        self.assertEqual(self.measure("small:stepped", "--most", "3").count("stepped"), 2)
        self.assertEqual([r[2] for r in self.rows()[1:]], ["1", "2"])

    def test_bad_input(self):
        for arguments, text in (
            (["small:nobody"], "small:nobody: module 'small' has no attribute 'nobody'; give MODULE:FUNCTION"),
            (["nowhere:make"], "nowhere:make: No module named 'nowhere'"),
            (["small"], "small must return a model, a function"), (["small:alone"], "small:alone must return a model, a function"),
            (["small:frozen"], "no parameters to train"), (["small:no_loss"], "the loss of 1 samples is of type dict"),
            (["small:make", "--device", "a/b"], "--device 'a/b': a name is"), (["small:make", "--out", "small.txt"], "ends in .csv"),
            (["small:make", "--out", "no/small.csv"], "in a folder that you may write to"), (["small:make", "--most", "0"], "want whole numbers of at least 1"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.measure(*arguments, status=2))
        self.assertIn("1 out of memory", self.measure("small:nothing", status=1))
        with self.assertRaisesRegex(RuntimeError, "a fault"):
            self.measure("small:fault")
        self.assertEqual(os.listdir(), ["small.py"])


if __name__ == "__main__":
    unittest.main()
