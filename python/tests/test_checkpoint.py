"""python3 -m unittest discover -s python/tests, from the repository's root; EVENKEEL names the built command."""

import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch

from evenkeel import checkpoint
from evenkeel.checkpoint.file import layout, transfer


def train(model, optimizer, step):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=g)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()


def job(seed):
    """A model, its optimizer after a first step, and the tensors of both by name."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 99)
    named = {n: (b, checkpoint.BUFFER) for n, b in model.named_buffers()}
    for n, p in model.named_parameters():
        named[n] = (p.detach(), checkpoint.PARAMETER)
        named.update({f"{n}.{k}": (v, checkpoint.MOMENT) for k, v in optimizer.state[p].items()})
    return model, optimizer, named


class Hash(unittest.TestCase):
    def test_resized_while_it_is_saved(self):
        """The writer looks at a tensor's memory when it comes to it: another size must not reach the neighbour's place."""
        a, b = torch.ones(2048), torch.full((2048,), 2.0)
        named = {"a": (a, checkpoint.PARAMETER), "b": (b, checkpoint.PARAMETER)}
        with tempfile.TemporaryDirectory() as folder, checkpoint.create(os.path.join(folder, "x"), named) as ck:
            ck.save(1)
            ck.wait()
            real, gate = ck._access.write, threading.Event()
            ck._access.write = lambda *args: (gate.wait(10), real(*args))[1]
            ck.save(2)
            b.set_(torch.ones(9000))
            gate.set()
            with self.assertRaisesRegex(checkpoint.Usage, "'b' was resized"):
                ck.wait()
            b.set_(torch.ones(2048))
            self.assertEqual(ck.restore().step, 1)

    def test_vectors(self):
        """Whole or in pieces, a hash is the one that Go computes."""
        with open(os.path.join(os.path.dirname(__file__), "../../internal/vectors/xxh3.json")) as f:
            vectors = json.load(f)["hashes"]
        for v in vectors:
            data = bytearray((i * 131 + (i >> 8)) & 255 for i in range(v["length"]))
            self.assertEqual(f"{layout.hash64(data):016x}", v["hash"], v["length"])
            h, add = transfer._hashing(memoryview(data))
            for n in (len(data) // 3, len(data) - len(data) // 3):
                add(n)
            self.assertEqual(f"{h.intdigest():016x}", v["hash"], v["length"])

    def test_page_vectors(self):
        """Records, markers, notes and the table of arrays have the bytes that Go gives them."""
        with open(os.path.join(os.path.dirname(__file__), "../../internal/vectors/checkpoint-pages.json")) as f:
            vectors = json.load(f)
        id_, signed = bytes.fromhex(vectors["id"]), lambda body, word: (body + struct.pack("<Q", word)).hex()
        for r in vectors["records"]:
            made = layout.sign(b"EVKLRECD", id_, r["slot"], r["sequence"], r["step"], r["manifest_length"], r["manifest_hash"])
            self.assertEqual(signed(*made), r["bytes"])
        for m in vectors["markers"]:
            self.assertEqual(signed(*layout.marker(id_, m["slot"], layout.Note(0, m["sequence"], m["step"], 0, 0))), m["bytes"])
        for n in vectors["notes"]:
            note = layout.Note(n["generation"], n["sequence"], n["step"], n["all_sequence"], n["all_step"])
            with tempfile.TemporaryFile() as f:
                layout.write_notes(f.fileno(), id_, n["slot"] + 1, note)
                self.assertEqual(os.pread(f.fileno(), 80, (2 + n["slot"]) * layout.BLOCK + n["at"]).hex(), n["bytes"])
        dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
        kinds = {"parameter": checkpoint.PARAMETER, "moment": checkpoint.MOMENT, "buffer": checkpoint.BUFFER}
        named = {a["name"]: (torch.zeros(a["shape"], dtype=dtypes[a["dtype"]]), kinds[a["kind"]]) for a in vectors["arrays"]}
        self.assertEqual(layout.encode_table(layout.describe(named)[0]).hex(), vectors["table"])


class File(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "run.ckpt")

    def test_resume_is_the_same_run(self):
        model, optimizer, named = job(1)
        for step in range(8):
            train(model, optimizer, step)
        want = [p.clone() for p in model.parameters()]

        model, optimizer, named = job(1)
        with checkpoint.create(self.path, named) as ck:
            self.assertIsNone(ck.restore())
            for step in range(5):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step, cursor=step * 16, random=b"abc", scalars={"rate": 0.01})
        model, optimizer, named = job(2)
        with checkpoint.open_(self.path, named) as ck:
            with self.assertRaises(checkpoint.Usage):
                ck.save(9)
            state = ck.restore()
            self.assertEqual(state[:4], (4, 64, b"abc", {"rate": 0.01}))
            for step in range(5, 8):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step)
            ck.wait()
        for a, b in zip(want, model.parameters()):
            self.assertTrue(torch.equal(a, b))

    def test_damage_falls_back(self):
        t = {"w": (torch.zeros(5000), checkpoint.PARAMETER), "half": (torch.zeros(3, dtype=torch.bfloat16), checkpoint.BUFFER)}
        with checkpoint.create(self.path, t) as ck:
            for step in range(1, 5):
                ck.ready()
                t["w"][0].fill_(step)
                ck.save(step)
                ck.wait()
            newest = max((i for i in range(3) if ck._slots[i]), key=lambda i: ck._slots[i].sequence)
            at = ck._first + newest * ck._size + 77
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(b"\xff")
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 3)
            self.assertTrue((t["w"][0] == 3).all())
            self.assertIn("'w'", ck.faults[0])
            with self.assertRaises(checkpoint.Locked):
                checkpoint.open_(self.path, t)
            ck.save(4)
        with open(self.path, "r+b") as f:
            for slot in range(3):
                f.seek((2 + slot) * 4096 + 20)
                f.write(b"\xff\xff")
        with checkpoint.open_(self.path, t) as ck:
            with self.assertRaises(checkpoint.Corrupt):
                ck.restore()
        other = {"v": t["w"], "half": t["half"]}
        with self.assertRaisesRegex(checkpoint.Schema, "'v'"):
            checkpoint.open_(self.path, other)

    def test_small_arrays_share_blocks(self):
        """In any order of writes, past the page cache or through it: each is whole, and damage of one is told by its name."""
        sizes = (9000, 1, 0, 1023, 1024, 3, 500, 7, 700)
        named = {str(n): (torch.full((n,), float(i)), checkpoint.PARAMETER) for i, n in enumerate(sizes)}
        for past in (False, True):
            with mock.patch.object(transfer, "PAST_FROM", 0 if past else 1 << 60), checkpoint.create(self.path, named) as ck:
                self.assertEqual(ck._manifest_at, layout.align(9000 * 4, 4096) + 4096 + 3 * 4096)
                for step in range(1, 6):
                    ck.begin(step)
                    for n in sorted(named, reverse=step % 2 == 0):
                        named[n][0].fill_(float(step * 100 + int(n)))
                        ck.write(n)
                        if n != "7":
                            ck.ready(n)
                    named["7"][0].fill_(-1)  # small ones are copied
                    ck.commit()
                    ck.wait()
                at = {e.name: ck._first + max((r.sequence, i) for i, r in enumerate(ck._slots) if r)[1] * ck._size + e.offset for e in ck.entries}
                self.assertEqual(len({a // 4096 for a in at.values()}), 4)
            for damaged, step in ((None, 5), ("700", 4)):
                if damaged:
                    with open(self.path, "r+b") as f:
                        f.seek(at[damaged] + 5)
                        f.write(b"\x55")
                with checkpoint.open_(self.path, named, read_only=True) as ck:
                    self.assertEqual(ck.restore().step, step)
                    self.assertEqual([f"'{damaged}': checksum differs" in f for f in ck.faults], [True] * bool(damaged))
                for n, (t, _) in named.items():
                    self.assertTrue(t.eq(step * 100 + int(n)).all(), (past, n))
            with open(self.path, "rb") as f:
                self.assertEqual(f.read(12)[8], 3)
            os.unlink(self.path)

    def test_what_a_slot_holds_is_not_written_again(self):
        frozen, trained = torch.zeros(50_000), torch.zeros(3000)
        named, wrote = {"frozen": (frozen, checkpoint.PARAMETER), "trained": (trained, checkpoint.PARAMETER)}, []
        with checkpoint.create(self.path, named) as ck:
            real = ck._access.write
            ck._access.write = lambda data, *more: (wrote.append(len(data)), real(data, *more))[1]
            for step in range(1, 16):
                ck.ready()
                trained.fill_(step)
                if step == 7:
                    frozen.data[3] = 5  # what no version tells, and perhaps no sample
                if step == 10:
                    frozen[7] = 6
                    ck.begin(99)
                    ck.write("frozen", "trained")
                    ck.abort()
                    ck.ready()
                    frozen[7] = 0
                ck.save(step)
                ck.wait()
                if step in (8, 9, 10, 13):
                    with checkpoint.open_(self.path, {n: (torch.zeros_like(t), k) for n, (t, k) in named.items()}, read_only=True) as other:
                        self.assertEqual((other.restore().step, other._named["frozen"][0][3], other._named["trained"][0][0]), (step, 5, step))
        self.assertEqual(wrote.count(200_000), 8)  # once for each slot, then once for each again, then what was aborted, and in its slot once more
        self.assertEqual(wrote.count(12_000), 16)

    @unittest.skipUnless(os.environ.get("EVENKEEL"), "EVENKEEL does not name the command")
    def test_go_reads_and_writes(self):
        model, optimizer, named = job(3)
        with checkpoint.create(self.path, named) as ck:
            for step in range(4):
                ck.ready()
                train(model, optimizer, step)
                ck.save(step, cursor=9, random=b"\0\1", scalars={"inf": float("inf")})
        run = lambda *a: subprocess.run([os.environ["EVENKEEL"], "checkpoint", *a], check=True, capture_output=True, text=True, cwd=self.folder).stdout
        slots = json.loads(run("verify", "run.ckpt", "--json"))["files"][0]["slots"]
        self.assertEqual(sorted(s["step"] for s in slots if s["verified"]), [2, 3])
        run("export", "run.ckpt", "--out", "m.safetensors")
        run("import", "--from", "m.safetensors", "back.ckpt")
        other, optimizer, named = job(4)
        with checkpoint.open_(os.path.join(self.folder, "back.ckpt"), named) as ck:
            self.assertEqual(ck.restore()[:4], (3, 9, b"\0\1", {"inf": float("inf")}))
        for a, b in zip(model.state_dict().values(), other.state_dict().values()):
            self.assertTrue(torch.equal(a, b))


class Misuse(File):
    def small(self, **options):
        t = {"w": (torch.zeros(300_000), checkpoint.PARAMETER), "b": (torch.zeros(3), checkpoint.BUFFER)}
        return t, checkpoint.create(self.path, t, **options)

    test_resume_is_the_same_run = test_damage_falls_back = test_go_reads_and_writes = None
    test_small_arrays_share_blocks = test_what_a_slot_holds_is_not_written_again = None

    def test_calls_out_of_order_raise(self):
        t, ck = self.small()
        ck.begin(1)
        with self.assertRaises(checkpoint.Usage):
            ck.wait()
        ck.abort()
        for bad in ({"random": "text"}, {"cursor": -1}, {"scalars": {"x" * 2000: 1.0}}):
            with self.assertRaises(checkpoint.Usage):
                ck.save(2, **bad)
        with self.assertRaises(checkpoint.Usage):
            ck.save("2")
        ck.save(3)
        ck.wait()
        ck.close()
        for call in (ck.wait, lambda: ck.save(4)):
            with self.assertRaises(checkpoint.Usage):
                call()

    def test_limits(self):
        w = torch.zeros(1)
        for named in ({}, {"": (w, 1)}, {"x" * 1025: (w, 1)}, {"x": (w, 4)}, {"x": (torch.zeros([1] * 17), 1)}, {"x": (torch.zeros(2, 2).to_sparse(), 1)}):
            with self.assertRaises(checkpoint.Usage):
                checkpoint.create(self.path, named)
            self.assertEqual(os.listdir(self.folder), [])

    def test_forgotten_ready(self):
        t, ck = self.small()
        w = t["w"][0]
        ck.save(1)
        ck.wait()
        sync, gate = os.fdatasync, threading.Event()
        os.fdatasync = lambda fd: (gate.wait(10), sync(fd))  # noqa: E731
        try:
            ck.save(2)
            w.add_(1)  # without ready
            gate.set()
            with self.assertRaisesRegex(checkpoint.Usage, "'w' was changed"):
                ck.wait()
        finally:
            os.fdatasync = sync
        for step in (3, 4, 5, 6):
            ck.ready()
            w.add_(1)
            ck.save(step)
        ck.close()
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 6)
            self.assertEqual(w[7], 5)

    def test_unchanged(self):
        t, ck = self.small()
        ck.save(1, cursor=64)
        ck.wait()
        with self.assertWarnsRegex(UserWarning, "no parameter changed between the saves of steps 1 and 2"):
            ck.save(2)
            ck.wait()
        ck.close()
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 2)

    def test_not_contiguous_and_complex(self):
        last, conv = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(6, 4).t()
        t = {"last": (last, 1), "t": (conv, 1), "z": (torch.randn(5, dtype=torch.complex64), 2), "conj": (torch.randn(4, dtype=torch.complex128).conj(), 3), "s": (torch.tensor(3.5), 2)}
        want = {k: v.clone() for k, (v, _) in t.items()}
        with checkpoint.create(self.path, t) as ck:
            ck.save(1)
        for v, _ in t.values():
            v.zero_()
        with checkpoint.open_(self.path, t) as ck:
            ck.restore()
        for k, (v, _) in t.items():
            self.assertTrue(torch.equal(v, want[k]), k)
        self.assertEqual(last.stride(), want["last"].to(memory_format=torch.channels_last).stride())

    def test_two_creators(self):
        named = {"w": (torch.zeros(3_000_000), 1)}  # made here: torch's threads do not outlive a fork

        def child(i):
            try:
                with checkpoint.create(self.path, named) as ck:
                    ck.restore()
                    ck.save(i)
                    ck.wait()
                    os._exit(0)
            except (checkpoint.Locked, FileExistsError):
                os._exit(3)
            except BaseException:
                os._exit(4)

        for _ in range(3):
            pids = []
            for i in range(2):
                pid = os.fork()
                if pid == 0:
                    child(i)
                pids.append(pid)
            codes = sorted(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids)
            self.assertIn(codes, ([0, 0], [0, 3]))
            os.unlink(self.path)

    def test_a_forked_worker_does_not_keep_the_lock(self):
        """A job that is killed is started again at once, though a loader's worker of it still lives."""
        path = os.path.join(self.folder, "run.ckpt")
        named = {"w": (torch.zeros(8), checkpoint.PARAMETER)}
        r, w = os.pipe()
        killed = os.fork()
        if killed == 0:
            try:
                ck = checkpoint.create(path, named)
                ck.save(1)
                ck.wait()
                worker = os.fork()
                os.write(w, f"{worker or 'worker'} {ck._fd is None}\n".encode())
                time.sleep(30)
            finally:
                os._exit(0)
        said = b""
        while said.count(b"\n") < 2:
            said += os.read(r, 100)
        lines = dict(line.split() for line in said.decode().splitlines())
        self.assertEqual(lines.pop("worker"), "True", "the worker has the file open")
        (worker, open_) = lines.popitem()
        self.assertEqual(open_, "False")
        os.kill(killed, 9)
        os.waitpid(killed, 0)
        try:
            with checkpoint.open_(path, named) as ck:
                self.assertEqual(ck.restore().step, 1)
            os.kill(int(worker), 0)  # it lives
        finally:
            os.kill(int(worker), 9)

    def test_room_for_the_state(self):
        t, ck = self.small(state_bytes=100)
        room = ck._manifest_size - 64 - 8 * len(t)
        with self.assertRaisesRegex(checkpoint.Usage, "more state_bytes"):
            ck.save(1, random=bytes(room + 1))
        ck.save(2, random=bytes(range(256)) * (room // 256) + bytes(room % 256))  # to the last byte
        ck.close()
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(len(ck.restore().random), room)

    def test_creation_is_durable_before_it_has_its_name(self):
        """The file is flushed between its last write and its name, and the folder after it: only a loss of power would show it."""
        seen, real = [], {f: getattr(os, f) for f in ("pwrite", "fsync", "link")}

        def watched(name):
            def call(*a):
                out = real[name](*a)
                seen.append(name + (" folder" if name == "fsync" and stat.S_ISDIR(os.fstat(a[0]).st_mode) else ""))
                return out

            return call

        for name in real:
            setattr(os, name, watched(name))
        try:
            self.small()[1].close()
        finally:
            for name, f in real.items():
                setattr(os, name, f)
        self.assertEqual(seen[-4:], ["pwrite", "fsync", "link", "fsync folder"])

    def test_a_slot_whose_flush_failed_is_not_used_again(self):
        t, ck = self.small()
        sync, write, at = os.fdatasync, os.pwrite, []
        try:
            ck.save(1)
            ck.wait()
            left = [0]

            def fails(fd):
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(5, "broken")
                sync(fd)

            os.fdatasync = fails
            ck.ready()
            t["w"][0].fill_(2)
            ck.save(2)
            with self.assertRaises(OSError):
                ck.wait()
            lost = ck._open is None and next(iter(ck._poisoned))
            os.pwrite = lambda fd, data, where: (at.append(where), write(fd, data, where))[1]
            for step in range(3, 8):
                ck.ready()
                t["w"][0].fill_(step)
                ck.save(step)
            ck.wait()
        finally:
            os.fdatasync, os.pwrite = sync, write
        first = ck._first + lost * ck._size
        self.assertFalse([where for where in at if first <= where < first + ck._size])
        ck.close()
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 7)

    def test_a_rank_keeps_what_all_have(self):
        t, ck = self.small(rank=0, ranks=2, id=bytes(16))
        for step in range(3):
            ck.ready()
            t["w"][0].fill_(step + 1)
            ck.save(step)
        with self.assertRaisesRegex(checkpoint.Usage, "no slot is free"):  # nobody said that the other rank has any of them
            ck.save(3)
        ck.acknowledge(1)
        ck.save(3)
        with self.assertRaisesRegex(checkpoint.Usage, "no slot is free"):
            ck.save(4)
        ck.wait()
        self.assertEqual(sorted(r.step for r in ck._slots), [1, 2, 3])
        ck.close()

    def test_a_lost_record_is_missed(self):
        t, ck = self.small()
        for step in range(1, 5):
            ck.ready()
            t["w"][0].fill_(step)
            with open(self.path, "rb") as f:
                before = f.read(5 * 4096)
            ck.save(step)
            ck.wait()
        slot = max((i for i in range(3) if ck._slots[i]), key=lambda i: ck._slots[i].sequence)
        ck.close()
        with open(self.path, "r+b") as f:  # the writes of the newest save never reached its record's page
            f.seek((2 + slot) * 4096)
            f.write(before[(2 + slot) * 4096 :][:4096])
        with checkpoint.open_(self.path, t) as ck:
            self.assertEqual(ck.restore().step, 3)
            self.assertRegex(ck.faults[0], "the save of step 4 .* was reported, and its record is gone")

    def test_storage_fails(self):
        """Each write or flush fails in turn: what was told to be durable is there, and the failure is told."""
        for call in ("pwrite", "fdatasync"):
            for after in range(14):
                t, ck = self.small()
                real, left, told, acked = getattr(os, call), [after], 0, 0

                def fails(*a):
                    left[0] -= 1
                    if left[0] == -1:
                        raise OSError(5, "broken")
                    return real(*a)

                setattr(os, call, fails)
                try:
                    for step in range(1, 6):
                        try:
                            ck.ready()
                            t["w"][0].fill_(step)
                            ck.save(step)
                            ck.wait()
                            acked = step
                        except OSError:
                            told += 1
                finally:
                    setattr(os, call, real)
                ck.close()
                self.assertEqual(told, left[0] < 0, (call, after))
                with checkpoint.open_(self.path, t, read_only=True) as ck:
                    step = ck.restore().step
                    self.assertGreaterEqual(step, acked)
                    self.assertEqual(t["w"][0][9], step)
                os.unlink(self.path)


if __name__ == "__main__":
    unittest.main()
