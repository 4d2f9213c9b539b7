"""evenkeel.plan: which rank does what, and runs of random plans beside training without one."""

import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from evenkeel.plan import Layout, PlanError, exchange, model, profile  # noqa: E402
from evenkeel.plan.layout import Place, Strategy  # noqa: E402
from evenkeel.plan.worker import Worker, order  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import processes  # noqa: E402
from plan_random import plan  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ENV = dict(os.environ, PYTHONPATH=os.path.dirname(HERE), OMP_NUM_THREADS="1")
EVENKEEL = os.environ.get("EVENKEEL")

GOOD = {"version": 1, "global_batch": 8, "micro_batch": 4, "stages": [
    {"from": 0, "to": 2, "groups": [{"device": "a", "first": 0, "count": 4, "tensor": 2, "micro_batches": [3, 1]}],
     "strategies": [{"from": 0, "to": 1, "sharding": "optimizer", "checkpoint": True}, {"from": 1, "to": 2, "sharding": "none"}]},
    {"from": 2, "to": 3, "groups": [{"device": "b", "first": 0, "count": 2, "tensor": 1, "micro_batches": [1, 2]}, {"device": "a", "first": 4, "count": 1, "tensor": 1, "micro_batches": [1]}],
     "strategies": [{"from": 2, "to": 3, "sharding": "gradients"}]}]}


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "evenkeel.plan"] + list(arguments), env=ENV, capture_output=True, text=True, timeout=300, **options)


class Places(unittest.TestCase):
    def test_ranks_by_hand(self):
        p = Layout(json.dumps(GOOD)).places
        self.assertEqual([(x.stage, x.replica, x.tensor, x.tensor_rank, list(x.rows)) for x in p], [
            (0, 0, 2, 0, [0, 1, 2]), (0, 0, 2, 1, [0, 1, 2]), (0, 1, 2, 0, [3]), (0, 1, 2, 1, [3]),
            (1, 0, 1, 0, [0]), (1, 1, 1, 0, [1, 2]), (1, 2, 1, 0, [3])])

    def test_every_row_goes_once_to_every_taker(self):
        for seed in range(300):
            layout = Layout(json.dumps(plan(random.Random(seed), most=12)))
            for place in layout.places:
                for stage in (place.stage - 1, place.stage + 1):
                    if not 0 <= stage < len(layout.layers):
                        continue
                    came = [row for _, rows in layout.partners(place, stage) for row in rows]
                    self.assertEqual(sorted(came), list(place.rows))
                    for partner, rows in layout.partners(place, stage):
                        self.assertEqual(partner.stage, stage)
                        self.assertTrue(set(rows) <= set(partner.rows))
                        self.assertIn((place, rows), layout.takers(partner, place.stage))
                    for taker, rows in layout.takers(place, stage):
                        self.assertIn((place, rows), layout.partners(taker, place.stage))

    def test_ranks_of_a_replica_are_dealt(self):
        groups = [[{"device": "a", "first": 2 * k, "count": 2, "tensor": 2, "micro_batches": [1]}] for k in range(2)]
        layout = Layout(json.dumps({"version": 1, "global_batch": 1, "micro_batch": 1, "stages": [
            {"from": k, "to": k + 1, "groups": groups[k], "strategies": [{"from": k, "to": k + 1, "sharding": "none"}]} for k in range(2)]}))
        self.assertEqual([[p.rank for p, _ in layout.partners(layout.places[k], 1 - k // 2)] for k in range(4)], [[2], [3], [0], [1]])

    def test_order_of_1f1b(self):
        self.assertEqual(order(0, 3, 4), [("forward", 0), ("forward", 1), ("forward", 2), ("backward", 0), ("forward", 3), ("backward", 1), ("backward", 2), ("backward", 3)])
        self.assertEqual(order(2, 3, 2), [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)])
        self.assertEqual(order(0, 4, 2), [("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)])
        for stage in range(4):
            for m in range(1, 9):
                held, most = 0, 0
                for kind, _ in order(stage, 4, m):
                    held += 1 if kind == "forward" else -1
                    most = max(most, held)
                self.assertEqual((held, most), (0, min(m, 4 - stage)))

    def test_bad_plans_are_named(self):
        for change, want in (
                (lambda p: p.update(version=2), "plan: version: 2; want 1"),
                (lambda p: p.update(global_batch=9), "global_batch: 9 is no multiple of micro_batch, 4"),
                (lambda p: p.update(micro_batch=True), "micro_batch: True"),
                (lambda p: p.update(schedule="zb-h1"), "schedule: 'zb-h1': only 1f1b"),
                (lambda p: p.update(context=2), "context: 2: context and expert parallelism are not supported here"),
                (lambda p: p.update(experts="4"), "experts: '4': context and expert parallelism are not supported here"),
                (lambda p: p.update(stages=[]), "stages: want a list"),
                (lambda p: p.update(chunks=2), "plan: chunks: not supported here"),
                (lambda p: p["stages"][0].update(ahead=2), "plan: stages[0].ahead: not supported here"),
                (lambda p: p["stages"][1]["groups"][0].update(expert=2), "plan: stages[1].groups[0].expert: not supported here"),
                (lambda p: p["stages"][1]["strategies"][0].update(offload=True), "plan: stages[1].strategies[0].offload: not supported here"),
                (lambda p: p["stages"][1]["strategies"][0].update(selective=1), "plan: stages[1].strategies[0].selective: 1; want true"),
                (lambda p: p["stages"][0]["strategies"][0].update(selective=True), "plan: stages[0].strategies[0].selective: true, and so is checkpoint"),
                (lambda p: p["stages"][1].update({"from": 1}), "stages[1].from: 1; want 2"),
                (lambda p: p["stages"][0]["groups"][0].update(count=3), "stages[0].groups[0].count: 3 devices; want 2 replicas of 2"),
                (lambda p: p.update(predicted={"tied": True}), "predicted.tied: True: tied parameters are not supported here"),
                (lambda p: p["stages"][0]["groups"][0].update(micro_batches=[3, 2]), "stages[0].groups: the replicas take 5 samples of a micro-batch of 4"),
                (lambda p: p["stages"][0]["groups"][0].update(micro_batches=[4, 0]), "stages[0].groups[0].micro_batches[1]: 0; want a whole number"),
                (lambda p: p["stages"][0]["groups"][0].update(count=400, tensor=200), "count: 400"),
                (lambda p: p["stages"][0]["strategies"][1].update(tensor=1), "stages[0].strategies[1].tensor: every layer has the tensor degree of its group"),
                (lambda p: p["stages"][0]["strategies"][1].update(sharding="full"), "stages[0].strategies[1].sharding: 'full'; none, optimizer and gradients"),
                (lambda p: p["stages"][0]["strategies"].pop(), "stages[0].strategies: they end at layer 1, the stage ends at layer 2"),
                (lambda p: p["stages"][1]["strategies"][0].update(checkpoint="no"), "stages[1].strategies[0].checkpoint: 'no'")):
            p = copy.deepcopy(GOOD)
            change(p)
            with self.assertRaises(PlanError) as e:
                Layout(json.dumps(p))
            self.assertIn(want, str(e.exception))

    def test_junk_is_refused_or_run(self):
        rng, text = random.Random(5), json.dumps(GOOD)
        junk = ["NaN", "-1", "1e99", "null", "[]", "{}", '""', "true", "99999999999999999999", "\x00", "[" * 3000, '"a":']
        refused = 0
        for _ in range(3000):
            at = rng.randrange(len(text))
            end = min(len(text), at + rng.randrange(0, 12))
            t = text[:at] + rng.choice(junk + [text[end:end + 5], ""]) + text[end:]
            try:
                layout = Layout(t)
                self.assertLessEqual(layout.world_size, 256)
            except PlanError:
                refused += 1
        self.assertGreater(refused, 1000)


class Recomputation(unittest.TestCase):
    def test_what_is_computed_again(self):
        """On one rank, which needs no others: how often a block and its attention go forward, for each of two micro-batches."""
        for strategy, blocks, attends in (({}, 2, 2), ({"checkpoint": True}, 4, 4), ({"selective": True}, 2, 4)):
            layout = Layout(json.dumps({"version": 1, "global_batch": 2, "micro_batch": 1, "stages": [{
                "from": 0, "to": 3, "groups": [{"device": "a", "first": 0, "count": 1, "tensor": 1, "micro_batches": [1]}],
                "strategies": [dict(strategy, **{"from": 0, "to": 3, "sharding": "none"})]}]}))
            sizes = model.Sizes(8, 3, 4, 2, 1)
            worker = Worker(layout, sizes, 0, 0, torch.float64, 0.1)
            with mock.patch.object(model, "attend", side_effect=model.attend) as attend, \
                    mock.patch.object(worker.layers[1].layer, "forward", side_effect=worker.layers[1].layer.forward) as block:
                worker.iterate(*model.tokens(sizes, 0, 0, 2))
            self.assertEqual((block.call_count, attend.call_count), (blocks, attends), strategy)


class Runs(unittest.TestCase):
    def test_random_plans_are_training_without_one(self):
        """In float64 the first gradients are those of the undivided model to 1e-12, and the losses of three steps those of PyTorch's own AdamW."""
        p = subprocess.run([sys.executable, os.path.join(HERE, "plan_random.py"), "0", "10"], env=ENV, capture_output=True, text=True, timeout=600)
        self.assertEqual(p.returncode, 0, p.stderr)
        lines = [json.loads(line) for line in p.stdout.splitlines()]
        self.assertEqual(len(lines), 20)
        for what, got in zip(lines[::2], lines[1::2]):
            self.assertLess(got["off"], 1e-12, (what, got["where"]))
            for a, b in zip(got["losses"], got["undivided"]):
                self.assertAlmostEqual(a, b, delta=1e-10, msg=what)
            self.assertNotAlmostEqual(got["losses"][0], got["losses"][-1], places=6)

    def launched(self, plan, ranks, *flags):
        """Starts a process for each of the ranks as torchrun does; ranks are (rank, its further flags)."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w") as f:
                json.dump(plan, f)
            env = dict(ENV, WORLD_SIZE=str(len(ranks)), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(processes.free_port()), LOCAL_WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
            all = [subprocess.Popen([sys.executable, "-m", "evenkeel.plan", "run", path] + list(flags) + more, env=dict(env, RANK=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for rank, more in ranks]
            return [(p.communicate(timeout=120), p.returncode) for p in all]

    def test_a_stage_over_machines(self):
        one = {"version": 1, "global_batch": 4, "micro_batch": 4, "stages": [
            {"from": 0, "to": 3, "groups": [{"device": "a", "first": 0, "count": 3, "tensor": 1, "micro_batches": [1, 2, 1]}], "strategies": [{"from": 0, "to": 3, "sharding": "gradients"}]}]}
        said = self.launched(one, [(2, []), (0, []), (1, [])], "--size", "8", "--heads", "2", "--length", "3", "--vocabulary", "12", "--dtype", "float64", "--check", "--steps", "2", "--json")
        self.assertEqual([code for _, code in said], [0, 0, 0], said)
        self.assertLess(json.loads(said[1][0][0])["gradients"]["off"], 1e-12)
        self.assertEqual((said[0][0][0], said[2][0][0]), ("", ""))

    def test_machines_with_other_flags(self):
        two = {"version": 1, "global_batch": 2, "micro_batch": 2, "stages": [{"from": 0, "to": 2, "groups": [
            {"device": "a", "first": 0, "count": 2, "tensor": 1, "micro_batches": [1, 1]}], "strategies": [{"from": 0, "to": 2, "sharding": "none"}]}]}
        for (out, err), code in self.launched(two, [(1, []), (0, ["--check"])], "--size", "4", "--heads", "2", "--length", "3", "--vocabulary", "12"):
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn("rank 1 was started with --check False, rank 0 with True", err)

    def test_bad_input(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w") as f:
                json.dump(GOOD, f)
            for arguments, want in (
                    ((path, "--heads", "3", "--size", "9"), "--heads 3: must be a multiple of the tensor degree, 2"),
                    ((path, "--steps", "0"), "--steps 0"),
                    ((path, "--rate", "nan"), "--rate nan"),
                    ((path, "--seed", "99999999999999"), "--seed 99999999999999: must lie in 0 to 4294967295"),
                    ((path, "--cluster", "c.yaml"), "--cluster needs --measured"),
                    ((os.path.join(folder, "none.json"),), "none.json")):
                p = run("run", *arguments)
                self.assertEqual((p.returncode, p.stdout), (2, ""), p.stderr)
                self.assertIn(want, p.stderr)
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)

    def test_a_pass_of_one_block(self):
        """By a clock that only its forward passes move."""
        sizes, clock = model.Sizes(8, 3, 4, 2, 1), [0.0]
        block = sizes.layers()[1]
        values = exchange.LayerValues(block, model.initial(block, 1, 0, torch.float64), Strategy("none", False), Place(0, 0, 0, 1, 0, range(0)), None, None, False, 0.1)

        def forward(*args, go=block.forward):
            clock[0] += 1
            return go(*args)

        with mock.patch.object(block, "forward", forward), mock.patch("time.perf_counter", lambda: clock[0]):
            self.assertEqual(profile._passes(sizes, block, values, 1, torch.float64, False, None)[0](), (1, 0, 0, 0))

    def test_link_of_what_operations_took(self):
        messages = {"none": (0, 0, 0), "trip": (2, 2, 0), "reduce": (2, 1, 1), "scatter": (1, 0.5, 1), "gather": (1, 0.5, 1)}  # and whole sizes, and starts
        took = {(name, size): 3 + n * 0.25 + whole * size / 1e6 + start * 0.5 for name, (n, whole, start) in messages.items() for size in (1, 4_000_001)}
        for got, want in zip(profile.fit(took, 1, 4_000_001), (0.25, 1e6, 0.5), strict=True):
            self.assertAlmostEqual(got / want, 1, places=4)
        took["gather", 1] = took["scatter", 1] = took["reduce", 1] = took["none", 1]
        self.assertEqual(profile.fit(took, 1, 4_000_001)[2], 0)

    @unittest.skipUnless(EVENKEEL, "EVENKEEL, the command, is not set")
    def test_profile_search_run_calibrate(self):
        """The whole way, on this machine: layers measured, a plan found, run, and its time read back."""
        with tempfile.TemporaryDirectory() as folder:
            sizes = ["--size", "16", "--heads", "2", "--length", "4", "--vocabulary", "16"]
            p = run("profile", *sizes, "--blocks", "2", "--micro-batches", "1,2", "--each", "0.01", "--busy", "2", "--out", "layers.csv", "--cluster", "cluster.yaml", cwd=folder)
            self.assertEqual(p.returncode, 0, p.stderr)
            files = ["--profile", "layers.csv", "--cluster", "cluster.yaml", "--precision", "fp32", "--overlap", "off"]

            def evenkeel(*arguments):
                p = subprocess.run([EVENKEEL, "plan"] + list(arguments), cwd=folder, capture_output=True, text=True, timeout=120)
                self.assertEqual(p.returncode, 0, p.stderr)
                return p.stdout

            evenkeel("search", *files, "--batch", "4", "--tensor", "2", "--out", "my,plan.json")
            p = run("run", "my,plan.json", *sizes, "--steps", "3", "--check", "--dtype", "float64", "--measured", "measured.csv", "--cluster", "cluster.yaml", cwd=folder)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertIn("predicted in the plan", p.stdout)
            self.assertIn("gradients  off by", p.stdout)
            self.assertIn("measured", evenkeel("calibrate", "measured.csv", *files, "--out", "calibration.json"))
            evenkeel("export", "my,plan.json", "--format", "torch", "--out", "exported.py")
            # The same ranks as in what is exported.
            for seed in range(20):
                text = json.dumps(plan(random.Random(seed)))
                with open(os.path.join(folder, "p.json"), "w") as f:
                    f.write(text)
                evenkeel("export", "p.json", "--format", "torch", "--out", "p.py")
                exported = {}
                with open(os.path.join(folder, "p.py")) as f:
                    exec(f.read(), exported)
                for place in Layout(text).places:
                    other = exported["place"](place.rank)
                    self.assertEqual((place.stage, place.replica, place.tensor_rank, place.rows), (other.stage, other.replica, other.tensor_rank, exported["samples_of"](place.rank)))
                self.assertEqual(Layout(text).world_size, exported["WORLD_SIZE"])


if __name__ == "__main__":
    unittest.main()
