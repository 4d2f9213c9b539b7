import json
import os
import random
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "experiments", "bucket")]

try:
    import numpy
    import torch

    import online_job
    import processes
    from evenkeel.bucket import Loader, ScheduleError
    from evenkeel.bucket.cost import Costs
    from evenkeel.bucket.grouping import Grouping, Part, weights
    from evenkeel.bucket.pooled import Pool
except ImportError as e:
    raise unittest.SkipTest(f"needs PyTorch: {e}")

torch.set_num_threads(1)  # a process with threads cannot be forked


def seconds(length, batch):
    return .1 + .01 * batch + 1e-3 * batch * length


LENGTHS = 1, 10, 40, 90, 150, 200


def plan(ranks=1, speeds=None, weights=(.1, .01, 1e-3, 0), samples=100, steps=10, **more):
    """A plan's part that online loading reads; memory holds 1,000 tokens, and samples of up to 200. weights: None interpolates."""
    table = [{"length": l, "batch": b, "seconds": seconds(l, b)} for l in LENGTHS for b in sorted({1, max(1, 400 // l), 1000 // l})]
    predicts = {"seconds": weights, "room": [1000, 0, 1, 0], "memory": [{"length": l, "fits": 1000 // l} for l in LENGTHS],
                "smoothed": None if weights else [t["seconds"] for t in table]}
    return {"version": 2, "table": table, "predicts": predicts, "pad_to": 0, "batch_multiple": 0, "checksum": "c" * 16,
            "ranks": ranks, "speeds": speeds or [1] * ranks, "samples": samples, "steps": steps, "max_samples": 0, "max_tokens": 0, **more}


class TestCosts(unittest.TestCase):
    def test_formula(self):
        c = Costs(plan())
        for l, b in ((1, 1), (33, 7), (120, 8), (200, 5)):
            self.assertAlmostEqual(float(c.seconds(l, b)), seconds(l, b), delta=1e-9)
            self.assertAlmostEqual(float(Costs(plan(weights=None)).seconds(l, b)), seconds(l, b), delta=1e-9)  # it is linear in both
            self.assertEqual(c.cap(l), 1000 // l)
        self.assertEqual((c.cap(201), c.efficient(201)), (0, 0))
        with self.assertRaisesRegex(ScheduleError, "make it anew, with --table"):
            Costs(plan(predicts=None))
        self.assertEqual((Costs(plan(pad_to=64)).cap(65), Costs(plan(batch_multiple=8)).cap(30)), (1000 // 128, 32))

    def test_vectors(self):
        """The command answers alike: Go reads the same file."""
        with open(os.path.join(HERE, "..", "..", "internal", "vectors", "bucket-cost.json")) as f:
            cases = json.load(f)
        for v in cases:
            c = Costs({**v, "pad_to": 0, "batch_multiple": 0})
            for p in v["points"]:
                self.assertAlmostEqual(float(c.seconds(p["length"], p["batch"])), p["seconds"], delta=1e-9, msg=v["name"])
                self.assertEqual(c.cap(p["length"]), p["cap"], v["name"])

    def test_tiles(self):
        def took(length, batch):
            return .1 + 1e-3 * (-(-batch * length // 256) * 256)
        c = Costs(plan(weights=(.1, 0, 1e-3, 0), tile=256))
        for l in (3, 33, 120, 200):
            rates = {}
            for b in range(1, c.cap(l) + 1):
                self.assertAlmostEqual(float(c.seconds(l, b)), took(l, b), delta=1e-9)
                rates[b] = took(l, b) / b
            self.assertAlmostEqual(rates[c.efficient(l)], min(rates.values()), delta=1e-12)

    def test_most(self):
        c = Costs(plan(batch_multiple=4))
        lengths = numpy.array([1, 20, 50, 200, 200])
        tops = numpy.array([900, 50, 20, 5, 1])
        for budget in (.05, .3, 1., 9.):
            got = c.most(lengths, budget, tops).tolist()
            want = [max([b for b in range(1, t + 1) if c.seconds(l, b) <= budget * (1 + 1e-9)], default=1) for l, t in zip(lengths, tops)]
            self.assertEqual(got, want)


def best_plainly(g, rank, limit, must_fit):
    """Twin of Grouping._best in plain loops: the value of every batch of samples next to each other by length that cannot take one more, by start and
    count, larger is better."""
    w, found = g.windows[rank], {}
    for i in range(len(w)):
        n = 1
        while i + n < len(w) and n < w.cap[i] and g.costs.seconds(int(w.length[i]), n + 1) <= limit * (1 + 1e-9):
            n += 1
        took = float(g.costs.seconds(int(w.length[i]), n))
        passed = g._told / max(1, g.steps * g.ranks) / g.window
        worth = sum(w.rate[k] * (1 + .3 * (g.steps - w.since[k]) * passed) for k in range(i, i + n))
        found[i, n] = took > limit * (1 + 1e-9), worth / max(took, limit), took
    if not must_fit:
        return {k: f[1] for k, f in found.items()}
    if all(f[0] for f in found.values()):
        return {k: -f[2] for k, f in found.items()}
    return {k: -1. if f[0] else f[1] for k, f in found.items()}


class TestGrouping(unittest.TestCase):
    def epoch(self, lengths, speeds, window, queue=None, told=lambda n: n, check=None, kind=Grouping, **more):
        """The steps of an epoch in which messages tell of told(n) of the n samples that are on their way."""
        g = kind(Costs(plan()), speeds, window, numpy.arange(len(lengths)) if queue is None else queue, **more)
        out, idle = [], 0
        while not g.finished():
            drawn = g.draw()
            if kind is Grouping:
                self.assertLessEqual(max(map(g.held, range(g.ranks))), window)
            self.assertLessEqual(sum(map(g.held, range(g.ranks))), g.ranks * window)
            self.assertLessEqual(sum(map(len, drawn)), g.ranks * window)
            for r, c in enumerate(g.coming):
                new = [c[i] for i in range(told(len(c)))]
                g.hear(r, [(lengths[i], i % 3) for i in new])
            if check:
                check(g)
            parts = g.step()
            idle = 0 if parts else idle + 1
            self.assertLess(idle, 10000, "no step for ever")
            if parts:
                self.assertTrue(any(p.positions for p in parts))
                out.append(parts)
        return out

    def test_properties(self):
        """Every sample once, within memory, sums right, whatever is told when; the same again from the same messages."""
        for seed in range(60):
            r = random.Random(seed)
            kind = Pool if seed % 3 == 1 else Grouping
            ranks, n, window = r.randint(1, 5), r.choice([0, 1, 3, 40, 300]), r.choice([1, 2, 17, 64])
            lengths = [min(200, int(r.paretovariate(.7))) for _ in range(n)]
            speeds = [r.choice([1, .9, .5, 2]) for _ in range(ranks)]
            queue = None
            if seed % 3 == 0:  # shards, one of them possibly empty
                owner = [r.randrange(ranks) * (i % 2) for i in range(n)]
                queue = [numpy.array([i for i in range(n) if owner[i] == k], int) for k in range(ranks)]
            runs = []
            for _ in range(2):
                t = random.Random(seed)
                runs.append(self.epoch(lengths, speeds, window, queue, told=lambda k: t.randint(0, k), seed=seed, kind=kind))
            self.assertEqual(runs[0], runs[1])
            seen = [i for parts in runs[0] for p in parts for i in p.positions]
            self.assertEqual(sorted(seen), list(range(n)))
            for parts in runs[0]:
                for k, p in enumerate(parts):
                    own = [lengths[i] for i in p.positions]
                    self.assertEqual((p.tokens, p.labels, list(p.lengths), list(p.counts)), (sum(own), sum(i % 3 for i in p.positions), own, [i % 3 for i in p.positions]))
                    self.assertLessEqual(max(own, default=0) * len(own), 1000)
                    self.assertTrue(queue is None or all(owner[i] == k for i in p.positions))

    def test_twin(self):
        compared = 0

        def check(g):
            nonlocal compared
            if g.target is None:
                return
            for r in range(g.ranks):
                if len(g.windows[r]):
                    for duration in (None, .2, .45):
                        start, count, _ = g._best(r, g.target, duration)
                        limit = (g.target if duration is None else duration) * g.speeds[r]
                        values = best_plainly(g, r, limit, duration is not None)
                        self.assertAlmostEqual(values[start, count], max(values.values()), delta=1e-9)
                        compared += 1
        r = random.Random(5)
        self.epoch([min(200, int(10 * r.paretovariate(1.1))) for _ in range(240)], [1, .7], 24, check=check)
        self.assertGreater(compared, 50)

    def test_cut_all(self):
        """The pool cut anew in plain loops: each rank in turn takes what lasts no longer than its share of T, or leaves what would drag on."""
        compared = 0

        def check(g):
            nonlocal compared
            w = g.windows[0]
            if g.target is None or not len(w):
                return
            for target in (g.target, g.target / 3):
                left, want, longest = w.length.tolist(), [[], []], None
                batch = lambda v: max([b for b in range(1, 1000 // left[0] + 1) if seconds(left[0], b) <= target * v * (1 + 1e-9)], default=1)
                tops = []
                for at in range(len(left)):
                    left = w.length.tolist()[at:]
                    tops.append(seconds(left[0], batch(1)))
                longest, left = max(tops) * (1 + 1e-9), w.length.tolist()
                while left:
                    for r, v in ((1, 1), (0, .5)):
                        if left and seconds(left[0], batch(v)) / v <= longest:
                            n = min(batch(v), len(left))
                            want[r].append((len(w) - len(left), n, seconds(left[0], n) / v))
                            left = left[n:]
                got = g._cut_all(target)
                for a, b in zip(got, want):
                    b = sorted(b, key=lambda c: -c[2])
                    self.assertEqual(sorted(c[:2] for c in a), sorted(c[:2] for c in b))
                    numpy.testing.assert_allclose([c[2] for c in a], [c[2] for c in b], rtol=1e-6)
                compared += 1
        r = random.Random(5)
        self.epoch([min(200, int(10 * r.paretovariate(1.1))) for _ in range(400)], [.5, 1], 24, check=check, kind=Pool)
        self.assertGreater(compared, 10)

    def test_pool(self):
        """A long sample does not go to a slow rank, limits hold, and neighbours in length are not the same in every epoch."""
        r = random.Random(2)
        lengths = [min(200, int(8 * r.paretovariate(1.0))) for _ in range(3000)]
        where = []
        for seed in (1, 2):
            queue = numpy.random.RandomState(seed).permutation(3000)
            steps = self.epoch(lengths, [1, 1, .25], 300, queue, kind=Pool, seed=seed)
            self.assertLess(max(lengths[i] for parts in steps for i in parts[2].positions), 200)
            where.append({i: (k, r) for k, parts in enumerate(steps) for r, p in enumerate(parts) for i in p.positions})
        pairs = [(a, b) for parts in steps for p in parts for a, b in zip(p.positions, p.positions[1:])]
        self.assertLess(sum(where[0][a] == where[0][b] for a, b in pairs) / len(pairs), .5)
        for more in ({"max_samples": 10}, {"max_tokens": 260}):
            for parts in self.epoch([min(l, 80) for l in lengths[:400]], [1, 1, .5], 64, kind=Pool, **more):
                most = [len(p.positions) if "max_samples" in more else len(p.positions) * max(p.lengths, default=0) for p in parts]
                for got, v in zip(most, (1, 1, .5)):
                    self.assertLessEqual(got, list(more.values())[0] * v / 2.5)
        g = Pool(Costs(plan()), [1, .9], 64, numpy.arange(20), max_tokens=100)  # 52 and 47 tokens: 50 fit into rank 0's part alone
        g.draw()
        for r, c in enumerate(g.coming):
            g.hear(r, [(50 if i % 4 else 5, 0) for i in c])
        for start, count, _ in (g._best(1, 9., 9.), *g._cut_all(9.)[1]):
            self.assertLessEqual(count * int(g.windows[0].length[start]), 47)
        g.windows[0].pick(numpy.nonzero(g.windows[0].length == 5)[0])
        self.assertEqual(g._best(1, 9., 9.)[2], float("inf"))
        with self.assertRaisesRegex(ScheduleError, "fits into no batch of rank 1"):
            self.epoch([90], [.5, 1], 8, kind=Pool, max_tokens=120)

    def test_even(self):
        """Ranks of unequal speed end together; the last window does not drag on."""
        r = random.Random(1)
        lengths = [max(1, min(200, int(r.lognormvariate(3, .7)))) for _ in range(6000)]
        for speeds in ([1, 1, 1], [1, 1, .5]):
            steps = self.epoch(lengths, speeds, 256)
            took = [[float(seconds(max(lengths[i] for i in p.positions), len(p.positions))) / v if p.positions else 0. for p, v in zip(parts, speeds)] for parts in steps]
            waited = sum(max(t) * sum(speeds) for t in took) / sum(x * v for t in took for x, v in zip(t, speeds))
            self.assertLess(waited, 1.05)

    def test_limits(self):
        r = random.Random(1)
        lengths = [r.randint(1, 50) for _ in range(400)]
        g = lambda **more: self.epoch(lengths, [1, 1], 64, **more)
        self.assertLessEqual(max(sum(len(p.positions) for p in parts) for parts in g(max_samples=10)), 10)
        most = max(sum(len(p.positions) * max(lengths[i] for i in p.positions) for p in parts if p.positions) for parts in g(max_tokens=220))
        self.assertTrue(110 < most <= 220)
        with self.assertRaisesRegex(ScheduleError, "limits the samples or tokens"):
            g(max_tokens=60)
        with self.assertRaisesRegex(ScheduleError, "length 201, it fits into no batch"):
            self.epoch([3, 201], [1], 8)

    def test_resume_anywhere(self):
        lengths = [1 + i * 37 % 60 for i in range(300)]
        g = Grouping(Costs(plan()), [1, 1, 1], 32, numpy.arange(300), seed=3)
        done = []
        while not g.finished():
            g.draw()
            for r, c in enumerate(g.coming):
                new = list(c)[:len(c) * 2 // 3 + 1]
                g.hear(r, [(lengths[i], 0) for i in new])
            done += [i for p in g.step() or () for i in p.positions]
            rest = [i for p in g.pending() for i in p] + list(range(g.taken[0], 300))
            self.assertEqual(sorted(done + rest), list(range(300)))

    def test_weights(self):
        got = weights([Part([1, 2, 3], 30, 0), Part([], 0, 0), Part([4], 10, 0)], [5, 50, 7])
        self.assertEqual(got, [(3 * 3 / 5, 3 * 30 / 50, 0.), (0., 0., 0.), (3 / 5, 3 * 10 / 50, 0.)])


class TestSimulation(unittest.TestCase):
    def test_targets(self):
        """A small epoch of the experiment: what the loader does not wait or pad for."""
        import online
        rng = numpy.random.default_rng(3)
        for draw, most in ((online.lognormal, 1.22), (online.pareto, 1.30)):
            lengths = draw(8000, rng)
            speeds = [1, 1, 1, .9]
            steps = online.online(lengths, 512, speeds, 1)
            got = online.score(steps, lengths, speeds)  # which asserts that every sample comes once
            self.assertLess(got["of the bound"], most)
            self.assertLess(got["of the bound"], online.score(online.odb(lengths, 4, 512, 16384), lengths, speeds)["of the bound"])
            twice = [online.online(lengths, 512, speeds, seed, pool=True) for seed in (1, 2)]
            a, b = (online.score(steps, lengths, speeds) for steps in twice)
            self.assertLess(a["of the bound"], 1.13)
            self.assertLess(a["p99"], 1.4)
            again, chance = online.meet_again(a["where"], b["where"])
            self.assertLess(again, chance + .07)


class TestAlone(unittest.TestCase):
    """One rank, no process group."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.plan = os.path.join(self.folder, "plan.json")
        with open(self.plan, "w") as f:
            json.dump(plan(), f)
        self.data = [[i] * (1 + i * 7 % 50) for i in range(200)]

    def loader(self, data=None, **more):
        return Loader(self.data if data is None else data, self.plan, online=True, collate_fn=lambda s: s, window=32, **more)

    def fails(self, words, f, *args, **more):
        with self.assertRaises(ScheduleError) as e:
            f(*args, **more)
        self.assertIn(words, str(e.exception))

    def test_epochs_and_replay(self):
        name = os.path.join(self.folder, "e{epoch}.jsonl")
        for workers, pool in ((0, False), (2, False), (2, True)):
            loader = self.loader(num_workers=workers, pool=pool, record=name, labels=lambda s: len(s) // 2)
            orders, each = [], []
            for epoch in range(2):
                loader.set_epoch(epoch)
                got = list(loader)
                self.assertEqual([b.step for b in got], list(range(len(got))))
                self.assertTrue(all(b.last and not b.idle for b in got))
                # Every sample and token of both epochs counts the same; the mean of the first window is near that of the epoch.
                each += [(b.weight / len(b.samples), b.token_weight / sum(map(len, b.data)), b.label_weight / sum(len(s) // 2 for s in b.data)) for b in got]
                numpy.testing.assert_allclose(each, [each[0]] * len(each), rtol=1e-12)
                self.assertAlmostEqual(sum(b.weight for b in got) / len(got), 1, delta=.4)
                self.assertTrue(all([s[0] for s in b.data] == b.samples for b in got))
                orders.append([b.samples for b in got])
                self.assertEqual(sorted(i for o in orders[-1] for i in o), list(range(200)))
                replay = Loader(self.data, None, name, collate_fn=lambda s: s)
                replay.set_epoch(epoch)
                if epoch == 0:
                    self.assertEqual([b.samples for b in replay], orders[0])
            self.assertNotEqual(*orders)

    def test_pool_holds_little(self):
        """The first batch comes before much more than a window is processed."""
        asked = []

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 600

            def __getitem__(self, i):
                asked.append(i)
                return [i] * (1 + i * 7 % 50)
        batches = iter(self.loader(Data(), pool=True, ahead=1))
        next(batches)
        self.assertLess(len(asked), 300)
        batches.close()

    def test_resume(self):
        name = os.path.join(self.folder, "r{epoch}.jsonl")
        for stop in (1, 3, 7):
            loader, done = self.loader(record=name), []
            for b in loader:
                done += b.samples
                if b.step == stop - 1:
                    break
            state = json.loads(json.dumps(loader.state_dict()))
            again = self.loader(record=name)
            again.load_state_dict(state)
            again.set_epoch(0)
            rest = list(again)
            self.assertEqual(rest[0].step, stop)
            self.assertAlmostEqual(rest[0].weight / len(rest[0].samples), b.weight / len(b.samples))
            self.assertEqual(sorted(done + [i for b in rest for i in b.samples]), list(range(200)))
            replay = [i for b in Loader(self.data, None, name, collate_fn=lambda s: s) for i in b.samples]
            self.assertEqual(replay, done + [i for b in rest for i in b.samples])
            self.assertEqual((again.epoch, again.step), (1, 0))

    def test_bad(self):
        self.fails("sample 5: of length 999, it fits into no batch", list, self.loader(self.data[:5] + [[5] * 999]))
        self.fails("sample 5: length 0", list, self.loader(self.data[:5] + [[]]))
        with self.assertRaises(ZeroDivisionError):
            list(self.loader(length=lambda s: 1 // 0))
        self.fails("give length=", list, self.loader([{"x": 1}]))
        self.fails("smaller than one batch", Loader, self.data, self.plan, online=True, window=9)
        self.fails("plan: ", Loader, self.data, "none.json", online=True)
        self.fails("batch_size", self.loader, batch_size=2)
        self.fails("made for 1 ranks, not 2", self._two)
        self.fails("needs torch.distributed", Loader, self.data, self.plan, online=True, rank=0, ranks=2)
        self.fails("when samples are processed", Loader, self.data, [1], self.plan, online=True)
        self.fails("shard: positions", self.loader, shard=[5, 200])
        self.fails("leave out pool= or shard=", self.loader, shard=[5], pool=True)
        loader = self.loader()
        good = loader.state_dict()
        for key, value in (("version", 2), ("samples", 3), ("seed", 9), ("plan", "x")):
            self.fails(f"resume state: {key}", loader.load_state_dict, {**good, key: value})
        self.fails("online loader", loader.load_state_dict, {"epoch": 0, "step": 1})

    def _two(self):
        loader = self.loader()
        loader.ranks = 2
        loader._prepare(self.plan, None)


class TestJob(unittest.TestCase):
    """Jobs of three gloo ranks, online_job.py."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "plan.json"), "w") as f:
            json.dump(plan(3, [1, 1, 1]), f)

    def job(self, killed=False, **how):
        processes.run(self, 3, lambda rank, port: self.child(rank, port, how), 1 if killed else None)
        if killed:
            return None
        with open(os.path.join(self.folder, "done.json")) as f:
            return json.load(f)

    def child(self, rank, port, how):
        os.setpgid(0, 0)
        if how.get("kill"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        online_job.run(rank, 3, port, self.folder, **how)

    def test_shards(self):
        """Shards of 500, 500, 250 and 500, 500, 0; the latter stalls for 5 s, is killed and resumed."""
        sizes = [500, 500, 250]
        self.assertEqual(sorted(i for _, s in self.job(sizes=sizes) for i in s), list(range(1250)))
        os.remove(os.path.join(self.folder, "checkpoint.pt"))
        sizes = [500, 500, 0]
        self.job(killed=True, sizes=sizes, kill=5)
        began = time.monotonic()
        done = self.job(sizes=sizes, stall=5.0)
        self.assertGreater(time.monotonic() - began, 5)
        self.assertEqual(sorted(i for _, s in done for i in s), list(range(1000)))

    def test_one_queue(self):
        done = self.job(killed=True, samples=700, kill=4, workers=2)
        done = self.job(samples=700, workers=2)
        self.assertEqual(sorted(i for _, s in done for i in s), list(range(700)))

    def test_pool(self):
        self.job(killed=True, samples=700, kill=4, workers=2, pool=True)
        done = self.job(samples=700, workers=2, pool=True, stall=2.0)
        self.assertEqual(sorted(i for _, s in done for i in s), list(range(700)))

    def test_again(self):
        self.assertEqual(self.job(bad="again"), "ok")

    def test_bad(self):
        """One rank's fault is an error on all of them, and none waits."""
        self.assertEqual(self.job(bad=True), "ok")


if __name__ == "__main__":
    unittest.main()
