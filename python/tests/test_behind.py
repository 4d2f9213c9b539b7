"""Restores behind the first forward pass, and how bytes are read and written."""

import collections
import copy
import errno
import fcntl
import os
import struct
import sys
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import checkpoint
from evenkeel.checkpoint import Job
from evenkeel.checkpoint.file import direct_io, layout, transfer


class Reaching(torch.nn.Module):
    """Uses parameters in every way but its submodules' forward passes."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.rnn = torch.nn.LSTM(16, 16, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(16)
        self.unused = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(16)) for _ in range(2)])

    def forward(self, x):
        y = torch.nn.functional.embedding(x, self.head.weight)  # before the module that owns it
        y, _ = self.rnn(self.attention(y, y, y)[0])
        y = self.norm(y.flatten(0, 1)) * self.scale[0] * self.scale[1]
        return self.head(torch.nn.functional.linear(y, self.unused.weight))


def objects(seed, kind=Reaching):
    torch.manual_seed(seed)
    model = kind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)}


def forward(o, step):
    x = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(step))
    o["optimizer"].zero_grad()
    out = o["model"](x)
    return torch.nn.functional.cross_entropy(out, x.flatten()), out


def bits(o):
    out = [p.detach().clone() for p in o["model"].parameters()] + [b.clone() for b in o["model"].buffers()]
    return out + [v.clone() for p in o["model"].parameters() for _, v in sorted(o["optimizer"].state[p].items())]


class Behind(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.ckpt")
        real = checkpoint.Checkpoint._load_array
        self.addCleanup(setattr, checkpoint.Checkpoint, "_load_array", real)
        self.delay, self.read = 0.0, []
        self.parameters, self.moments = threading.Event(), threading.Event()  # may be read
        self.parameters.set()
        self.moments.set()

        def slow(ck, e, want, start, t):
            time.sleep(self.delay)
            if e.kind == checkpoint.BUFFER:
                time.sleep(0.05)
            else:
                (self.moments if e.kind == checkpoint.MOMENT else self.parameters).wait(60)
            real(ck, e, want, start, t)
            self.read.append(e.name)

        checkpoint.Checkpoint._load_array = slow

    def run_(self, o, first, last, **options):
        with Job(self.path) as saved:
            saved.restore(**o)
            for step in range(first, last):
                forward(o, step)[0].backward()
                saved.ready()
                o["optimizer"].step()
                o["scheduler"].step()
                saved.save(step)
        return o

    def test_the_same_run(self):
        want = bits(self.run_(objects(1), 0, 6))
        os.unlink(self.path)
        self.run_(objects(1), 0, 4)
        self.parameters.clear()
        self.moments.clear()
        o = objects(2)
        wrong = o["model"].head.weight.detach().clone()
        with Job(self.path) as saved:
            state = saved.restore(behind=True, **o)  # returns before any parameter is read
            self.assertEqual(state.step, 3)
            self.delay = 0.005
            self.parameters.set()
            for step in range(4, 6):
                forward(o, step)[0].backward()
                if step == 4:  # no moment was read yet
                    self.assertGreater(len(o["model"]._modules["rnn"]._forward_pre_hooks), 0)
                    self.moments.set()
                saved.ready()
                o["optimizer"].step()
                o["scheduler"].step()
                saved.save(step)
        self.assertFalse(torch.equal(wrong, o["model"].head.weight))
        for a, b in zip(want, bits(o)):
            self.assertTrue(torch.equal(a, b))
        for m in o["model"].modules():  # nothing is left on the modules
            self.assertEqual(len(m._forward_pre_hooks), 0)
            self.assertIn(type(m._parameters), (dict, collections.OrderedDict))
        self.assertNotIn("state_dict", vars(o["optimizer"]))

    def test_buffers_are_there(self):
        """DDP broadcasts them before a forward pass, by references of its own."""
        want = self.run_(objects(1), 0, 2)
        o = objects(2)
        with Job(self.path) as saved:
            saved.restore(behind=True, **o)
            self.assertTrue(torch.equal(o["model"].norm.running_mean, want["model"].norm.running_mean))

    def test_layers_are_used_as_they_come(self):
        def deep():
            return torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False) for _ in range(12)))

        o = objects(1, deep)
        with Job(self.path) as saved:
            saved.restore(**o)
            o["model"](torch.ones(1, 16)).sum().backward()
            o["optimizer"].step()
            saved.save(0)
        want = o["model"](torch.ones(1, 16))
        self.delay, seen = 0.02, []
        self.moments.clear()
        o = objects(2, deep)
        for i, layer in enumerate(o["model"]):
            layer.register_forward_hook(lambda *_, i=i: seen.append((i, list(self.read))))
        with Job(self.path) as saved:
            self.read.clear()
            saved.restore(behind=True, **o)
            self.assertTrue(torch.equal(o["model"](torch.ones(1, 16)), want))
            self.moments.set()
        for i, there in seen:
            self.assertIn(f"{i}.weight", there)
        self.assertNotIn("11.weight", seen[0][1])

    def test_who_asks_waits(self):
        self.run_(objects(1), 0, 2)
        want = self.run_(objects(1), 2, 2)
        self.delay = 0.005
        for ask in (
            lambda o: o["model"].state_dict(), lambda o: copy.deepcopy(o["model"]).state_dict(),
            lambda o: dict(o["model"].named_parameters()), lambda o: {"unused.weight": o["model"].unused._parameters.get("weight")},
        ):  # fmt: skip
            o = objects(2)
            with Job(self.path) as saved:
                saved.restore(behind=True, **o)
                got = ask(o)
                self.assertTrue(torch.equal(got["unused.weight"], want["model"].unused.weight))
                self.assertEqual(type(copy.deepcopy(o["model"]).head._parameters).__name__, "OrderedDict")
        o = objects(2)
        with Job(self.path) as saved:
            saved.restore(behind=True, **o)
            state = o["optimizer"].state_dict()["state"]
            self.assertTrue(torch.equal(state[0]["exp_avg_sq"], want["optimizer"].state_dict()["state"][0]["exp_avg_sq"]))
        o = objects(2)  # a step that nobody called ready() before
        with Job(self.path) as saved:
            saved.restore(behind=True, **o)
            forward(o, 2)[0].backward()
            torch.optim.lr_scheduler.StepLR(o["optimizer"], 2)  # made late: it wraps step, and asks whose it is
            o["optimizer"].step()
            forward(want, 2)[0].backward()
            want["optimizer"].step()
            for a, b in zip(bits(want), bits(o)):
                self.assertTrue(torch.equal(a, b))

    def damage(self, name):
        with checkpoint.open_(self.path, read_only=True) as ck:
            slot = max((i for i in range(ck.slots) if ck._slots[i]), key=lambda i: ck._slots[i].sequence)
            at = ck._first + slot * ck._size + ck._index[name].offset + 5
        with open(self.path, "r+b") as f:
            f.seek(at)
            b = f.read(1)
            f.seek(at)
            f.write(bytes((b[0] ^ 1,)))

    def test_damage_is_met_where_it_is_used(self):
        self.run_(objects(1), 0, 4)
        self.damage("unused.weight")
        self.parameters.clear()  # else it may be met before restore returns, which then looks for an older checkpoint itself
        o = objects(2)
        with Job(self.path) as saved:
            self.assertEqual(saved.restore(behind=True, **o).step, 3)
            self.parameters.set()
            with self.assertRaisesRegex(checkpoint.Corrupt, "unused.weight"):
                forward(o, 4)
            with self.assertRaisesRegex(checkpoint.Corrupt, "restore again without behind"):
                saved.ready()
            with self.assertRaisesRegex(checkpoint.Usage, "restore first"):
                saved.save(4, **o)
            self.assertEqual(saved.restore(**o).step, 2)

    def test_damaged_moments_never_reach_a_step(self):
        self.run_(objects(1), 0, 4)
        self.damage("unused.weight.exp_avg")
        o = objects(2)
        with Job(self.path) as saved:
            saved.restore(behind=True, **o)
            forward(o, 4)[0].backward()
            with self.assertRaisesRegex(checkpoint.Corrupt, "unused.weight.exp_avg"):
                o["optimizer"].step()
            with self.assertRaisesRegex(checkpoint.Usage, "restore first"):
                try:
                    saved.ready()
                except checkpoint.Corrupt:
                    saved.save(4)
        with Job(self.path) as saved:  # the newer, damaged one was not given up for good by closing
            self.assertEqual(saved.restore(**objects(2)).step, 2)

    def test_given_up(self):
        self.run_(objects(1), 0, 2)
        self.delay = 0.02
        o = objects(2)
        before = threading.active_count()
        with Job(self.path) as saved:
            saved.restore(behind=True, **o)
            saved.close(wait=False)
            self.assertEqual(threading.active_count(), before)
            forward(o, 0)  # does not hang


class Disk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "x")

    def create(self):
        t = {"w": (torch.ones(100), checkpoint.PARAMETER)}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with checkpoint.create(self.path, t) as ck:
                ck.save(1)
        os.unlink(self.path)
        return [str(w.message) for w in said]

    def test_copy_on_write_is_said(self):
        with mock.patch.object(transfer, "write_in_place", return_value="ZFS"):
            self.assertIn("ZFS, which copies on write", self.create()[0])
        self.assertEqual(self.create(), [])

    def test_a_full_disk_is_asked_first(self):
        real = os.fstatvfs

        def full(fd):
            s = list(real(fd))
            s[4] = 10  # f_bavail
            return os.statvfs_result(s)

        with mock.patch.object(os, "fstatvfs", full), mock.patch.object(os, "posix_fallocate") as reserve:
            with self.assertRaisesRegex(OSError, "40960 are free"):
                self.create()
            reserve.assert_not_called()
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [])


@unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
class Device(unittest.TestCase):
    """Not run yet: no device was at hand."""

    def test_staging(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x")
            m = torch.nn.Linear(2000, 2000, device="cuda")
            o = torch.optim.AdamW(m.parameters())
            with Job(path) as saved:
                saved.restore(model=m, optimizer=o)
                for step in range(5):
                    m(torch.ones(4, 2000, device="cuda")).sum().backward()
                    saved.ready()
                    o.step()
                    saved.save(step)
                    want = m.weight.detach().clone()
            n = torch.nn.Linear(2000, 2000, device="cuda")
            with Job(path) as saved:
                self.assertEqual(saved.restore(behind=True, model=n, optimizer=torch.optim.AdamW(n.parameters())).step, 4)
                self.assertTrue(torch.equal(n.weight, want))
                saved.ready()


class Transfer(unittest.TestCase):
    def file(self, n):
        f = tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.addCleanup(f.close)
        os.truncate(f.fileno(), n)
        return f.fileno()

    def test_both_ways_write_and_read_the_same(self):
        for n in (0, 1, 4095, transfer.PIECE, transfer.PIECE + 1, 6 * direct_io.PIECE + 777):
            data = os.urandom(n)
            for direct in (False, True):
                fd = self.file(n + 8192)
                way = transfer.File(fd, direct)
                self.assertEqual(way.write(data, 4096), layout.hash64(data))
                way.written()
                os.fsync(fd)
                self.assertEqual(os.pread(fd, n, 4096), data)
                self.assertEqual(os.pread(fd, 4096, 4096 + n), bytes(4096))
                into = bytearray(n)
                self.assertEqual(way.read(memoryview(into), 4096), layout.hash64(data))
                self.assertEqual(into, data)
                if n:
                    with self.assertRaises(EOFError):
                        way.read(memoryview(bytearray(n + 8192)), 4096)
                way.close()

    def test_nothing_lies_between_a_dax_file_and_its_writes(self):
        fd = self.file(8192)
        before = transfer.attributes(fd)
        flags = struct.pack("l", struct.unpack("l", fcntl.ioctl(fd, transfer._GETFLAGS, bytes(8)))[0] | 0x40)
        fcntl.ioctl(fd, transfer._SETFLAGS, flags)  # FS_NODUMP_FL, which statx has as STATX_ATTR_NODUMP
        self.assertEqual(transfer.attributes(fd) ^ before, 0x40)
        way = transfer.File(fd, True)
        self.assertIsNotNone(way.direct)
        way.close()
        with mock.patch.object(transfer, "attributes", lambda fd: before | 0x200000):
            self.assertIsNone(transfer.File(fd, True).direct)

    def test_arrays_past_the_cache_land_where_they_should(self):
        """In file order and out of it, small ones in one request with their neighbours; zeros up to the next block, and nothing else."""
        sizes = [1, 4096, direct_io.PART + 5, 0, direct_io.PIECE, 7, 7, direct_io.PIECE - 4096, 3 * direct_io.PIECE + 4097, 12288, 5]
        places, at = [], 8192
        for n in sizes:
            places.append(at)
            at += n + -n % 4096
        for order in (range(len(sizes)), reversed(range(len(sizes))), (2, 3, 9, 10, 0, 1, 8, 4, 5, 6, 7)):
            fd = self.file(at + 4096)
            os.pwrite(fd, b"x" * (at + 4096), 0)
            os.fsync(fd)
            want = bytearray(os.pread(fd, at + 4096, 0))
            way = transfer.File(fd, True)
            self.assertTrue(way.direct, "this file system has no direct input and output")
            for i in order:
                data = os.urandom(sizes[i])
                self.assertEqual(way.write(data, places[i]), layout.hash64(data))
                want[places[i] : places[i] + sizes[i] + -sizes[i] % 4096] = data + bytes(-sizes[i] % 4096)
            way.written()
            self.assertEqual(os.pread(fd, len(want), 0), want)
            for i in order if isinstance(order, tuple) else range(len(sizes)):
                into = bytearray(sizes[i])
                way.read(memoryview(into), places[i])
                self.assertEqual(into, want[places[i] : places[i] + sizes[i]])
            way.close()

    def test_requests_that_fail(self):
        """An error of the disk, and a request that was done in part."""
        fd = self.file(16 << 20)
        os.posix_fallocate(fd, 0, 16 << 20)
        way = transfer.File(fd, True)
        writer, data = way.direct, os.urandom(9 << 20)
        real, answers = writer._came, []
        writer._came = lambda i, got: real(i, answers.pop(0) if answers else got)
        for bad, what in ((-errno.ENOSPC, errno.ENOSPC), (0, errno.EIO), (4096, errno.EIO)):
            way.write(data[: 1 << 20], 0)
            answers[:] = [bad]
            with self.assertRaises(OSError) as e:
                way.written()
            self.assertEqual(e.exception.errno, what)
            way.discard()
        kept, writer.fd = writer.fd, os.open(os.devnull, os.O_RDONLY)
        with self.assertRaises(OSError):  # refused at once
            way.write(data, 0)
        self.assertTrue(all(s.size == 0 for s in writer.slots), "what was refused is waited for")
        way.discard()
        os.close(writer.fd)
        writer.fd = kept
        way.write(data, 4096)
        way.written()
        self.assertEqual(os.pread(fd, len(data), 4096), data)
        way.close()

    def test_a_save_whose_bytes_fail_is_given_up(self):
        t = {"w": (torch.arange(4 << 20), checkpoint.PARAMETER)}
        self.addCleanup(setattr, transfer, "PAST_FROM", transfer.PAST_FROM)
        transfer.PAST_FROM = 0
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            path = os.path.join(folder, "x")
            with checkpoint.create(path, t) as ck:
                ck.save(1)
                ck.wait()
                writer = ck._access.direct
                came = writer._came
                writer._came = lambda i, got: came(i, -errno.EIO)
                t["w"][0].add_(1)
                ck.save(2)
                with self.assertRaises(OSError):
                    ck.wait()
                writer._came = came
                self.assertTrue(all(s.size == 0 for s in writer.slots))
                self.assertLessEqual(len(ck._poisoned), 1)
                t["w"][0].add_(1)
                ck.save(3)
                ck.wait()
            u = {"w": (torch.zeros(4 << 20, dtype=torch.int64), checkpoint.PARAMETER)}
            with checkpoint.open_(path, u) as ck:
                self.assertEqual(ck.restore().step, 3)
                self.assertTrue(torch.equal(t["w"][0], u["w"][0]))

    def test_pace(self):
        now, waits = [0.0], []

        class Hurry(threading.Event):
            def wait(self, t):
                waits.append(t)
                now[0] += t

        hurry = Hurry()
        pace = transfer.Pace(100, 10.0, hurry, lambda: now[0])
        for _ in range(5):
            now[0] += 0.5  # each piece takes half a second, and has one
            pace.moved(10)
        self.assertAlmostEqual(now[0], 5.0)
        hurry.set()
        pace.moved(50)
        self.assertAlmostEqual(now[0], 5.0)
        self.assertEqual(len(waits), 5)

    def test_who_waits_is_not_held_back(self):
        t = {"w": (torch.zeros(8 << 20), checkpoint.PARAMETER)}
        with tempfile.TemporaryDirectory() as folder, checkpoint.create(os.path.join(folder, "x"), t) as ck:
            ck._quiet = [60.0]
            begun = time.monotonic()
            ck.save(1)
            time.sleep(0.3)
            mine = os.getpriority(os.PRIO_PROCESS, os.getpid())
            self.assertEqual(os.getpriority(os.PRIO_PROCESS, ck._thread.native_id), min(19, mine + 10))
            self.assertIn("w", ck._reading, "the save was not spread")  # over the 30 seconds
            ck.ready()
            if os.geteuid() == 0:
                self.assertEqual(os.getpriority(os.PRIO_PROCESS, ck._thread.native_id), mine)
            ck.wait()
            self.assertLess(time.monotonic() - begun, 25)
            self.assertLess(ck._quiet[-1], 25)

    def test_waited_for_before_the_writer_began(self):
        """The writer's thread may see the save when somebody waits already: its priority stays then."""
        t = {"w": (torch.zeros(8), checkpoint.PARAMETER)}
        with tempfile.TemporaryDirectory() as folder, checkpoint.create(os.path.join(folder, "x"), t) as ck:
            lowered, kept = [], transfer.background
            self.addCleanup(setattr, transfer, "background", kept)
            transfer.background = lambda: lowered.append(1)
            put = ck._jobs.put
            held = []
            ck._jobs.put = held.append  # the thread is slow
            ck.save(1)
            ck._wanted(time.monotonic())
            for job_ in held:
                put(job_)
            ck._jobs.put = put
            ck.wait()
            self.assertEqual(lowered, [])
            if os.geteuid() == 0:
                # somebody begins to wait between the look and the change
                transfer.background = lambda: (kept(), ck._hurry.set())
                ck.save(2)
                ck._idle.wait()
                self.assertEqual(os.getpriority(os.PRIO_PROCESS, ck._thread.native_id), os.getpriority(os.PRIO_PROCESS, os.getpid()))

    def test_large_files_are_written_past_the_cache(self):
        t = {"w": (torch.arange(2 << 20), checkpoint.PARAMETER)}
        room = 2 * (18 << 20)  # slots of 16 MiB and a manifest
        self.addCleanup(setattr, transfer, "PAST_FROM", transfer.PAST_FROM)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            for least in (room, room + 1):
                transfer.PAST_FROM = least
                path = os.path.join(folder, str(least))
                with checkpoint.create(path, t, slots=2) as ck:
                    self.assertEqual(ck._access.direct is not None, least == room)
                    ck.save(1)
                u = {"w": (torch.zeros(2 << 20, dtype=torch.int64), checkpoint.PARAMETER)}
                with checkpoint.open_(path, u) as ck:
                    self.assertEqual(ck.restore().step, 1)
                    self.assertTrue(torch.equal(t["w"][0], u["w"][0]))


if __name__ == "__main__":
    unittest.main()
