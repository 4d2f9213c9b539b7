"""Jobs of several gloo ranks, forked from one process that has imported torch. Run as

    ranks.py kill TRIALS RANKS SEED       SIGKILLs a random rank or all at random moments, and judges every restore
    ranks.py reshard FOLDER FROM TO ...   runs a job on each of these numbers of ranks in turn, each from the one before
    ranks.py refuse FOLDER                what is refused
    ranks.py guide FOLDER CALL            the guide's script that has this call on two ranks, killed and started again until it ends

With RANKS_PAST=1 small files too are written past the page cache. It prints a summary as JSON; docs/results/checkpoint.md has runs of it.
"""

import collections
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from evenkeel import checkpoint
from evenkeel.checkpoint import Job
from evenkeel.checkpoint.file import layout, transfer

STEPS = 40


def spawn(ranks, target, *args):
    """Forks the ranks of a job; target(rank, *args). Gives their process ids."""
    with tempfile.NamedTemporaryFile(prefix="gloo", delete=False) as f:
        store = f.name
    os.unlink(store)
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        code = 1
        try:
            os.setpgid(0, 0)
            torch.set_num_threads(1)
            warnings.simplefilter("ignore")
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
            target(rank, *args)
            code = 0
        except BaseException:
            if os.environ.get("RANKS_VERBOSE") or target.__name__ not in ("trained", "killed"):
                traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pids


def join(pids, timeout=60):
    """Waits for all; gives their exit codes, negative for a signal. What is not done in time is killed, as are the workers of loaders that a killed
    rank left behind: they would keep our output open."""
    left, codes, until = dict.fromkeys(pids), {}, time.monotonic() + timeout
    while left:
        for pid in list(left):
            got, status = os.waitpid(pid, os.WNOHANG)
            if got:
                codes[pid] = os.waitstatus_to_exitcode(status)
                del left[pid]
                if codes[pid] != 0:
                    until = min(until, time.monotonic() + 0.2)  # as torchrun does: one is lost, all go
        if left and time.monotonic() > until:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            until = time.monotonic() + 60
        time.sleep(0.002)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return [codes[p] for p in pids]


def objects():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 60), torch.nn.BatchNorm1d(60), torch.nn.ReLU(), torch.nn.Linear(60, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
    # DDP rebuilds its buckets after its first step, also after a restart: from three ranks on gloo then adds up in another order, and a
    # restarted run has other bits, whatever saves it. With find_unused_parameters it does not.
    model = DistributedDataParallel(model, bucket_cap_mb=0.005, find_unused_parameters=dist.get_world_size() > 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)}


def digest(o):
    h = hashlib.sha256()
    for p in o["model"].parameters():
        for t in (p, *(v for _, v in sorted(o["optimizer"].state.get(p, {}).items()))):
            h.update(layout.memory(t.to_local() if hasattr(t, "to_local") else t))
    if "scheduler" in o:
        h.update(repr(o["scheduler"].get_last_lr()).encode())
    b = hashlib.sha256()
    for t in o["model"].buffers():
        b.update(layout.memory(t))
    return h.hexdigest()[:16], b.hexdigest()[:16]


def train(o, step, rank, ranks):
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 8, generator=g)
    o["optimizer"].zero_grad(set_to_none=True)
    torch.nn.functional.mse_loss(o["model"](x), x.sum(1, keepdim=True)).backward()


def trained(rank, path, log, steps=STEPS, every=1, wait=False, reshard=False, behind=False):
    """The job that is killed: each rank logs what it restored and what it knows to be durable."""
    ranks = dist.get_world_size()
    o = objects()
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(*what):
        os.write(fd, (json.dumps([rank, *what]) + "\n").encode())

    with Job(path) as saved:
        state = saved.restore(reshard, behind, **o)
        first = state.step + 1 if state else 0
        if not behind:
            say("restored", state.step if state else -1, *(digest(o) if state else ""))
        told = saved.durable
        for step in range(first, steps):
            train(o, step, rank, ranks)
            saved.ready()
            if behind and step == first:  # the parameters and moments are what was restored; the forward pass has moved the buffers
                say("restored", state.step if state else -1, *(digest(o)[:1] if state else ""))
            o["optimizer"].step()
            o["scheduler"].step()
            say("step", step, *digest(o)[: 1 if rank else 2])  # the other ranks' buffers are overwritten with rank 0's
            if step % every == 0:
                saved.save(step)
                if wait:
                    saved.wait()
                if step == first:
                    saved.audit()
            if saved.durable != told:
                told = saved.durable
                say("durable", told)
    say("done", steps - 1, digest(o)[0])


def lines(log, start=0):
    with open(log) as f:
        f.seek(start)
        whole = f.read()
        whole = whole[: whole.rfind("\n") + 1]  # of the rest the end is not written yet
        return [json.loads(x) for x in whole.splitlines()], start + len(whole.encode())


def mend(log):
    """Cuts off a torn last line: the kernel copies page by page, and SIGKILL may end a write between two."""
    if os.path.exists(log):
        with open(log, "r+b") as f:
            f.truncate(f.read().rfind(b"\n") + 1)


def judge(found, want, durable, ranks):
    """What is wrong with one life of the job, or None; and the newest durable step."""
    restored = [x for x in found if x[1] == "restored"]
    if len({tuple(x[2:]) for x in restored}) > 1:
        return f"ranks restored different states: {restored}", durable
    for _, what, step, *sums in found:
        if what == "restored" and step < durable:
            return f"step {step} restored, {durable} was durable", durable
        if what in ("restored", "step", "done") and step >= 0 and sums != want[step][: len(sums)]:
            return f"{what} {step}: not the undisturbed run's bits", durable
    return None, max([durable] + [x[2] for x in found if x[1] == "durable"])


def undisturbed(ranks, folder, steps=STEPS):
    log = os.path.join(folder, "want.log")
    codes = join(spawn(ranks, trained, os.path.join(folder, "want.ckpt"), log, steps))
    assert codes == [0] * ranks, codes
    found, _ = lines(log)
    want = {}
    for _, what, step, *sums in found:
        if what == "step":
            longest = max(want.get(step, []), sums, key=len)
            assert longest[: len(sums)] == sums and longest[:1] == want.get(step, sums)[:1], "the ranks differ"
            want[step] = longest
    return want


def kill(trials, ranks, seed, folder):
    r = random.Random(seed)
    want = undisturbed(ranks, folder)
    counts, faults, steps = collections.Counter(), [], []
    trial = run = 0
    while trial < trials:
        run += 1
        path, log = os.path.join(folder, f"{run}", "run.ckpt"), os.path.join(folder, f"{run}", "log")
        os.mkdir(os.path.dirname(path))
        durable, at = -1, 0
        while trial < trials:
            trial += 1
            begun = time.monotonic()
            pids = spawn(ranks, trained, path, log, STEPS, 1, r.random() < 0.3, False, r.random() < 0.5)
            # After some lines of its log, the first of which come with the restore and the making of files.
            until, left = time.monotonic() + 60, r.choice((0, 1, ranks, r.randrange(60), r.randrange(2 * STEPS * ranks)))
            while time.monotonic() < until and left > 0 and not os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                time.sleep(0.001)
                if os.path.exists(log) and len(lines(log, at)[0]) >= left:
                    break
            time.sleep(r.random() * (0.3 if left == 0 else 0.03))
            all_ = r.random() < 0.5
            for pid in pids if all_ else [r.choice(pids)]:
                os.kill(pid, signal.SIGKILL)
            codes = join(pids)
            mend(log)
            found, at = lines(log, at) if os.path.exists(log) else ([], 0)
            fault, durable = judge(found, want, durable, ranks)
            if -signal.SIGKILL not in codes:
                trial -= 1
            counts["all ranks" if all_ else "one rank"] += -signal.SIGKILL in codes
            counts["restored"] += any(x[1] == "restored" and x[2] >= 0 for x in found)
            counts["killed in training"] += any(x[1] == "step" for x in found) and not all(c == 0 for c in codes)
            steps += [x[2] for x in found if x[1] == "restored" and x[0] == 0]
            if fault:
                faults.append(f"trial {trial}, run {run}: {fault}")
                break
            if any(x[1] == "done" for x in found):
                counts["runs finished"] += 1
                break
            if os.environ.get("RANKS_VERBOSE"):
                print(trial, round(time.monotonic() - begun, 2), left, codes, found[-1:], file=sys.stderr, flush=True)
        else:
            break
        for f in os.listdir(os.path.dirname(path)):
            os.unlink(os.path.join(os.path.dirname(path), f))
    return {"ranks": ranks, "kills": trial, **counts, "restored at steps": [min(steps, default=-1), max(steps, default=-1)], "faults": faults}


def reshard(folder, worlds):
    """Each job trains six steps more than the one before, on another number of ranks, from its checkpoint."""
    out, last = [], None
    path = os.path.join(folder, "run.ckpt")
    for i, ranks in enumerate(worlds):
        log = os.path.join(folder, f"log{i}")
        codes = join(spawn(ranks, trained, path, log, 6 * (i + 1), 1, False, True))
        found, _ = lines(log)
        restored = sorted(tuple(x[2:]) for x in found if x[1] == "restored")
        done = {tuple(x[2:]) for x in found if x[1] == "done"}
        out.append({"ranks": ranks, "codes": codes, "same": len(done) == 1 and (last is None or [x[:2] for x in restored] == [last] * ranks and len(set(restored)) == 1), "files": sorted(f for f in os.listdir(folder) if "ckpt" in f)})
        last = next(iter(done), None)
    return out


def refused(rank, folder, what):
    o = objects()
    path = os.path.join(folder, "run.ckpt")
    try:
        with Job(path) as saved:
            saved.restore(**o)
            for step in range(3):
                train(o, step, rank, 2)
                saved.ready()
                o["optimizer"].step()
                if what == "differ" and rank == 1:
                    o["model"].module[3].weight.data.add_(1)
                if what == "steps":
                    saved.save(step + rank)
                if what == "unchanged" and rank == 1:
                    saved.save(step, sampler=object())
                saved.save(step)
    except checkpoint.CheckpointError as e:
        with open(os.path.join(folder, f"said.{what}.{rank}"), "w") as f:
            f.write(f"{type(e).__name__}: {e}")


def refuse(folder):
    path = os.path.join(folder, "run.ckpt")
    said = {}

    def go(what, ranks=2):
        codes = join(spawn(ranks, refused, folder, what))
        said[what] = [open(f).read() if os.path.exists(f) else codes for f in (os.path.join(folder, f"said.{what}.{r}") for r in range(ranks))]

    go("steps")
    go("unchanged")
    go("differ")
    assert join(spawn(2, trained, path, os.path.join(folder, "log"), 6)) == [0, 0]
    go("world", 3)
    one = path + ".g1.1of2"
    os.rename(one, one + ".away")
    go("missing")
    os.rename(one + ".away", one)
    with open(one, "r+b") as f:
        kept = f.read(5 * 4096)
        f.seek(2 * 4096)
        f.write(bytes(3 * 4096))
    go("zeroed")
    with open(one, "r+b") as f:
        f.write(kept)
    said["good again"] = join(spawn(2, trained, path, os.path.join(folder, "log2"), 7))
    return said


class Numbered(torch.utils.data.Dataset):
    """Samples that are made in a loader's worker, with nothing random."""

    def __len__(self):
        return 500

    def __getitem__(self, i):
        return i, torch.randn(8, generator=torch.Generator().manual_seed(i))


def scripted(rank, code, log, out):
    """Runs the guide's script with a model and data."""

    def net():
        return torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.Dropout(0.2), torch.nn.Linear(30, 1))

    def loss(model, batch):
        which, x = batch
        if rank == 0:
            with open(log, "a") as f:
                f.write(" ".join(map(str, which.tolist())) + "\n")
        return torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))

    sys.modules["mine"] = types.SimpleNamespace(Net=net, dataset=Numbered(), loss=loss)
    dist.init_process_group = lambda backend: None  # spawn has done it
    names = {}
    exec(compile(code, "guide", "exec"), names)
    if rank == 0:
        with open(out, "w") as f:
            f.write(digest(names)[0])


def guide(folder, call):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "guides", "checkpoint-pytorch.md")) as f:
        code = next(b for b in f.read().split("```python\n")[1:] if call in b).split("```")[0]
    assert "steps=10_000" in code
    code = code.replace("steps=10_000", "steps=30")
    ends, seen, kills, r = [], [], 0, random.Random(5)
    for name in ("undisturbed", "killed"):
        here = os.path.join(folder, name)
        os.mkdir(here)
        os.chdir(here)  # the script names its file run.ckpt
        log = os.path.join(here, "log")
        for life in range(40):
            pids = spawn(2, scripted, code, log, os.path.join(here, "end"))
            if name == "killed" and life < 5:
                begun, left = os.path.getsize(log) if os.path.exists(log) else 0, r.randrange(100, 900)
                until = time.monotonic() + 60
                while time.monotonic() < until and not (os.path.exists(log) and os.path.getsize(log) > begun + left):
                    if os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                        break
                    time.sleep(0.001)
                os.kill(r.choice(pids), signal.SIGKILL)
            codes = join(pids)
            mend(log)
            if codes == [0, 0]:
                break
            kills += 1
        with open(os.path.join(here, "end")) as f:
            ends.append(f.read())
        with open(log) as f:
            seen.append(set(f))
    return {"same": ends[0] == ends[1], "kills": kills, "other samples": sorted(seen[0] ^ seen[1]), "steps": len(seen[0])}


if __name__ == "__main__":
    if os.environ.get("RANKS_PAST"):
        transfer.PAST_FROM = 0
    if sys.argv[1] == "kill":
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(kill(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), folder), indent=1))
    elif sys.argv[1] == "guide":
        print(json.dumps(guide(*sys.argv[2:4])))
    elif sys.argv[1] == "reshard":
        print(json.dumps(reshard(sys.argv[2], [int(n) for n in sys.argv[3:]])))
    else:
        print(json.dumps(refuse(sys.argv[2])))
