"""Jobs whose samples are of unequal length and whose ranks are of unequal speed: the tuner deals out batches of one duration."""

import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    import bucket_job
    import evenkeel
    import fake_service
    import processes
    from evenkeel.bucket import Pieces, ScheduleError
except ImportError as e:
    raise unittest.SkipTest(f"needs PyTorch: {e}")

torch.set_num_threads(1)
EVENKEEL = os.environ.get("EVENKEEL")


@unittest.skipUnless(EVENKEEL, "needs the command: set EVENKEEL to its path")
class TestPieces(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.folder = self.temp.name
        self.lengths = [1 + i * i % 40 for i in range(400)]
        with open(self.file("table.csv"), "w") as f:
            f.write("length,batch,seconds,peak_bytes\n10,1,0.11,\n10,8,0.18,\n40,1,0.14,\n40,4,0.26,\n")
        with open(self.file("lengths.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in self.lengths)
        subprocess.run([EVENKEEL, "bucket", "plan", "--lengths", self.file("lengths.txt"), "--table", self.file("table.csv"), "--speeds", "1,2",
                        "--out", self.file("plan.json")], check=True, capture_output=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def pieces(self, data=None, **more):
        data = data or bucket_job.Texts(self.lengths)
        return Pieces(data, self.lengths, self.file("plan.json"), cache=self.folder, collate_fn=bucket_job.collate, **more)

    def test_epochs(self):
        """Every sample is in one piece; weights have the mean 1 and are as the samples and labels; another epoch has other pieces; workers that stay see it."""
        labels = [n % 3 for n in self.lengths]
        pieces = self.pieces(labels=labels)
        loader = DataLoader(pieces, batch_size=1, collate_fn=list, num_workers=2, persistent_workers=True)
        seen = []
        for epoch in range(2):
            n = pieces.begin(epoch)
            got = [p for (p,) in loader]
            self.assertEqual(len(got), n)
            self.assertEqual(sorted(i for p in got for i in p.samples), list(range(400)))
            for p in got:
                self.assertAlmostEqual(p.weight, len(p.samples) * n / 400)
                self.assertAlmostEqual(p.label_weight, sum(labels[i] for i in p.samples) * n / sum(labels))
                self.assertEqual(p.data.tolist(), bucket_job.collate([bucket_job.Texts(self.lengths)[i] for i in p.samples]).tolist())
            seen.append({tuple(p.samples) for p in got})
        self.assertLess(len(seen[0] & seen[1]), len(seen[0]) // 2)

    def test_bad(self):
        with self.assertRaisesRegex(ScheduleError, "labels: 1 of them"):
            self.pieces(labels=[1])
        with self.assertRaisesRegex(ScheduleError, "made for 400 samples"):
            self.pieces(bucket_job.Texts([1]))

    def test_tuned(self):
        """Two ranks that get three pieces and one of every four: every sample comes once an epoch, and gradients are the sums over samples, divided by how
        many a round has in the mean."""
        service = fake_service.Service(lambda reports, _: ([6, 2], [1, 1]))
        self.addCleanup(service.stop)
        processes.run(self, 2, lambda rank, port: self.rank(rank, port, {"EVENKEEL_URL": service.url}))
        with open(self.file("done.json")) as f:
            done = json.load(f)
        for epoch in range(2):
            self.assertEqual(sorted(i for e, _, s in done if e == epoch for i in s), list(range(400)))
        shares = collections.Counter(tuple(n) for _, n, _ in done)
        self.assertGreater(shares[(6, 2)], len(done) // 2)

    def rank(self, rank, port, env):
        os.environ.update(env)
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        torch.manual_seed(1)
        model = bucket_job.Model().double()
        ddp = DistributedDataParallel(model)
        tuner = evenkeel.Tuner(ddp)
        pieces = self.pieces()
        loader = DataLoader(pieces, batch_sampler=tuner.batches(pieces.begin, global_batch=8, micro_batch=1), collate_fn=list, num_workers=2)
        done = []
        for epoch in range(2):
            own = []
            for (piece,) in tuner.steps(loader):
                loss = bucket_job.KINDS["weight"](ddp(piece.data), piece.data)
                (piece.weight * loss).backward()
                if tuner.counts:
                    own.append((piece.weight, piece.samples))
                if not tuner.synchronised:
                    continue
                everyone = [None, None]
                dist.all_gather_object(everyone, own)
                n = sum(map(len, everyone))
                twin = bucket_job.Model().double()
                twin.load_state_dict(model.state_dict())
                total = 0.0
                per = len(pieces) / 400  # pieces a sample
                for _, samples in everyone[0] + everyone[1]:
                    x = bucket_job.collate([pieces.dataset[i] for i in samples])
                    total = total + (twin(x).sum(1) / (x > 0).sum(1)).sum() * per / n
                total.backward()
                off = max((a.grad - b.grad).abs().max().item() for a, b in zip(model.parameters(), twin.parameters()))
                assert off < 1e-12, (epoch, off)
                done.append((epoch, [len(e) for e in everyone], [i for e in everyone for _, s in e for i in s]))
                own = []
                for p in model.parameters():
                    p.grad = None
        if rank == 0:
            with open(self.file("done.json"), "w") as f:
                json.dump(done, f)
        tuner.close()
        dist.barrier()


if __name__ == "__main__":
    unittest.main()
