import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

try:
    import bucket_job
    import processes
    import torch
    from torch.utils.data import IterableDataset, TensorDataset

    from evenkeel.bucket import Loader, ScheduleError, loader, measured
except ImportError as e:
    raise unittest.SkipTest(f"needs PyTorch: {e}")

torch.set_num_threads(1)  # a process with threads cannot be forked
EVENKEEL = os.environ.get("EVENKEEL")


def schedule(path, lines, ranks, steps, samples, **header):
    """A schedule written by hand: lines of (step, rank, samples)."""
    out = [{"format": "evenkeel-schedule", "version": 1, "samples": samples, "ranks": ranks, "steps": steps, "data": "d", "plan": "p", "seed": 1, "epoch": 0, "from": 0, **header}]
    for step, rank, s in lines:
        w = len(s) * ranks * steps / sum(len(x) for _, _, x in lines)
        out.append({"step": step, "rank": rank, "weight": w, "token_weight": w, "samples": s})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in out)
    with open(path, "w") as f:
        f.write(f'{text}{{"end":true,"crc32":"{zlib.crc32(text.encode()):08x}"}}\n')
    return path


class TestLoader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "e{epoch}.jsonl")
        # Rank 0 has two batches in step 0 and none in step 1.
        lines = [(0, 0, [0, 1]), (0, 0, [2]), (0, 1, [3]), (1, 1, [4, 5]), (2, 0, [6]), (2, 1, [7])]
        for epoch in range(2):
            schedule(self.path.replace("{epoch}", str(epoch)), lines, 2, 3, 8, epoch=epoch, idle=5)
        self.data = TensorDataset(torch.arange(8))

    def loader(self, rank=0, ranks=2, data=None, **more):
        """Reads those files in place of what the command writes."""
        file = lambda epoch, *_: self.path.replace("{epoch}", str(epoch))
        with unittest.mock.patch.object(loader, "Schedules", lambda *_: unittest.mock.Mock(file=file)):
            return Loader(data or self.data, [1] * 8, "plan.json", rank=rank, ranks=ranks, **more)

    def fails(self, words, f, *args, **more):
        with self.assertRaises(ScheduleError) as e:
            f(*args, **more)
        self.assertIn(words, str(e.exception))

    def test_steps(self):
        for workers in (0, 2):
            got = [(b.step, b.samples, b.data[0].tolist(), b.last, b.idle) for b in self.loader(num_workers=workers)]
            self.assertEqual(got, [(0, [0, 1], [0, 1], False, False), (0, [2], [2], True, False), (1, [5], [5], True, True),
                                   (2, [6], [6], True, False)])
        self.assertEqual([(b.step, b.last) for b in self.loader(1)], [(0, True), (1, True), (2, True)])

    def test_weights(self):
        labels = [0, 3, 1, 4, 0, 0, 2, 2]
        a, b = (list(self.loader(r, labels=labels)) for r in range(2))
        self.assertEqual([x.weight for x in a], [1.5, .75, 0, .75])
        self.assertEqual([x.label_weight for x in a], [1.5, .5, 0, 1])
        self.assertEqual([x.label_weight for x in b], [2, 0, 1])  # step 1 has no label at all
        self.assertEqual({x.label_weight for x in self.loader(labels=[0] * 8)}, {0})
        self.assertIsNone(next(iter(self.loader())).label_weight)

    def test_resume(self):
        whole = [b.samples for b in self.loader()]
        for workers in (0, 2):
            for stop in range(1, len(whole) + 1):
                loader = self.loader(num_workers=workers)
                it = iter(loader)
                for _ in range(stop):
                    step = next(it)
                state = json.loads(json.dumps(loader.state_dict()))
                self.assertEqual(state["step"], step.step + step.last)
                again = self.loader(num_workers=workers)
                again.load_state_dict(state)
                again.set_epoch(0)  # as the loop over epochs does
                # A step that was begun is done anew.
                self.assertEqual([b.samples for b in again], [b.samples for b in self.loader() if b.step >= state["step"]])

    def test_epochs(self):
        loader = self.loader()
        n = len(loader)
        self.assertEqual(n, len(list(loader)))
        self.assertEqual((loader.epoch, loader.state_dict()["step"], loader.steps), (1, 0, 3))
        loader.set_epoch(1)
        self.assertEqual(len(list(loader)), n)
        self.fails("epoch 1 after 2", loader.set_epoch, 1)
        loader = self.loader()
        first = iter(loader)
        next(first)
        next(iter(loader))
        self.fails("another iteration", next, first)

    def test_bad(self):
        self.fails("not a schedule of version 1 for 3 ranks", self.loader, 0, 3)
        self.fails("rank 2 of 2", self.loader, 2)
        self.fails("batch_size", self.loader, batch_size=3)
        self.fails("both rank and ranks", self.loader, 0, None)
        self.fails("labels: 2", self.loader, labels=[1, 2])
        self.fails("IterableDataset", self.loader, data=type("D", (IterableDataset,), {"__iter__": None})())
        path = self.path.replace("{epoch}", "0")
        with open(path, "rb") as f:
            whole = f.read()
        for spoilt in (whole[:-40], whole.replace(b"[6]", b"[5]"), whole[:whole.rindex(b"{")], b"", b"x\n"):
            with open(path, "wb") as f:
                f.write(spoilt)
            self.fails("not a schedule" if len(spoilt) < 3 else "truncated, or was changed", self.loader)

    def test_once(self):
        """Ranks that need a file at the same time write it once."""
        made = []

        def make(path):
            time.sleep(.05)
            made.append(path)
            open(path, "w").close()

        schedules = object.__new__(loader.Schedules)
        threads = [threading.Thread(target=schedules._once, args=(os.path.join(self.folder.name, "f"), make)) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(made), 1)

    def test_a_model_that_is_not_wrapped(self):
        """Alone any model will do; with others it would exchange gradients with every batch, or never."""
        first = next(iter(self.loader()))
        with first.sync(torch.nn.Linear(1, 1)):
            pass

        def child(rank, port):
            torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            model = torch.nn.Linear(1, 1)
            for batch in self.loader(rank):
                with self.assertRaisesRegex(ScheduleError, "Linear.*no_sync"):
                    batch.sync(model)
            ddp = torch.nn.parallel.DistributedDataParallel(model)
            for batch in self.loader(rank):
                with batch.sync(ddp):
                    assert ddp.require_backward_grad_sync == batch.last

        processes.run(self, 2, child)

    def test_bad_state(self):
        loader = self.loader()
        good = loader.state_dict()
        for key, value in (("data", "x"), ("plan", "x"), ("seed", 2), ("version", 2)):
            self.fails(f"resume state: {key}", loader.load_state_dict, {**good, "step": 1, key: value})
        self.fails("step 4", loader.load_state_dict, {**good, "step": 4})
        self.fails("lacks epoch or step", loader.load_state_dict, {})
        self.assertEqual(loader.state_dict(), good)  # it stands where it stood


@unittest.skipUnless(EVENKEEL, "needs the command: set EVENKEEL to its path")
class TestJob(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.folder = self.temp.name
        self.lengths = [1 + i * i % 40 for i in range(240)]
        with open(self.file("lengths.json"), "w") as f:
            json.dump(self.lengths, f)
        with open(self.file("lengths.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in self.lengths)
        with open(self.file("table.csv"), "w") as f:
            f.write("length,batch,seconds,peak_bytes\n10,1,0.11,\n10,8,0.18,\n40,1,0.14,\n40,4,0.26,\n")
        self.plan("1,1,2")

    def file(self, name):
        return os.path.join(self.folder, name)

    def plan(self, speeds, *more):
        subprocess.run([EVENKEEL, "bucket", "plan", "--lengths", self.file("lengths.txt"), "--table", self.file("table.csv"), "--speeds", speeds,
                        *more, "--out", self.file("plan.json")], check=True, capture_output=True)

    def job(self, kill=None, workers=0, ranks=3, speeds=None, change=None):
        """The job's processes; what it did, or None if it was killed."""
        processes.run(self, ranks, lambda rank, port: self.child(rank, ranks, port, kill, workers, speeds, change), 1 if kill else None)
        if kill:
            return None
        with open(self.file("done.json")) as f:
            return json.load(f)

    def child(self, rank, ranks, port, kill, workers, speeds, change):
        os.setpgid(0, 0)
        if kill:  # the survivors' complaints
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        bucket_job.run(rank, ranks, port, self.folder, kill, workers, speeds, change)

    def test_killed_and_resumed(self):
        """Three ranks of speeds 1, 1, 2 are killed in the first step, in the middle and in the second epoch; every sample comes
        once an epoch, and bucket_job.py compares the gradients."""
        for n, kill in enumerate(((0, 0), (0, 3), (1, 2))):
            self.job(kill, workers=n % 2 * 2)
        out = self.job(workers=2)
        for epoch in range(2):
            self.assertEqual(sorted(i for e, _, s in out if e == epoch for i in s), list(range(240)))

    def test_other_ranks(self):
        """Three ranks begin an epoch, two go on with it, then four, whose speeds change on the way; the next epoch begins with three and ends with two. Every
        sample comes once, and gradients are those of one batch."""
        self.job((0, 3), workers=2)
        self.job((0, 6), ranks=2, speeds=[1, 1])
        self.job((1, 2), ranks=4, speeds=[1, 1, 2, 2], change=(0, 8, [2, 1, 1, 1]), workers=2)
        self.job((1, 4))  # four began this epoch
        out = self.job(ranks=2, speeds=[1, .5], workers=2)
        for epoch in range(2):
            self.assertEqual(sorted(i for e, _, s in out if e == epoch for i in s), list(range(240)))
            steps = [k for e, k, _ in out if e == epoch]
            self.assertEqual(steps, list(range(len(steps))))

    def test_an_epoch_ends_before_one_that_cannot_be(self):
        """Speeds that do for the rest of an epoch, but for no batch of the next one's longest sample: the state at the epoch's end can be saved, and loaded
        by ranks with other speeds."""
        self.lengths = [40] + [5] * 99
        with open(self.file("lengths.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in self.lengths)
        self.plan("1,1", "--max-tokens", "90")

        def make():
            return [Loader(TensorDataset(torch.arange(100)), self.lengths, self.file("plan.json"), rank=r, ranks=2, cache=self.file("cache")) for r in range(2)]

        done = [{}, {}]
        for rank, loader in enumerate(make()):
            for b in loader:
                done[rank].setdefault(b.step, []).extend(b.samples)
        long = next(s for d in done for s, samples in d.items() if 0 in samples)
        self.assertLess(long + 1, loader.steps)
        loader = make()[0]
        for b in loader:
            if b.step == long and b.last:
                break
        loader.set_speeds([1, 0.5])
        self.assertGreater(len(list(loader)), 0)
        state = loader.state_dict()
        self.assertEqual((state["epoch"], state["step"]), (1, 0))
        with self.assertRaisesRegex(ScheduleError, "max tokens 90 of a step leave .*: sample 0, of length 40"):
            next(iter(loader))
        self.assertEqual(loader.state_dict(), state)
        again = make()[0]
        again.load_state_dict(state)
        self.assertEqual((again.epoch, next(iter(again)).step), (1, 0))

    def test_bad(self):
        data = TensorDataset(torch.arange(240))

        def fails(words, *args, **more):
            with self.assertRaises(ScheduleError) as e:
                Loader(*args, **{"rank": 0, "ranks": 3, "cache": self.file("cache"), **more})
            self.assertIn(words, str(e.exception))

        plan = self.file("plan.json")
        fails("made for 240 samples; the data set has 239", TensorDataset(torch.arange(239)), self.lengths, plan)
        fails("lengths: 239 of them", data, self.lengths[1:], plan)
        next(iter(Loader(data, self.lengths, plan, rank=0, ranks=3, cache=self.file("cache"))))  # what is kept of it serves these lengths alone
        fails("not those of the plan", data, [1] * 240, plan)
        fails("3 ranks before differ in speed", data, self.lengths, plan, ranks=2)
        with self.assertRaisesRegex(ScheduleError, r"^ranks=2: .* by speeds=\[\.\.\.\] \(plan .*plan.json\)$"):
            next(iter(Loader(data, self.lengths, plan, rank=0, ranks=2, cache=self.file("cache"))))
        with self.assertRaisesRegex(ScheduleError, r"^the lengths are not those of the plan .*: plan anew with these lengths \(plan "):
            next(iter(Loader(data, [1] * 240, plan, rank=0, ranks=3, cache=self.file("cache"))))
        fails("one above 0 for each of 2", data, self.lengths, plan, ranks=2, speeds=[1, 0])
        fails("not a plan", data, self.lengths, self.file("table.csv"))
        fails("No such file", data, self.lengths, self.file("none.json"))
        fails("no/such", data, self.lengths, plan, command="no/such", cache=self.file("other"))
        fails("give one number per sample", data, ["x"] * 240, plan)
        fails("sample 0 has 0", data, [0, *self.lengths[1:]], plan)
        fails("sample 3 has 1.5", data, [*self.lengths[:3], 1.5, *self.lengths[4:]], plan)
        with self.assertRaisesRegex(ScheduleError, "not a table"):
            measured(plan)
        state = Loader(data, self.lengths, plan, rank=0, ranks=3, cache=self.file("cache")).state_dict()
        for step in (2, 3):  # what is kept for one state serves no other
            other = Loader(data, self.lengths, plan, rank=0, ranks=2, speeds=[1, 1], cache=self.file("cache"))
            other.load_state_dict({**state, "step": step})
            self.assertEqual(other._schedule().first, step)
        self.plan("1,1,2", "--scale", "0.5")
        Loader(data, [(n + 1) // 2 for n in self.lengths], plan, rank=0, ranks=3, cache=self.file("cache"))  # numbers are in the plan's unit
        self.assertFalse([n for n in os.listdir(self.file("cache")) if "part" in n], "something half written stays")


if __name__ == "__main__":
    unittest.main()
