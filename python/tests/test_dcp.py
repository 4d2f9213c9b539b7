"""torch.distributed.checkpoint into Evenkeel's files."""

import contextlib
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import ranks
import ranks_dcp
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import evenkeel.dcp
from evenkeel import checkpoint
from evenkeel.checkpoint import Job, interchange, load_parameters
from evenkeel.checkpoint.file import layout
from evenkeel.dcp import Reader, Writer, newest


class Case(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else self._temporary()
        self.path = os.path.join(self.folder, "run.ckpt")

    def _temporary(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def save(self, state, **how):
        dcp.save(state, storage_writer=Writer(self.path, **how))

    def load(self, state, **how):
        dcp.load(state, storage_reader=Reader(self.path, **how))
        return state

    @contextlib.contextmanager
    def refused(self, says):
        with self.assertRaisesRegex(BaseException, says):  # CheckpointException is no Exception
            yield

    def forget(self):
        """What another process would not know."""
        for rank in evenkeel.dcp._ranks.values():
            if rank.ck is not None:
                rank.ck.close()
        evenkeel.dcp._ranks.clear()


class TestRanks(Case):
    def test_every_mesh_loads_what_another_saved(self):
        log = os.path.join(self.folder, "log")
        codes = ranks.join(ranks.spawn(4, ranks_dcp.meshes, self.folder, log), 150)
        self.assertEqual(codes, [0] * 4)
        seen = [tuple(json.loads(line)) for line in open(log)]
        every = {(a, b, r, True) for a in ranks_dcp.MESHES for b, v in ranks_dcp.MESHES.items() for r in torch.tensor(v).flatten().tolist()}
        self.assertEqual(set(seen), every)

    def test_killed(self):
        seen = ranks_dcp.kill(6, 3, 5)
        self.assertTrue(seen["loads"] > 1 and seen["durable steps"] > 6, seen)

    def test_a_rank_that_fails(self):
        log = os.path.join(self.folder, "log")
        self.assertEqual(ranks.join(ranks.spawn(2, failing, self.path, log), 100), [0, 0])
        self.assertEqual(sorted(open(log).read().split()), sorted(["ok"] * 2))


def failing(rank, path, log):
    """Rank 1's write fails in saves 2 to 6, and rank 0's in 8 to 10, of step 7 again: then nobody has the save, and there is room for the next."""
    logging.disable(logging.WARNING)
    real, writer, good = layout.write_at, Writer(path), None
    from evenkeel.checkpoint.file import transfer

    def broken(fd, data, at):
        raise OSError(28, "No space left on device")

    for save in range(1, 14):
        step = 7 if 8 <= save <= 10 else save
        state = {"a": torch.full((4000,), float(save)), "b": torch.full((4000,), -float(save)), "n": save}
        bad = save in (2, 3, 4, 5, 6) and rank == 1 or save in (8, 9, 10) and rank == 0
        transfer.write_at = broken if bad else real
        try:
            dcp.save(state, storage_writer=writer, checkpoint_id=f"step-{step}")
            assert save not in (2, 3, 4, 5, 6, 8, 9, 10), save
            good = save
        except dcp.CheckpointException as e:
            assert save in (2, 3, 4, 5, 6, 8, 9, 10), e
            assert "run.ckpt.g1." in str(e) and f"step {step}: No space left" in str(e), e
            if bad:  # the slot may be damaged by a real disk; here it is not
                evenkeel.dcp._ranks[path, os.getpid()].ck._poisoned.clear()
        out = {"a": torch.zeros(4000), "b": torch.zeros(4000), "n": 0}
        dcp.load(out, storage_reader=Reader(path))
        assert out["n"] == good and out["a"].eq(good).all() and out["b"].eq(-good).all(), (save, good, out)
        torch.distributed.barrier()
    plans = [dcp.LoadPlan([], (1, 7, 3)), dcp.LoadPlan([], (1, 8, 3))]
    try:
        Reader(path).prepare_global_plan(plans)
        raise AssertionError("ranks that found different steps")
    except checkpoint.Usage:
        pass
    with open(log, "a") as f:
        f.write("ok\n")


class TestValues(Case):
    def test_every_kind(self):
        torch.manual_seed(1)
        big = torch.randn(60, 50)
        state = {
            "complex": torch.randn(50, 50, dtype=torch.complex64), "float8": big.to(torch.float8_e4m3fn), "float8small": big[0].to(torch.float8_e5m2),
            "uint16": torch.arange(5000).to(torch.uint16), "uint64": torch.arange(9).to(torch.uint64), "bool": big > 0, "half": big.half(), "bfloat16": big.bfloat16(),
            "complex32": big.to(torch.complex32), "empty": torch.empty(0, 7), "scalar": torch.tensor(3), "transposed": big.t(), "conj": torch.randn(50, 50, dtype=torch.complex128).conj(),
            "expanded": torch.ones(1, 60).expand(50, 60), "part": big[::2, 1::3], "parameter": torch.nn.Parameter(big), "none": None, "text": "ä", "nan": torch.full((2000,), float("nan")),
            "nested": [1, {"x": torch.ones(3)}, (2.5, "y")], "channels": torch.randn(4, 8, 9, 9).to(memory_format=torch.channels_last),
        }  # fmt: skip
        self.save(state)
        out = {k: torch.zeros_like(v) if torch.is_tensor(v) else None for k, v in state.items()}
        out["nested"] = [0, {"x": torch.zeros(3)}, (0, "")]
        self.load(out)
        for k, v in state.items():
            if torch.is_tensor(v):
                self.assertEqual(evenkeel.dcp._bytes(out[k]), evenkeel.dcp._bytes(v), k)
        self.assertEqual((out["text"], out["none"], str(out["nested"])), ("ä", None, str(state["nested"])))

    def test_refused(self):
        with self.refused("sparse_coo cannot be stored"):
            self.save({"s": torch.eye(3).to_sparse()})
        with self.refused("enable_plan_caching is not supported"):
            dcp.save({"a": 1}, storage_writer=Writer(self.path), planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        with self.refused("use_collectives=False is not supported"):
            dcp.save({"a": 1}, storage_writer=Writer(self.path), use_collectives=False)
        with self.refused("must end in the step"):
            dcp.save({"a": 1}, storage_writer=Writer(self.path), checkpoint_id="last")

    def test_steps(self):
        self.assertIsNone(newest(self.path))
        with self.refused("nothing was saved.*run.ckpt"):
            self.load({"n": 0})
        for given in ({}, {"step": 5}, {}):
            self.save({"n": given.get("step"), "t": torch.ones(5000)}, **given)
        self.assertEqual(newest(self.path), 6)
        self.assertEqual(self.load({"n": 0, "t": torch.zeros(5000)}, step=5)["n"], 5)
        dcp.save({"n": 9, "t": torch.ones(5000)}, storage_writer=Writer(self.path), checkpoint_id="folder/step-00009")
        out = {"n": 0}
        dcp.load(out, storage_reader=Reader(self.path), checkpoint_id="folder/step-6")
        self.assertEqual((newest(self.path), out["n"]), (9, None))
        with self.refused("no checkpoint of step 1 is whole: it was not saved, or has been overwritten"):
            self.load({"n": 0}, step=1)
        self.save({"n": "again", "t": torch.ones(5000)}, step=5)  # of a run that went back
        self.assertEqual((newest(self.path), self.load({"n": 0}, step=5)["n"]), (5, "again"))

    def test_many_small_tensors(self):
        state = {str(i): torch.full((4,), float(i)) for i in range(3000)}
        self.save(state)
        out = self.load({k: torch.zeros(4) for k in state})
        self.assertTrue(all(torch.equal(out[k], state[k]) for k in state))
        self.assertLess(os.path.getsize(self.path + ".g1.0of1"), 16 << 20)  # not a block for each


class TestFiles(Case):
    STATE = {"t": torch.arange(5000.0), "n": 3}

    def out(self, **how):
        return self.load({"t": torch.zeros(5000), "n": 0}, **how)

    def test_another_layout_gets_new_files(self):
        self.save(self.STATE)
        self.forget()
        self.save(self.STATE)
        self.assertEqual(os.listdir(self.folder), ["run.ckpt.g1.0of1"])
        self.save({**self.STATE, "more": torch.ones(2000)})
        self.assertEqual((os.listdir(self.folder), newest(self.path)), (["run.ckpt.g2.0of1"], 3))
        self.save({**self.STATE, "more": "x" * 3_000_000}, step=8)
        with self.refused("step 9: .* bytes of small tensors and other values have outgrown the file; the next save makes larger files"):
            self.save({**self.STATE, "more": "x" * 9_000_000}, step=9)
        self.assertEqual(newest(self.path), 8)
        self.save({**self.STATE, "more": "x" * 9_000_000}, step=9)
        self.assertEqual((os.listdir(self.folder), newest(self.path)), (["run.ckpt.g4.0of1"], 9))

    def test_a_save_that_fails_before_the_new_files_have_a_checkpoint(self):
        self.save(self.STATE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            with self.refused("run.ckpt.g2.0of1: step 2: File too large"):
                self.save({"t": torch.zeros(9 << 20)})
            self.assertEqual(newest(self.path), 1)
            self.assertEqual(sorted(os.listdir(self.folder)), ["run.ckpt.g1.0of1", "run.ckpt.g2.starting"])
            self.save({**self.STATE, "u": torch.zeros(2000)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (-1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        self.assertEqual((self.out()["n"], newest(self.path)), (3, 2))

    def test_a_job_of_the_house_is_left_alone(self):
        module = torch.nn.Linear(3, 3)
        with Job(self.path) as job:
            job.restore(model=module)
            job.save(1)
        with self.refused("is a file of evenkeel.checkpoint.Job"):
            self.save(self.STATE)
        with Job(self.path) as job:
            self.assertEqual(job.restore(model=module).step, 1)

    def test_other_readers_refuse(self):
        self.save(self.STATE)
        file, out = self.path + ".g1.0of1", os.path.join(self.folder, "out")
        for read in (lambda: interchange.to_safetensors(file, out), lambda: load_parameters(file, torch.nn.Linear(1, 1), strict=False), lambda: Job(self.path).restore(model=torch.nn.Linear(1, 1))):
            with self.refused("g1.0of1: step 1 was saved by torch.distributed.checkpoint: load it with evenkeel.dcp.Reader"):
                read()
        if os.environ.get("EVENKEEL"):
            self.forget()
            command = lambda *args: subprocess.run([os.environ["EVENKEEL"], "checkpoint", *args], capture_output=True, text=True)  # noqa: E731
            self.assertEqual(command("verify", file).returncode, 0)
            self.assertIn("step 1 was saved by torch.distributed.checkpoint", command("export", file, "--out", out).stderr)
            for name, more, said in (("same", {}, "the same in both runs, and all else"), ("other", {"n": 4}, "what is no array (generators, plain values, small tensors of DCP) differs, rank 0")):
                path = os.path.join(self.folder, name)
                dcp.save({**self.STATE, **more}, storage_writer=Writer(path, step=1))
                got = command("verify", file, "--against", path + ".g1.0of1")
                self.assertIn(said, got.stdout)
                self.assertEqual(got.returncode, bool(more))
        self.assertFalse(os.path.lexists(out))

    def test_two_processes(self):
        self.save(self.STATE)
        said = os.path.join(self.folder, "said")
        ranks.join(ranks.spawn(1, second, self.path, said), 60)
        with open(said) as f:
            self.assertIn("Locked('" + self.path + ".g1.0of1: another process has it open for writing", f.read())
        self.assertEqual(self.out()["n"], 3)

    def test_damage(self):
        for step in (1, 2):
            self.save({**self.STATE, "n": step}, step=step)
        self.forget()
        file = self.path + ".g1.0of1"
        whole = open(file, "rb").read()
        with layout_of(file) as ck:
            older, array = (ck._first + ck._size * slot for _, slot in sorted((r.sequence, slot) for slot, r in enumerate(ck._slots) if r))
            manifest = array + ck._manifest_at
        self.write(file, whole, array + 777)
        with self.refused(r"run.ckpt: step 2: tensor 't': checksum differs; step 1 is whole: load it with Reader\('.*run.ckpt', step=1\)"):
            self.out()
        self.assertEqual(self.out(step=1)["n"], 1)
        self.write(file, open(file, "rb").read(), older + 99)
        with self.refused("run.ckpt: step 2: tensor 't': checksum differs; no other step verifies"):
            self.out()
        self.write(file, whole, manifest + 200)
        with self.assertWarnsRegex(UserWarning, "step 1 is whole, but there is damage: .*step 2: manifest: checksum differs"):
            self.assertEqual(self.out()["n"], 1)
        with open(file, "wb") as f:
            f.write(whole[: manifest - 9000])
        with self.assertWarnsRegex(UserWarning, "step 1 is whole, but there is damage: .* the file ends at byte .* within the slot"):
            self.assertEqual(self.out()["n"], 1)
        for size in (100, 5000, 3 * 4096):
            with open(file, "wb") as f:
                f.write(whole[:size])
            with self.refused("run.ckpt"):
                self.out()
        with open(file, "wb") as f:
            f.write(b"torch" * 2000)
        with self.refused("run.ckpt.g1.0of1: not a checkpoint file"):
            self.save(self.STATE)
        self.write(file, whole, 0)
        os.rename(file, file.replace("0of1", "0of2"))
        with self.refused("run.ckpt: no checkpoint is whole: .*g1.1of2 is missing; bring it back, or move the others away"):
            newest(self.path)

    def test_killed_in_the_first_save(self):
        """Nothing was durable on all ranks: the job starts anew. But what was, and is lost, is an error."""
        os.mkdir(os.path.join(self.folder, "job"))
        path = os.path.join(self.folder, "job", "run.ckpt")
        self.assertEqual(ranks.join(ranks.spawn(2, copied, path), 60), [0, 0])
        self.assertEqual(sorted(os.listdir(os.path.dirname(path))), ["run.ckpt.g1.0of2", "run.ckpt.g1.1of2"])
        for when, step in (("before", None), ("empty", None), ("done", 1)):
            folder = os.path.join(self.folder, "job." + when)
            self.path = os.path.join(folder, "run.ckpt")
            self.assertIn("run.ckpt.g1.1of2", os.listdir(folder))
            self.assertEqual(newest(self.path), step, when)
            if when != "done":
                self.save(self.STATE)
                self.assertEqual((os.listdir(folder), newest(self.path), self.out()["n"]), (["run.ckpt.g2.0of1"], 1, 3))
        with open(self.path + ".g1.0of2", "r+b") as f:
            f.seek(2 * layout.BLOCK)
            f.write(bytes(3 * layout.BLOCK))
        with self.refused("no checkpoint is whole: .*0of2: slot 0: commit record: not of this file"):
            newest(self.path)
        os.unlink(path + ".g1.0of2")
        with self.refused("run.ckpt.g1.0of2 is missing; bring it back"):
            newest(path)

    def test_files_of_two_jobs(self):
        other = self.path + "2"
        self.assertEqual(ranks.join(ranks.spawn(2, saved, self.path, other), 60), [0, 0])
        os.replace(other + ".g1.1of2", self.path + ".g1.1of2")
        for do in (self.out, lambda: newest(self.path)):
            with self.refused("are not the files of one set"):
                do()

    def write(self, file, whole, at):
        """Writes a file with one other byte."""
        with open(file, "wb") as f:
            f.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


def saved(rank, *paths):
    logging.disable(logging.WARNING)
    for path in paths:
        dcp.save({"t": torch.arange(5000.0), "u": torch.ones(5000), "n": 3}, storage_writer=Writer(path))


def second(rank, path, said):
    evenkeel.dcp._ranks.clear()
    try:
        saved(rank, path)
    except dcp.CheckpointException as e:
        with open(said, "w") as f:
            f.write(repr(list(e.failures.values())))


def copied(rank, path):
    """Copies the folder at moments of the first save at which a kill leaves rank 0 behind rank 1."""
    folder, create, commit = os.path.dirname(path), evenkeel.dcp.tensor_file.create, Writer._commit
    keep = lambda name: shutil.copytree(folder, folder + name)  # noqa: E731

    def late(*args):
        while True:
            with contextlib.suppress(FileNotFoundError), layout_of(path + ".g1.1of2") as ck:
                if any(ck._slots):
                    break
        keep(".before")
        ck = create(*args)
        keep(".empty")
        return ck

    def then(writer, **more):
        commit(writer, **more)
        keep(".done")

    if rank == 0:
        evenkeel.dcp.tensor_file.create, Writer._commit = late, then
    saved(rank, path)


@contextlib.contextmanager
def layout_of(file):
    from evenkeel.checkpoint import open_

    with open_(file, read_only=True) as ck:
        yield ck


class TestAsync(Case):
    def job(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 40))
        return model, torch.optim.AdamW(model.parameters(), 1e-2)

    def step(self, model, optimizer):
        optimizer.zero_grad()
        model(torch.randn(8, 200)).square().sum().backward()
        optimizer.step()

    def begin(self, job, **how):
        m, o = get_state_dict(*job)
        return dcp.async_save({"model": m, "optimizer": o}, storage_writer=Writer(self.path, **how))

    def check(self, before):
        m, o = get_state_dict(*self.job())
        out = self.load({"model": m, "optimizer": o})
        self.assertTrue(ranks_dcp.same(out, before))

    def copy(self, job):
        m, o = get_state_dict(*job)
        return ranks_dcp.full({"model": {k: v.clone() for k, v in m.items()}, "optimizer": __import__("copy").deepcopy(o)})

    def test_the_state_is_that_of_the_call(self):
        job = self.job()
        for i in range(6):
            self.step(*job)
            before, future = self.copy(job), self.begin(job, copy=i % 2 == 1)
            for _ in range(i % 3):
                self.step(*job)
            future.result()
            self.check(before)

    def test_only_what_an_optimizer_changes_is_not_copied(self):
        job = self.job()
        writer = Writer(self.path)
        self.step(*job)
        m, o = get_state_dict(*job)
        staged = writer.stage({"model": m, "optimizer": o, "list": [m["0.weight"], m["0.weight"].t()]})
        shared = [k for k, v in staged["model"].items() if v.data_ptr() == m[k].data_ptr()]
        self.assertEqual(shared, ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"])
        self.assertNotEqual(staged["list"][1].data_ptr(), m["0.weight"].data_ptr())
        before = staged["model"]["0.weight"].clone()
        self.step(*job)  # no thread has begun to write
        self.assertTrue(torch.equal(staged["model"]["0.weight"], before))
        self.assertFalse(torch.equal(m["0.weight"], before))

    def test_a_change_by_something_else_fails_the_save(self):
        job = self.job()
        self.step(*job)
        self.begin(job).result()
        self.step(*job)
        real, go = evenkeel.dcp.Writer.finish, []

        def late(writer, metadata, results):
            go[0]()
            real(writer, metadata, results)

        for change in (lambda: job[0][0].weight.data.mul_(2), lambda: torch.nn.init.zeros_(job[0][2].weight)):
            go[:] = [change]
            evenkeel.dcp.Writer.finish = late
            try:
                with self.refused("step 2: tensor 'model.[02].weight' was changed while it was being saved"):
                    self.begin(job).result()
            finally:
                evenkeel.dcp.Writer.finish = real
            self.assertEqual(newest(self.path), 1)
        self.begin(job).result()
        self.assertEqual(newest(self.path), 2)

    def test_two_saves_at_once(self):
        real = evenkeel.dcp.Writer.finish

        def between(writer, metadata, results):
            evenkeel.dcp.Writer.finish = real
            self.save({"t": torch.ones(5000)})
            real(writer, metadata, results)

        evenkeel.dcp.Writer.finish = between
        with self.refused("another save of this path began before this one ended"):
            self.save({"t": torch.zeros(5000)})
        self.assertEqual((newest(self.path), self.load({"t": torch.zeros(5000)})["t"].sum()), (1, 5000))

    def test_memory_of_the_last_save_is_used_again(self):
        writer = Writer(self.path)
        for shape in ((30, 40), (30, 40), (40,), (1,), (30, 40)):
            t = torch.randn(shape)
            state = {"t": t.clone(), "n": [1, 2]}
            future = dcp.async_save(state, storage_writer=writer)
            state["t"].zero_()
            state["n"].append(3)
            future.result()
            self.assertTrue(torch.equal(self.load({"t": torch.zeros(shape), "n": [0, 0]})["t"], t))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
