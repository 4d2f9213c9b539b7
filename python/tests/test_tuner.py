"""python3 -m unittest discover -s python/tests, from the repository's root. Jobs of several processes whose sizes are tuned as they run."""

import collections
import copy
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import numpy
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import evenkeel
import fake_service
import processes
from evenkeel.tuner import Usage, client, deadline, gradient_hook
from evenkeel.tuner.by_cost import worked

LENGTH = 200


def model(dtype, wide=420):
    """Of several buckets, the first of 1 MiB."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, wide), torch.nn.Tanh(), torch.nn.Linear(wide, wide), torch.nn.Tanh(), torch.nn.Linear(wide, wide), torch.nn.Linear(wide, 3)).to(dtype)


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Job:
    """What a test's process trains."""

    def __init__(self, rank, ranks, port, dtype=torch.float64, clock=time.perf_counter, net=None, local=False, **ddp):
        torch.set_num_threads(1)
        self.rank, self.ranks = rank, ranks
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
        self.plain = net or model(dtype)
        self.ddp = DDP(self.plain, bucket_cap_mb=1, **ddp)
        self.tuner = evenkeel.Tuner(self.ddp, check=False, local=local, clock=clock)
        g = torch.Generator().manual_seed(5)
        self.x, self.y = torch.randn(LENGTH, 8, generator=g, dtype=dtype), torch.randint(0, 3, (LENGTH,), generator=g)
        self.data = torch.utils.data.TensorDataset(self.x, self.y, torch.arange(LENGTH))
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05)
        self.round = []  # samples of this rank in the round

    def loader(self, workers=0, **batches):
        return torch.utils.data.DataLoader(self.data, batch_sampler=self.tuner.batches(LENGTH, **batches), num_workers=workers)

    def off(self):
        """How far the gradient is from that of one process with all samples of the round, as a share of its norm; and these samples."""
        everyone = [None] * self.ranks
        dist.all_gather_object(everyone, self.round)
        union = [i for some in everyone for i in some]
        twin = copy.deepcopy(self.plain)
        twin.zero_grad(set_to_none=True)
        cross_entropy(twin(self.x[union]), self.y[union]).backward()
        mine, its = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (self.plain, twin))
        self.round = []
        return float((mine - its).norm() / its.norm()), union, everyone, mine, its

    def counted(self, i):
        """The samples that count: a rank without any gets one all the same."""
        if self.tuner.counts:
            self.round += i.tolist()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


class Ranks(unittest.TestCase):
    def setUp(self):
        self.environment = mock.patch.dict(os.environ)
        self.environment.start()
        self.addCleanup(self.environment.stop)
        os.environ.pop("EVENKEEL_URL", None)

    def serve(self, decide):
        service = fake_service.Service(decide)
        self.addCleanup(service.stop)
        os.environ["EVENKEEL_URL"] = service.url
        return service

    def run_(self, ranks, child):
        processes.run(self, ranks, child)


class TestGradients(Ranks):
    def test_those_of_one_process(self):
        """Uneven, a rank with none, micro-steps, several buckets, sizes that change; and the norms in the reports."""
        for dtype, most in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
            histories = [([7, 0, 9], [3, 1, 9]), ([1, 14, 1], [1, 4, 1]), ([16, 0, 0], [5, 1, 1]), ([5, 5, 6], [5, 5, 6])]
            service = self.serve(lambda reports, _: histories[len(reports) // 2 % 4])

            def child(rank, port):
                job = Job(rank, 3, port, dtype)
                seen, steps, shares, computed, without = [], 0, set(), [], []
                norms = []
                job.plain[0].register_forward_hook(lambda _, args, __: computed.append(len(args[0])) if job.tuner._hook.active else None)
                for x, y, i in job.tuner.steps(job.loader(global_batch=16)):
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    steps += 1
                    if job.tuner.counts:
                        assert computed == [len(x)], computed
                    else:
                        without.append(sum(computed))
                    computed.clear()
                    if job.tuner.synchronised:
                        buckets = job.tuner._hook.round.buckets
                        assert buckets > 1 or not seen, buckets
                        off, union, parts, mine, _ = job.off()
                        assert off <= most, (off, parts)
                        assert len(union) == min(16, LENGTH - len(seen)), union
                        norms.append(mine.square().sum().item())
                        shares.add(tuple(map(len, parts)))
                        seen += union
                        job.step()
                        time.sleep(0.01)  # the service's answers come in
                assert sorted(seen) == list(range(LENGTH)), "each sample once"
                assert sum(without) == 2 * (len(without) > 0), ("a rank without a share computes two samples, once", without)
                assert steps > 14 * (rank == 0) and len(shares) > 3, (steps, shares)
                job.tuner.close()
                if rank == 0:
                    assert job.tuner._exchange._client.counts["refused"] == 0

            self.run_(3, child)
            self.assertGreater(len(service.reports), 10)
            plans = {r["plan"] for r in service.reports}
            self.assertGreater(len(plans), 3)
            for r in service.reports:
                self.assertEqual(sum(x["samples"] for x in r["ranks"] if x), 16 if r["round"] < 12 else 8)
                self.assertGreater(r["wait_seconds"], 0)
                self.assertTrue(all(x is None or not x["samples"] or x["seconds"] > 0 for x in r["ranks"]), r)
                whole = sum(x["samples"] for x in r["ranks"] if x)
                if r["round"] % 4:
                    self.assertNotIn("norm_squared", str(r))
                    continue
                one = [x for x in r["ranks"] if x and x["samples"] == whole]
                if one:  # the rank that has all samples has the round's gradient
                    self.assertAlmostEqual(one[0]["norm_squared"], r["norm_squared"], delta=1e-5 * r["norm_squared"])
                for x in r["ranks"]:
                    self.assertTrue(x is None or not x["samples"] or x["norm_squared"] > 0.2 * r["norm_squared"], r)

    def test_norms_by_hand(self):
        """A model whose gradient is the mean of its inputs. Norms go with one round of four."""
        service = self.serve(lambda *_: ([3, 1], [2, 1]))

        def child(rank, port):
            job = Job(rank, 2, port, net=torch.nn.Linear(8, 1, bias=False).double())
            loader, news = job.loader(global_batch=4, shuffle=False), []
            loader.batch_sampler.adopt = lambda *_: news.append(1)
            for x, _, i in job.tuner.steps(loader):
                job.ddp(x).mean().backward()
                if job.tuner.synchronised:
                    job.step()
                    time.sleep(0.002)
            job.tuner.close()
            assert not news, "sizes that all ranks have were sent again"

        self.run_(2, child)
        x = torch.randn(LENGTH, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        self.assertGreater(len(service.reports), 20)
        for r in service.reports:
            some = x[4 * r["round"] :][:4]
            self.assertEqual([x["micro_steps"] for x in r["ranks"]], [2, 1])
            if r["round"] % 4:
                self.assertNotIn("norm_squared", str(r))
                continue
            for rank, part in enumerate((some[:3], some[3:])):
                self.assertAlmostEqual(r["ranks"][rank]["norm_squared"], float(part.mean(0).square().sum()), places=9)
            self.assertAlmostEqual(r["norm_squared"], float(some.mean(0).square().sum()), places=9)

    def test_without_a_service(self):
        """Uniform shares, no thread; a global batch of 16 by 3 ranks with micro-batches of 4 is 16 (torchft #302)."""

        def child(rank, port):
            job = Job(rank, 3, port)
            seen = []
            for epoch in range(2):
                loader = loader if epoch else job.loader(global_batch=16, micro_batch=4)
                assert len(loader) == 13, len(loader)
                for x, y, i in job.tuner.steps(loader):
                    assert len(x) <= 4
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        off, union, parts, *_ = job.off()
                        assert off <= 1e-12 and (len(union) == 16 or len(seen) % LENGTH == 192), (off, len(union))
                        seen += union
                        job.step()
            assert sorted(seen) == sorted(2 * list(range(LENGTH)))
            import threading

            assert "evenkeel" not in [t.name for t in threading.enumerate()]

        self.run_(3, child)

    def test_outputs_of_other_kinds(self):
        """Micro-steps of unequal size are weighted in whatever the model returns; buffers are broadcast once a round, however many there are."""

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.norm = torch.nn.Linear(8, 3), torch.nn.BatchNorm1d(8, affine=False)

            def forward(self, x):
                self.norm(x)
                return {"logits": [self.inner(x)], "none": None}

        self.serve(lambda reports, _: ([7, 2], [3, 2]) if len(reports) % 3 else ([9, 0], [4, 1]))

        def child(rank, port):
            job = Job(rank, 2, port, net=Net().double(), find_unused_parameters=True)
            job.plain, whole = job.plain.inner, job.plain
            for x, y, i in job.tuner.steps(job.loader(global_batch=9)):
                job.counted(i)
                if len(x) < 2:
                    whole.norm.eval()
                cross_entropy(job.ddp(x)["logits"][0], y).backward()
                whole.norm.train()
                if job.tuner.synchronised:
                    off = job.off()[0]
                    assert off <= 1e-12, off
                    job.step()
                    time.sleep(0.002)

        self.run_(2, child)


    def test_sizes_after_an_uneven_round(self):
        """They hold in the next round, if it has not been drawn yet. After other rounds nobody waits for the service."""
        for workers, late in ((0, 1), (1, 0)):
            service = self.serve(lambda reports, _: ([4, 4],) if not reports else ([6, 2],) if len(reports) < 6 else ([5, 3],))

            def child(rank, port):
                clock, waited = Clock(), []
                job = Job(rank, 2, port, clock=clock)
                real = client.Client.decided
                with mock.patch.object(client.Client, "decided", lambda c, seconds: waited.append(seconds) or real(c, seconds)):
                    for x, y, _ in job.tuner.steps(job.loader(workers, global_batch=8)):
                        clock.now += 100.0 if rank and clock.now < 1 else 1.0
                        cross_entropy(job.ddp(x), y).backward()
                        job.step()
                        time.sleep(0.01)
                assert [round(w, 1) for w in waited] == (rank == 0) * late * [9.9, 9.9], waited
                job.tuner.close()

            self.run_(2, child)
            self.assertEqual([x["samples"] for x in service.reports[1]["ranks"]], [6, 2] if late else [4, 4])
            self.assertEqual([x["samples"] for x in service.reports[6]["ranks"]], [6, 2])

    def test_waiting_must_pay(self):
        """Where sizes stay though rounds are uneven, the ranks soon wait no more than that is worth, until rounds lose more than they did."""
        self.serve(lambda reports, _: ([4, 4],))

        def child(rank, port):
            clock, waited, number = Clock(), [], 0
            job = Job(rank, 2, port, clock=clock)

            def decided(c, seconds):
                assert number in (1, 31) or seconds >= 0.1, seconds  # twice what it takes
                waited.append(number)
                clock.now += 0.05

            with mock.patch.object(client.Client, "decided", decided):
                loader = job.loader(global_batch=8)
                for _ in range(2):
                    for x, y, _ in job.tuner.steps(loader):
                        clock.now += (3.0 if number < 30 else 9.0) if rank else 1.0
                        cross_entropy(job.ddp(x), y).backward()
                        job.step()
                        number += 1
            if rank == 0:
                early, late = [n for n in waited if n < 30], [n for n in waited if n >= 30]
                assert early == list(range(1, 9)) and late == list(range(31, 50)), waited
            job.tuner.close()

        self.run_(2, child)

    def test_no_python_in_threads_of_the_all_reduce(self):
        """One that is at work when the interpreter ends takes the whole process with it, by an abort, at the end of a good job."""
        service = self.serve(lambda reports, _: ([5, 3],))

        def child(rank, port):
            job = Job(rank, 2, port)
            main, found = threading.get_ident(), set()
            real = gradient_hook._square
            futures = mock.patch.object(torch.futures.Future, "then", side_effect=AssertionError("a callback on a future runs wherever that ends"))
            with futures, mock.patch.object(gradient_hook, "_square", lambda t: found.add(threading.get_ident()) or real(t)):
                for x, y, i in job.tuner.steps(job.loader(global_batch=8)):
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        job.step()
            assert found == {main}, found
            job.tuner.close()

        self.run_(2, child)
        self.assertGreater(len(service.reports), 0)


class TestCosts(Ranks):
    def test_shares_of_costs(self):
        """A quarter of the samples costs a hundred times as much as the others. The ranks have work by their shares, in up to four micro-steps, report it
        in samples, and train on each sample once an epoch with the gradient of one process; one rank has nothing. A job resumed in between goes on
        with the rest."""
        service = self.serve(lambda reports, _: ([20, 0, 10], [3, 1, 2]) if len(reports) < 5 else ([28, 0, 2], [3, 1, 2]))
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        kept = os.path.join(temp.name, "state")
        costs = [100.0 if i % 4 == 0 else 1.0 + i / 1000 for i in range(LENGTH)]
        for epochs, path in ((1, "first"), (2, "second")):

            def child(rank, port):
                job = Job(rank, 3, port)
                batches = {"global_batch": 30, "costs": costs, "micro_steps": 4}
                loader, seen, steps, number, done = job.loader(**batches), [], 0, 0, []
                if path == "second":
                    with open(kept) as f:
                        number, seen, state = json.load(f)
                    job.tuner.load_state_dict(state)
                for x, y, i in itertools.chain.from_iterable(job.tuner.steps(loader) for _ in range(epochs)):
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    steps += 1
                    if not job.tuner.synchronised:
                        continue
                    off, union, parts, _, _ = job.off()
                    assert off <= 1e-12, (off, parts)
                    assert len(union) == min(30, LENGTH - len(seen)), union
                    seen += union
                    number += 1
                    everyone = [None] * 3
                    dist.all_gather_object(everyone, steps)
                    done.append((list(map(len, parts)), [sum(costs[k] for k in some) for some in parts], everyone))
                    steps = 0
                    job.step()
                    if len(seen) == LENGTH:
                        assert sorted(seen) == list(range(LENGTH))
                        seen = []
                    if path == "first" and number == 4:
                        if rank == 0:
                            with open(kept, "w") as f:
                                json.dump([number, seen, job.tuner.state_dict()], f)
                        break
                job.tuner.close()
                if path == "second" and rank == 0:
                    with open(kept, "w") as f:
                        json.dump(done, f)

            self.run_(3, child)
        with open(kept) as f:
            done = json.load(f)
        checked = 0
        for r in service.reports[6:]:
            counts, work, steps = done[r["round"]]
            shares = service.old[r["plan"]][0]
            if sum(counts) < 30:
                continue
            told = [r["ranks"][k]["samples"] for k in (0, 2)]
            self.assertTrue(max(steps) <= 4 and not counts[1], (counts, steps))
            self.assertEqual(r["ranks"][1], None)
            for k, share, samples in zip((0, 2), (shares[0], shares[2]), told):
                self.assertLess(abs(samples - min(30 * work[k] / sum(work), share)), 2, (counts, work, told))  # padding aside
                self.assertLessEqual(r["ranks"][k]["micro_steps"], samples)
            self.assertNotEqual(told[1], counts[2])
            checked += 1
        self.assertGreater(checked, 3)

    def test_with_a_deadline_of_the_service(self):
        self.serve(lambda reports, _: ([4, 4], [1, 1], (1.0, [0.1, 0.1])))

        def child(rank, port):
            job = Job(rank, 2, port)
            try:
                job.loader(global_batch=8, costs=[1.0] * LENGTH)
            except Usage as e:
                assert "the service has a deadline" in str(e), e
                return
            raise AssertionError

        self.run_(2, child)

    def test_worked(self):
        costs, parts = numpy.array([10.0, 1, 1, 1, 4]), [[[0]], [[1, 4], [2]], [[3]], []]  # 10, twice 4 and 1, 1, none of 20
        self.assertEqual([worked(costs, parts, r, 3) for r in range(4)], [2, 2, 1, 0])
        self.assertEqual(worked(costs, parts, 0, 1), 1)
        self.assertEqual(worked(numpy.zeros(5), parts, 2, 3), 1)

class TestLocal(Ranks):
    def test_shares_without_a_service(self):
        """The slow rank gets less, samples come once, gradients are exact; memory that runs out bounds micro-batches."""

        def child(rank, port):
            job = Job(rank, 3, port, local=True)
            for epoch in range(2):
                loader = loader if epoch else job.loader(global_batch=20, workers=rank)
                seen = []
                for x, y, i in job.tuner.steps(loader):
                    job.counted(i)
                    time.sleep(0.003 * (1 + 3 * (rank == 2)) * len(x))
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        off, union, parts, *_ = job.off()
                        assert off <= 1e-12, off
                        seen += union
                        job.step()
                assert sorted(seen) == list(range(LENGTH))
            assert len(parts[2]) < 5 < len(parts[0]), list(map(len, parts))
            assert "evenkeel" not in [t.name for t in threading.enumerate()]

        self.run_(3, child)


class TestLoaders(Ranks):
    def test_workers_draw_ahead(self):
        """Ranks whose loaders draw 0, 4 and 8 batches ahead agree on sizes that change every other round; every sample once an epoch."""
        rng = random.Random(1)
        tables = [[rng.randint(0, 4) for _ in range(3)] for _ in range(50)]
        tables = [(t if any(t) else [4, 0, 0],) for t in tables]
        service = self.serve(lambda reports, _: tables[len(reports) // 2 % 50])

        def child(rank, port):
            job = Job(rank, 3, port, net=torch.nn.Linear(8, 3).double())
            loader, seen = job.loader(global_batch=12, workers=(0, 2, 4)[rank]), []
            for epoch in range(2):
                for x, y, i in job.tuner.steps(loader):
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        off, union, *_ = job.off()
                        assert off <= 1e-12, off
                        seen += union
                        job.step()
                        time.sleep(0.002)
                assert sorted(seen) == sorted((epoch + 1) * list(range(LENGTH)))
            job.tuner.close()

        self.run_(3, child)
        self.assertGreater(len({r["plan"] for r in service.reports}), 3)

    def test_texts_without_a_share(self):
        """Batches padded to lengths of their own, and a rank that gets no share after a while: what stands in for its output fits what it is given."""
        service = self.serve(lambda reports, _: ([2, 2],) if len(reports) < 3 else ([4, 0],))

        def child(rank, port):
            job = Job(rank, 2, port, net=torch.nn.Embedding(7, 5).double())
            g = torch.Generator().manual_seed(1)
            texts = [torch.randint(0, 5, (1 + i % 9,), generator=g) for i in range(LENGTH)]

            def collate(some):
                return torch.nn.utils.rnn.pad_sequence([texts[i] for i in some], batch_first=True), torch.tensor(some)

            loader = torch.utils.data.DataLoader(range(LENGTH), batch_sampler=job.tuner.batches(LENGTH, global_batch=4), collate_fn=collate)
            without = 0
            for x, i in job.tuner.steps(loader):
                without += not job.tuner.counts
                y = job.ddp(x)
                cross_entropy(y.flatten(0, 1), x.flatten()).backward()
                if job.tuner.synchronised:
                    job.optimizer.step()
                    job.optimizer.zero_grad()
                time.sleep(0.002)
            assert rank == 0 or without > 10, without
            job.tuner.close()

        self.run_(2, child)

    def test_left_and_entered_again(self):
        """What was drawn ahead when the loop was left is drawn again."""

        def child(rank, port):
            job = Job(rank, 2, port, net=torch.nn.Linear(8, 3).double())
            loader, seen = job.loader(global_batch=12, workers=2 * rank), []
            while len(seen) < LENGTH:
                for x, y, i in job.tuner.steps(loader):
                    job.counted(i)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        off, union, *_ = job.off()
                        assert off <= 1e-12 and len(union) == min(12, LENGTH - len(seen)), (off, len(union))
                        seen += union
                        job.step()
                        if len(seen) % 36 == 0:
                            break
            assert sorted(seen) == list(range(LENGTH))

        self.run_(2, child)

    def test_late_vectors(self):
        """As on CUDA, where what a round tells is read a round later: times are those of its own round."""
        service = self.serve(lambda reports, _: ([[3, 5], [6, 2]][len(reports) // 3 % 2],))

        def child(rank, port):
            clock = Clock()
            job = Job(rank, 2, port, clock=clock, net=torch.nn.Linear(8, 3).double())
            loader, seen, x_ = job.loader(global_batch=8, workers=2 * rank), [], job.tuner._exchange
            x_.late, before = True, [0.0]
            x_._seconds = lambda: before.pop(0)
            for x, y, i in job.tuner.steps(loader):
                job.counted(i)
                before.append((rank + 1) * 0.25 * len(x))
                clock.now += 1
                cross_entropy(job.ddp(x), y).backward()
                assert job.tuner.synchronised
                off, union, *_ = job.off()
                assert off <= 1e-12
                seen += union
                job.step()
                time.sleep(0.004)
            assert sorted(seen) == list(range(LENGTH))
            job.tuner.close()

        self.run_(2, child)
        self.assertGreater(len({r["plan"] for r in service.reports}), 3)
        self.assertGreater(len(service.reports), 15)
        for r in service.reports:
            for k, x in enumerate(r["ranks"]):
                self.assertEqual(x["seconds"], (k + 1) * 0.25 * x["samples"], r)

    def test_resume_with_other_ranks(self):
        folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"evenkeel-tuner-{os.getpid()}")
        self.addCleanup(lambda: os.path.exists(folder) and os.remove(folder))
        for until in ("", "1s"):
            for ranks, rounds in ((3, 5), (2, 4), (1, 1000)):

                def child(rank, port):
                    job = Job(rank, ranks, port, net=torch.nn.Linear(8, 3).double())
                    saved = torch.load(folder) if os.path.exists(folder) else {"seen": []}
                    if "tuner" in saved:
                        job.tuner.load_state_dict(saved["tuner"])
                    seen, done = saved["seen"], 0
                    for x, y, i in job.tuner.steps(job.loader(global_batch=12, deadline=until, workers=2 * (rank == 1))):
                        job.counted(i)
                        cross_entropy(job.ddp(x), y).backward()
                        if job.tuner.synchronised:
                            seen += job.off()[1]
                            job.step()
                            done += 1
                            if done == rounds:
                                break
                    if rank == 0:
                        torch.save({"seen": seen, "tuner": job.tuner.state_dict()}, folder)
                    dist.barrier()

                self.run_(ranks, child)
            self.assertEqual(sorted(torch.load(folder)["seen"]), list(range(LENGTH)))
            os.remove(folder)


class Slow(torch.utils.data.Dataset):
    """Data that take their time, 5 ms a sample on one rank."""

    def __init__(self, data, seconds):
        self.data, self.seconds = data, seconds

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return self.data[i]


class TestInput(Ranks):
    def test_is_told(self):
        """Of the rank whose data are slow, with and without workers; beside what it computes."""
        for workers in (0, 2):
            service = self.serve(lambda *_: ([8, 8], [4, 8]))

            def child(rank, port):
                job = Job(rank, 2, port, net=torch.nn.Linear(8, 3).double())
                job.data = Slow(job.data, 0.02 * rank)
                for x, y, i in job.tuner.steps(job.loader(global_batch=16, workers=workers)):
                    time.sleep(0.001 * len(x))
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        job.step()
                job.tuner.close()

            self.run_(2, child)
            self.assertGreater(len(service.reports), 8)
            fast, slow = ([r["ranks"][k].get("input_seconds", 0) for r in service.reports[2:-2]] for k in (0, 1))
            if workers:  # they read while it computes
                self.assertGreater(statistics.median(slow), 0)
                continue
            self.assertGreater(min(slow), 0.159)
            self.assertLess(statistics.median(fast), statistics.median(slow) / 3)


class TestSeconds(Ranks):
    def test_without_waiting_for_others(self):
        """DDP's forward pass sends rank 0's buffers, and forms the buckets anew in the second round. A rank that does so early waits, but does not compute."""
        service = self.serve(lambda *_: ([20, 20], [20, 20]))

        def child(rank, port):
            job = Job(rank, 2, port, net=torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)).double())
            for x, y, i in job.tuner.steps(job.loader(global_batch=40)):
                mean = job.plain[1].running_mean.clone()
                dist.broadcast(mean, 0)
                assert torch.equal(mean, job.plain[1].running_mean)
                time.sleep(0.3 * (rank == 0))
                cross_entropy(job.ddp(x), y).backward()
                if job.tuner.synchronised:
                    job.step()
            job.tuner.close()

        self.run_(2, child)
        self.assertEqual(len(service.reports), LENGTH // 40)
        for r in service.reports:
            self.assertGreater(r["ranks"][0]["seconds"], 0.29)
            self.assertLess(r["ranks"][1]["seconds"], 0.2)


class TestDeadline(Ranks):
    PACES = (0.01, 0.02, 0.05)

    def test_sizes_are_those_of_the_rule(self):
        """Ranks with clocks of their own, noise included: each micro-step is what deadline.Accumulation says, every sample comes once, gradients are those
        of one process with what was used."""
        service = self.serve(lambda *_: ([20, 10, 4], [4, 4, 2], (0.2, [0.04, 0.08, 0.1])))

        def child(rank, port):
            clock = Clock()
            job = Job(rank, 3, port, clock=clock)
            rng, seen, rounds, sizes, late = random.Random(rank), [], 0, [], 0
            loader = job.loader(global_batch=34, workers=2 * (rank == 1))
            b = job.tuner._work.batches
            node = deadline.Node((4, 4, 2)[rank])

            def rule():
                return deadline.Accumulation(node, deadline.Order((20, 10, 4)[rank], 0.4 if b.last() else 0.2, self.PACES[rank]))

            work = None
            for x, y, i in job.tuner.steps(loader):
                if work is None:
                    work, begun = rule(), clock.now
                job.counted(i)
                if job.tuner.counts:
                    size = min(work.next(clock.now - begun), b.own - work.samples)
                    assert size == len(x), (size, len(x))
                before = clock.now
                clock.now += self.PACES[rank] * len(x) * rng.uniform(0.7, 1.6)
                took = clock.now - before  # to the bit
                cross_entropy(job.ddp(x), y).backward()
                if job.tuner.counts:
                    work.done(len(x), took)
                if job.tuner.synchronised:
                    off, union, parts, *_ = job.off()
                    assert off <= 1e-12, off
                    seen += union
                    sizes.append(tuple(map(len, parts)))
                    job.step()
                    rounds += 1
                    work = None
            assert sorted(seen) == list(range(LENGTH)), collections.Counter(seen).most_common(3)
            assert len(set(sizes)) > 4, sizes
            job.tuner.close()

        self.run_(3, child)
        self.assertGreater(len(service.reports), 5)
        for r in service.reports:
            for x, pace in zip(r["ranks"], self.PACES):
                if x:
                    self.assertTrue(0.7 * pace * x["samples"] <= x["seconds"] <= 1.6 * pace * x["samples"], r)

    def test_slow_at_the_end(self):
        """A rank that becomes 50 times slower as the epoch ends holds the others up for two deadlines and a micro-step; what it has left over makes
        further rounds."""
        service = self.serve(lambda *_: ([15, 15], [4, 4], (0.15, [0.04, 0.04])))

        def child(rank, port):
            clock, seen, ends = Clock(), [], 0
            job = Job(rank, 2, port, clock=clock)
            loader = job.loader(global_batch=30)
            for x, y, i in job.tuner.steps(loader):
                job.counted(i)
                last = job.tuner._work.batches.last()
                clock.now += 0.01 * len(x) * (50 if last and rank == 1 else 1)
                cross_entropy(job.ddp(x), y).backward()
                if job.tuner.synchronised:
                    off, union, *_ = job.off()
                    assert off <= 1e-12, off
                    seen += union
                    ends += last
                    job.step()
            assert sorted(seen) == list(range(LENGTH)), collections.Counter(seen).most_common(3)
            assert ends > 1, ends
            job.tuner.close()

        self.run_(2, child)
        self.assertLessEqual(max(x["seconds"] for r in service.reports for x in r["ranks"] if x), 0.3 + 4 * 0.5 + 1e-9)

    def test_nothing_left_for_a_small_share(self):
        """An epoch's last samples may leave none for a rank with a small share. It is not silent for that: the service would leave it out."""
        for timed in (False, True):
            service = self.serve(lambda *_, timed=timed: (*(([43, 1], [4, 1], (0.43, [0.04, 0.01])) if timed else ([26, 1], [4, 1])),))

            def child(rank, port):
                clock, seen = Clock(), []
                job = Job(rank, 2, port, clock=clock)
                for x, y, i in job.tuner.steps(job.loader(global_batch=44 if timed else 27)):
                    job.counted(i)
                    clock.now += 0.01 * len(x)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        seen += job.off()[1]
                        job.step()
                assert sorted(seen) == list(range(LENGTH))
                job.tuner.close()

            self.run_(2, child)
            own = [r["ranks"][1] for r in service.reports]
            self.assertNotIn(None, own)
            self.assertEqual(min(x["samples"] for x in own), 0, service.reports)

    def test_left_out_and_back(self):
        """Ranks that lose their share in mid-epoch, while they have samples, and get it back: nothing is lost, comes twice or is refused."""
        sizes = ([6, 6, 6], [9, 9, 0], [0, 9, 9], [18, 0, 0], [2, 8, 8])
        service = self.serve(lambda reports, _: (sizes[len(reports) // 2 % 5], [3, 3, 3], (0.065, [0.03, 0.03, 0.03])))

        def child(rank, port):
            clock = Clock()
            job = Job(rank, 3, port, clock=clock, net=torch.nn.Linear(8, 3).double())
            loader, counts = job.loader(global_batch=18, workers=2 * (rank == 1)), set()
            for epoch in range(3):
                seen = []
                for x, y, i in job.tuner.steps(loader):
                    job.counted(i)
                    clock.now += 0.01 * len(x) * (1 + rank)
                    cross_entropy(job.ddp(x), y).backward()
                    if job.tuner.synchronised:
                        off, union, parts, *_ = job.off()
                        assert off <= 1e-12, off
                        seen += union
                        counts.add(tuple(len(p) > 0 for p in parts))
                        job.step()
                        time.sleep(0.004)
                assert sorted(seen) == list(range(LENGTH)), collections.Counter(seen).most_common(3)
            assert len(counts) > 3, counts
            job.tuner.close()
            if rank == 0:
                assert job.tuner._exchange._client.counts["refused"] == 0, job.tuner._exchange._client.problem

        self.run_(3, child)
        self.assertGreater(len({r["plan"] for r in service.reports}), 5)

    def test_a_part_beyond_the_deadline(self):
        """A rank so slow that it does only its one micro-step; one without a share."""
        self.serve(lambda *_: ([20, 10, 0], [4, 4, 1], (0.205, [0.04, 0.08, 0.1])))

        def child(rank, port):
            clock = Clock()
            job = Job(rank, 3, port, clock=clock)
            seen, counts = [], []
            for x, y, i in job.tuner.steps(job.loader(global_batch=30)):
                job.counted(i)
                clock.now += (0.01, 9.0, 1.0)[rank] * len(x)
                cross_entropy(job.ddp(x), y).backward()
                if job.tuner.synchronised:
                    off, union, parts, *_ = job.off()
                    assert off <= 1e-12, off
                    seen += union
                    counts.append(tuple(map(len, parts)))
                    job.step()
            assert sorted(seen) == list(range(LENGTH))
            assert counts[:5] == 5 * [(20, 4, 0)], counts

        self.run_(3, child)


class Hungry(torch.nn.Module):
    """Memory for so many samples at a time, and no more."""

    def __init__(self, room, where):
        super().__init__()
        self.inner, self.room, self.where, self.failed = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)).double(), room, where, 0
        self.register_buffer("constant", torch.ones(3, dtype=torch.float64))  # DDP broadcasts it in the first forward pass of each round

    def forward(self, x):
        def fail(*_):
            if len(x) > self.room:
                self.failed += 1
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

        if self.where == "forward":
            fail()
        x = self.inner[0](x)
        if self.where == "backward":  # the last layer has its gradient already
            x.register_hook(fail)
        return self.inner[1](x) * self.constant


class TestMemory(Ranks):
    def test_halves(self):
        """Rank 1 has room for 3 samples; in forward or backward, waiting for all or with a deadline: same gradients, same collectives, the limit is told."""
        for where in ("forward", "backward"):
            for until in ((), ((0.65, [0.8, 0.8]),)):
                service = self.serve(lambda *_: ([8, 8], [8, 8], *until))

                def child(rank, port):
                    net, clock = Hungry(3 if rank else 100, where), Clock()
                    job = Job(rank, 2, port, net=net, clock=clock)
                    job.plain, seen = net.inner, []
                    for x, y, i in job.tuner.steps(job.loader(global_batch=16)):
                        with job.tuner.halving():
                            cross_entropy(job.ddp(x), y).backward()
                        if not job.tuner._step.failed:
                            job.counted(i)
                            clock.now += 0.1 * len(x)
                        else:
                            job.round = []
                        if job.tuner.synchronised:
                            off, union, *_ = job.off()
                            assert off <= 1e-12, off
                            seen += union
                            job.step()
                            time.sleep(0.002)
                    assert sorted(seen) == list(range(LENGTH))
                    assert net.failed == (0 if not rank else 1 if until else 2), net.failed  # 6, or 8 and 4; then it is known
                    job.tuner.close()

                self.run_(2, child)
                limits = [(x or {}).get("out_of_memory", 0) for r in service.reports for x in r["ranks"]]
                self.assertEqual([n for n in limits if n], [6 if until else 4])

    def test_not_even_one(self):
        def child(rank, port):
            job = Job(rank, 1, port, net=Hungry(0, "forward"))
            try:
                for x, y, _ in job.tuner.steps(job.loader(global_batch=4)):
                    with job.tuner.halving():
                        cross_entropy(job.ddp(x), y).backward()
                    assert not job.tuner.synchronised
            except Usage as e:
                assert "a single sample does not fit" in str(e), e
                return
            raise AssertionError("it fits")

        self.run_(1, child)

    def test_other_errors_pass(self):
        def child(rank, port):
            job = Job(rank, 1, port)
            try:
                for _ in job.tuner.steps(job.loader(global_batch=4)):
                    with job.tuner.halving():
                        raise RuntimeError("shapes")
            except RuntimeError as e:
                assert str(e) == "shapes", e
                return
            raise AssertionError

        self.run_(1, child)


class TestUsage(Ranks):
    def test_mistakes(self):
        def child(rank, port):
            job = Job(rank, 1, port, net=torch.nn.Linear(8, 3).double())

            def says(part, do):
                try:
                    do()
                except Usage as e:
                    assert part in str(e), (part, e)
                    return
                raise AssertionError(part)

            says("give it the wrapped model", lambda: evenkeel.Tuner(job.plain))
            says("has a communication hook already", lambda: evenkeel.Tuner(job.ddp))
            says("call tuner.batches() first", lambda: next(job.tuner.steps([])))
            says("outside of tuner.steps()", lambda: job.tuner.synchronised)
            says("a whole number", lambda: job.tuner.batches(3, global_batch={"start": 8, "least": 4, "most": 16}))
            for wrong in ("soon", "5", 5, None):
                says(f"deadline {wrong!r}: ", lambda: job.tuner.batches(3, 1, deadline=wrong))
            for wrong in ([1, 2], [1, 2, -1], [1, 2, float("nan")]):
                says("give 3 numbers from 0", lambda: job.tuner.batches(3, 1, costs=wrong))
            says("leave them out beside costs", lambda: job.tuner.batches(3, 1, costs=[1, 2, 3], deadline="auto"))
            says("leave them out beside costs", lambda: job.tuner.batches(3, 1, costs=[1, 2, 3], micro_batch=2))
            loader = job.loader(global_batch=8, micro_batch=4)
            says("called already", lambda: job.tuner.batches(3, 1))
            says("as batch_sampler to one DataLoader", lambda: next(job.tuner.steps(torch.utils.data.DataLoader(job.data, batch_size=4))))

            def unasked():
                for x, y, _ in job.tuner.steps(loader):
                    cross_entropy(job.ddp(x), y).backward()

            says("only if tuner.synchronised", unasked)

            def skipped():
                for _ in job.tuner.steps(loader):
                    pass

            says("the model was not called", skipped)
            says("static_graph", lambda: evenkeel.Tuner(DDP(torch.nn.Linear(2, 2), static_graph=True)))

        self.run_(1, child)

    def test_unequal_calls(self):
        def child(rank, port):
            job = Job(rank, 2, port, net=torch.nn.Linear(8, 3).double())
            try:
                job.tuner.batches(LENGTH, 8 + rank, costs=[1.0 + rank] * LENGTH)
            except Usage as e:
                assert "global_batch 9 on rank 1, 8 on rank 0; costs 0x" in str(e), e
                return
            raise AssertionError

        self.run_(2, child)


if __name__ == "__main__":
    unittest.main()
