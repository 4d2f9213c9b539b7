"""What checkpoints of a PyTorch job cost, in ratios within one run. Run as

    speed.py forward FOLDER [TRIALS]          the first forward pass after a restore, against mmap and torch.load, all cold      3 minutes
    speed.py persist FOLDER MIB [TRIALS]      a durable save against fio's best                                       256: 1, 1024: 3 minutes
    speed.py steps FOLDER THREADS [TRIALS MIB] steps with saves over steps without: at the automatic interval, and every step    1 9 256: 12 minutes
    speed.py small FOLDER COUNT [TRIALS]      saves of so many parameters of 32 bytes with AdamW, four arrays each, against torch.save and fsync        16000: 1 minute
    speed.py frozen FOLDER MIB [TRIALS]       saves of an adapter of 48 KiB beside a frozen base, against torch.save and fsync of both                160: 1 minute
    speed.py gpt2 FOLDER [STEPS]              two ranks of DDP with a state of GPT-2 small's size: what training waits over three intervals, in as many steps at most

The durations are of a quiet machine with two cores and 9 trials. Medians of the trials' ratios, with quartiles; what is compared takes turns. A signal (Ctrl-C) ends
it with what whole trials have shown. The last lines are rows for docs/results/checkpoint.md.
"""

import contextlib
import gc
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

# For OpenBLAS torch.set_num_threads means nothing: a computation of one thread would take all cores. Where a process has used OpenMP's threads, what it
# forks waits for them for ever. And with malloc's usual thresholds an optimizer step takes twice as long where its temporary memory happens to go back
# to the system, whoever saves.
THREADS = sys.argv[3] if sys.argv[1:2] == ["steps"] else "1"
KEPT = {"OPENBLAS_NUM_THREADS": THREADS, "OMP_NUM_THREADS": THREADS, "MALLOC_TRIM_THRESHOLD_": str(1 << 33), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in KEPT.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})  # libraries read it when they are loaded

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import torch

from evenkeel import checkpoint
from evenkeel.checkpoint import Job
from evenkeel.checkpoint.file import transfer


def quartiles(values):
    q = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return f"{q[1]:.4g} [{q[0]:.4g}, {q[2]:.4g}]"


def blas():
    """Which library multiplies matrices: the reference takes five times as long for a forward pass."""
    torch.ones(64, 64) @ torch.ones(64, 64)
    with open("/proc/self/maps") as f:
        found = {os.path.basename(os.path.realpath(line.split()[-1])) for line in f if "blas" in line}
    if found and not any("openblas" in name or "mkl" in name for name in found):
        print(f"matrices are multiplied by {', '.join(sorted(found))}, which is slow: install libopenblas0-pthread, or unpack it and set LD_LIBRARY_PATH")
    return ", ".join(sorted(found)) or "torch's own"


def row(what, ratios, trials=None):
    """A row of the table of results."""
    load = os.getloadavg()
    print(f"| {what} | {quartiles(ratios)} ({trials or len(ratios)} trials, load {load[0]:.1f}) |", flush=True)


def turns(trials, one, *times):
    """Runs one(i) as often; a signal ends it, and what whole turns have shown stays."""
    done = 0
    try:
        for i in range(trials):
            one(i)
            done += 1
    except KeyboardInterrupt:
        print(f"ended after {done} of {trials} trials")
    for t in times:
        for values in t.values():
            del values[done:]
    if not done:
        sys.exit("no trial was complete")


def report(times, base=None):
    for name, values in times.items():
        ratio = "" if base is None else f"   over {base}: {quartiles([a / b for a, b in zip(values, times[base])])}"
        print(f"{name:34s} {quartiles(values)} s{ratio}", flush=True)


def cold(*paths):
    """Nothing of these files is in the page cache."""
    for p in paths:
        fd = os.open(p, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 12, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Model(torch.nn.Module):
    """As GPT-2: tied embedding, blocks, a norm."""

    def __init__(self, width=768, layers=12, vocabulary=50257, places=1024):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(places, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            y = block(y)
        return torch.nn.functional.linear(self.norm(y), self.tokens.weight)


def adamw(model):
    """AdamW with state, without a step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for p in model.parameters():
        optimizer.state[p] = {"step": torch.tensor(3.0), "exp_avg": torch.randn_like(p), "exp_avg_sq": torch.rand_like(p)}
    return optimizer


def apart(do):
    """What do() gives, in a process of its own."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            out = do()
            os.write(w, json.dumps(out).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        out = f.read()
    os.waitpid(pid, 0)
    return json.loads(out)


def forward(folder, trials=9):
    size = dict(width=768, layers=8, vocabulary=10000)
    path, whole, parameters, raw = (os.path.join(folder, n) for n in ("run.ckpt", "whole.pt", "parameters.pt", "raw"))
    x = torch.randint(0, 10000, (1, 4), generator=torch.Generator().manual_seed(1))

    def make():
        torch.manual_seed(1)
        model = Model(**size)
        optimizer = adamw(model)
        with Job(path, slots=2) as saved:
            saved.restore(model=model, optimizer=optimizer)
            saved.save(0)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, whole)
        torch.save(model.state_dict(), parameters)
        with open(raw, "wb") as f:
            for p in model.parameters():
                f.write(p.detach().numpy().tobytes())
        with torch.no_grad():
            return float(model(x).double().sum()), os.path.getsize(raw)

    want, size_raw = apart(make)
    print(f"4 tokens, parameters {size_raw / 2**20:.0f} MiB, state {os.path.getsize(whole) / 2**20:.0f} MiB, {torch.get_num_threads()} threads, {trials} trials by turns")

    def mapped(model, copy):
        fd = os.open(raw, os.O_RDONLY)
        m = mmap.mmap(fd, size_raw, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        at, everything = 0, torch.frombuffer(m, dtype=torch.float32)
        for p in model.parameters():
            part = everything[at : at + p.numel()].view(p.shape)
            at += p.numel()
            if copy:
                p.data.copy_(part)
            else:
                p.data = part

    def load(model, path, optimizer=None):
        state = torch.load(path)
        model.load_state_dict(state["model"] if "model" in state else state)
        if optimizer:
            optimizer.load_state_dict(state["optimizer"])

    def ours(model, optimizer, behind):
        saved = Job(path)
        saved.restore(behind=behind, model=model, optimizer=optimizer)
        return saved

    ways = {
        "restore behind, verified": lambda m, o: ours(m, o, True), "restore, verified": lambda m, o: ours(m, o, False),
        "mmap of the parameters, copied": lambda m, o: mapped(m, True), "mmap of the parameters, in place": lambda m, o: mapped(m, False),
        "torch.load of the parameters": lambda m, o: load(m, parameters), "torch.load of the state": lambda m, o: load(m, whole),
        "the same, into the optimizer too": lambda m, o: load(m, whole, o),
    }  # fmt: skip

    def once(way):
        torch.manual_seed(2)
        model = Model(**size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        with torch.no_grad():
            model(x)  # the processor's libraries are warm
            cold(path, whole, parameters, raw)
            gc.collect()
            begun = time.perf_counter()
            kept = way(model, optimizer)
            out = model(x)
            first = time.perf_counter() - begun
        if kept is not None:
            kept.ready()
        return first, time.perf_counter() - begun, float(out.double().sum())

    times, complete = {n: [] for n in ways}, []

    def turn(_):
        for name, way in ways.items():
            first, all_, got = apart(lambda way=way: once(way))
            assert got == want, (name, got, want)
            times[name].append(first)
            if name == "restore behind, verified":
                complete.append(all_)

    turns(trials, turn, times)
    report(times, "restore behind, verified")
    base = times["restore behind, verified"]
    print("behind, until everything is read:", quartiles(complete), "s")
    for name in ("mmap of the parameters, copied", "mmap of the parameters, in place"):
        row(f"first forward pass after a restore, verified, over {name}", [a / b for a, b in zip(base, times[name])])
    row("torch.load of the state over first forward pass after a restore, verified", [b / a for a, b in zip(base, times["torch.load of the state"])])


def flat_file(folder, mib):
    """A file for fio to write over."""
    path = os.path.join(folder, "fio")
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(bytes(1 << 20))
        os.fsync(f.fileno())
    return path


def fio_call(path, mib, *options):
    return ["fio", "--name=x", f"--filename={path}", "--rw=write", f"--size={mib}m", "--output-format=json", "--overwrite=1", "--allow_file_create=0", *options]


def fio(path, mib, *options):
    out = subprocess.run(fio_call(path, mib, *options), check=True, capture_output=True, text=True).stdout
    return json.loads(out)["jobs"][0]["job_runtime"] / 1e3


def persist(folder, mib, trials=9):
    """Saves of 48 arrays; fio writes as many bytes over a file that is there, fsync at the end included."""
    n = mib << 20
    named = {f"layer{i}": (torch.randn(n // 48 // 4), checkpoint.PARAMETER) for i in range(48)}
    path, flat = os.path.join(folder, "run.ckpt"), flat_file(folder, mib)
    direct = ["--direct=1", "--ioengine=libaio", "--end_fsync=1"]
    ways = {
        "fio through the cache, 1 MiB": ["--bs=1m", "--ioengine=psync", "--end_fsync=1"], "fio, written back at once": ["--bs=1m", "--ioengine=psync", "--end_fsync=1", "--sync_file_range=write:1"],
        "fio past the cache, 1 MiB x 4": ["--bs=1m", "--iodepth=4", *direct], "fio past the cache, 1 MiB x 16": ["--bs=1m", "--iodepth=16", *direct],
        "fio past the cache, 4 MiB x 4": ["--bs=4m", "--iodepth=4", *direct],
    }  # fmt: skip
    with checkpoint.create(path, named) as ck:
        past = ck._access.direct is not None
        print(f"{mib} MiB, past the cache: {past}, {trials} trials by turns")
    other = f"the other way, {'through' if past else 'past'} the cache"
    with checkpoint.create(path + ".other", named, slots=2):
        pass
    times = {n: [] for n in ("save, durable", other, *ways)}
    with contextlib.ExitStack() as stack:
        ck = stack.enter_context(checkpoint.open_(path, named))
        transfer.PAST_FROM = 1 << 60 if past else 0
        apart_ = stack.enter_context(checkpoint.open_(path + ".other", named))
        ck.restore(), apart_.restore()

        def save(ck, step):
            ck.ready()
            for t, _ in named.values():
                t[0] = step
            begun = time.perf_counter()
            ck.save(step)
            ck.wait()
            return time.perf_counter() - begun

        for step in range(1, 4):  # the first of each slot
            save(ck, step), save(apart_, step)

        def turn(i):
            times["save, durable"].append(save(ck, 4 + i))
            times[other].append(save(apart_, 4 + i))
            for name, options in ways.items():
                times[name].append(fio(flat, mib, *options))

        turns(trials, turn, times)
    trials = len(times["save, durable"])
    report(times, "save, durable")
    best = [min(times[n][i] for n in ways) for i in range(trials)]
    ratios = [b / a for a, b in zip(times["save, durable"], best)]
    middle = {n: statistics.median(times[n]) for n in ways}
    fastest = min(middle, key=middle.get)
    m = middle[fastest] / statistics.median(times["save, durable"])
    print(f"bandwidth over the way of fio with the best median ({fastest}): {m:.3f} of the medians, {quartiles([b / a for a, b in zip(times['save, durable'], times[fastest])])} by trials; over fio's best of each trial:")
    row(f"durable save over fio's best, {mib} MiB", ratios)


def against(folder, model, trials):
    """Saves of a model and its AdamW, durable, by turns with torch.save and fsync."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    times = {"save, returns": [], "save, durable": [], "torch.save, fsync": []}
    loads = {"restore, verified": [], "torch.load": []}
    path, plain = os.path.join(folder, "run.ckpt"), os.path.join(folder, "plain")

    def timed(values, do):
        gc.collect()
        begun = time.perf_counter()
        do()
        values.append(time.perf_counter() - begun)

    def whole():
        with open(plain, "wb") as f:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f)
            f.flush()
            os.fsync(f.fileno())

    def turn(i):
        saved.ready()
        optimizer.step()
        gc.collect()
        begun, wrote = time.perf_counter(), written()
        saved.save(i)
        times["save, returns"].append(time.perf_counter() - begun)
        saved.wait()
        times["save, durable"].append(time.perf_counter() - begun)
        bytes_.append(written() - wrote)
        timed(times["torch.save, fsync"], whole)

    def written():
        with open("/proc/self/io") as f:
            return int(f.read().split("write_bytes: ")[1].split()[0])

    bytes_ = []
    with Job(path) as saved:
        saved.restore(model=model, optimizer=optimizer)
        turns(trials, turn, times)
        print(f"{len(saved._file.entries)} arrays, {os.path.getsize(path) >> 10} KiB on the disk, torch.save {os.path.getsize(plain) >> 10} KiB; written by each save, KiB: {[b >> 10 for b in bytes_]}")
    for _ in range(trials):
        with Job(path) as saved:
            timed(loads["restore, verified"], lambda: saved.restore(model=model, optimizer=optimizer))  # noqa: B023
        timed(loads["torch.load"], lambda: torch.load(plain))
    report(times, "torch.save, fsync")
    report(loads, "torch.load")
    row(f"durable save over torch.save and fsync, torch {torch.__version__}", [a / b for a, b in zip(times["save, durable"], times["torch.save, fsync"])])


def small(folder, count, trials=5):
    against(folder, torch.nn.ParameterList([torch.ones(8) for _ in range(count)]), trials)


def frozen(folder, mib, trials=9):
    model = torch.nn.ModuleList([torch.nn.Linear(1024, 1024, bias=False) for _ in range(mib // 4)]).requires_grad_(False)
    model.append(torch.nn.Linear(1024, 12, bias=False))
    against(folder, model, trials)


class Work:
    """Training steps that take a given time: matrices multiplied, then AdamW over the state."""

    def __init__(self, mib):
        self.model = torch.nn.ModuleList(torch.nn.Linear(1024, 1024, bias=False) for _ in range(max(1, mib // 12)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.rounds = 1
        for p in self.model.parameters():
            p.grad = torch.randn_like(p) * 1e-3
        self.optimizer.step()

    def compute(self):
        x = torch.ones(64, 1024)
        with torch.no_grad():
            for _ in range(self.rounds):
                for layer in self.model:
                    x = torch.tanh(layer(x))

    def update(self):
        """Changes all of the state: what is as a slot has it would not be written."""
        torch._foreach_neg_([p.grad for p in self.model.parameters()])
        self.optimizer.step()

    def calibrate(self, seconds):
        self.rounds = 4
        begun = time.perf_counter()
        self.compute()
        self.rounds = max(1, round(seconds / (time.perf_counter() - begun) * 4))


def steps(folder, threads, trials=9, mib=256):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    w = Work(mib)
    objects = {"model": w.model, "optimizer": w.optimizer}
    path = os.path.join(folder, "run.ckpt")
    with Job(path) as saved:
        saved.restore(**objects)
        took = []
        for step in range(30):  # many: a virtual disk may take a burst faster than it can go on
            begun = time.perf_counter()
            saved.save(step)
            saved.wait()
            took.append(time.perf_counter() - begun)
            w.update()
        persist_ = statistics.median(took[15:])
        w.calibrate(2 * persist_)
        print(f"{mib} MiB, {threads} of {os.cpu_count()} cores compute, load {os.getloadavg()[0]:.1f}, a save alone {persist_:.3f} s, {trials} trials by turns")
        at, lasted = [step], []

        def run(count, save):
            waited, begun, used, saves = 0.0, time.perf_counter(), time.thread_time(), 0
            saved._stepped = None  # nothing is measured across the turns
            for _ in range(count):
                at[0] += 1
                w.compute()
                t = time.perf_counter()
                saved.ready()
                waited += time.perf_counter() - t
                w.update()
                t = time.perf_counter()
                if save == "every" or save == "auto" and saved.due():
                    saved.save(at[0])
                    saves += 1
                waited += time.perf_counter() - t
                if save == "every":
                    lasted.append(saved._file.took)
            took, used = time.perf_counter() - begun, time.thread_time() - used
            saved.wait()
            return took / count, waited / count, saves, used / count

        run(3, None)
        run(30, "auto")  # the interval is found
        times, used, waits, counts = {n: [] for n in ("none", "auto", "every", "fio")}, {n: [] for n in ("none", "auto", "every", "fio")}, {"auto": [], "every": []}, []
        flat = flat_file(folder, mib)

        def beside_fio(a_second):
            """Steps without saves, while fio writes so many MiB a second past the cache: what the disk costs a step, whoever writes."""
            writes = fio_call(flat, mib, "--bs=1m", "--direct=1", "--ioengine=libaio", "--iodepth=4", "--time_based", "--runtime=600", f"--rate={round(a_second)}m", "--thread")
            with subprocess.Popen(writes, stdout=subprocess.DEVNULL) as p:
                try:
                    time.sleep(0.5)
                    return run(8, None)
                finally:
                    p.terminate()

        def turn(_):
            n = max(8, 2 * saved.interval)
            plain, _, _, plain_used = run(max(4, n // 2), None)
            auto, waited, saves, auto_used = run(n, "auto")
            every, waited_every, _, every_used = run(8, "every")
            beside, _, _, beside_used = beside_fio(mib / every)
            again, _, _, again_used = run(max(4, n // 2), None)
            waits["auto"].append(waited / auto)
            waits["every"].append(waited_every / every)
            counts.append((n, saves, saved.interval))
            times["none"].append((plain + again) / 2)
            times["auto"].append(auto)
            times["every"].append(every)
            times["fio"].append(beside)
            used["fio"].append(beside_used)
            used["none"].append((plain_used + again_used) / 2)
            used["auto"].append(auto_used)
            used["every"].append(every_used)

        turns(trials, turn, times, used, waits, {"counts": counts})
    report(times)
    busy = threads >= os.cpu_count()
    print(f"training waits {quartiles(waits['auto'])} of a step at the automatic interval, {quartiles(waits['every'])} saved every step, where a save takes {quartiles(lasted)} s")
    print("steps, saves and interval in each trial at the automatic interval:", counts)
    for name, what in (("auto", "at the automatic interval"), ("every", "saved every step, a step twice the persist"), ("fio", "not saved, beside fio that writes as much")):
        ratios = [a / b for a, b in zip(times[name], times["none"])]
        row(f"step ratio {what}, {mib} MiB, {'both cores' if busy else 'one core'} computing", ratios)
        print(f"the same of the training thread's processor time, which other programs hardly disturb: {quartiles([a / b for a, b in zip(used[name], used['none'])])}")


def ranked(rank, folder, count):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    with Job(os.path.join(folder, "run.ckpt")) as saved:
        saved.restore(model=model, optimizer=optimizer)
        rows = []
        signal.signal(signal.SIGINT, lambda *_: ended_.append(True))  # the ranks end together, after a step
        for step in range(count):
            begun = time.perf_counter()
            x = torch.randint(0, 50257, (1, 64), generator=torch.Generator().manual_seed(10 * step + rank))
            out = model(x[:, :-1])
            torch.nn.functional.cross_entropy(out.flatten(0, 1), x[:, 1:].flatten()).backward()
            t0 = time.perf_counter()
            saved.ready()
            t1 = time.perf_counter()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            t2 = time.perf_counter()
            save = saved.due() if step else True
            if save:
                saved.save(step)
            t3 = time.perf_counter()
            rows.append({"step": step, "seconds": t3 - begun, "ready": t1 - t0, "save": t3 - t2, "saved": save, "interval": saved.interval, "persist": saved._file.took, "found": found(saved)})
            if rank == 0:
                print(json.dumps(rows[-1]), flush=True)
            stop = torch.tensor(len(ended_) + (sum(r["saved"] and r["found"] for r in rows) > INTERVALS))
            dist.all_reduce(stop)
            if stop:
                break
        saved.wait()
    if rank == 0:
        plain = statistics.median([r["seconds"] for r in rows if not r["saved"]] or [0])
        of_save = statistics.median([r["save"] for r in rows if r["saved"]] or [0])
        at = [i for i, r in enumerate(rows) if r["saved"] and r["found"]]
        print(json.dumps({"step without a save, s": plain, "save() in a saved step, s": of_save, "whole intervals": max(0, len(at) - 1), "interval": rows[-1]["interval"]}))
        what = "GPT-2 small with AdamW, 1.5 GB, two ranks: training waits at most .01 of the time at the automatic interval"
        if len(at) > 1:  # from behind a save to the end of the next
            shares = [sum(r["ready"] + r["save"] for r in part) / sum(r["seconds"] for r in part) for part in (rows[a + 1 : b + 1] for a, b in zip(at, at[1:]))]
            row(what, shares, f"{len(shares)} intervals, {at[-1] - at[0]} steps, 1")
        else:  # what a save costs, over the interval that was found
            costs = [r["save"] + rows[i + 1]["ready"] for i, r in enumerate(rows[:-1]) if r["saved"] and i]
            shares = [c / (rows[-1]["interval"] * plain) for c in costs]
            row(f"{what}, by {len(costs)} saves while it was being found", shares)
    dist.barrier()


ended_ = []
INTERVALS = 3  # whole ones to be measured


def found(saved):
    """Whether the interval is that of measurements."""
    i = saved._interval
    return min(len(i._quiet), len(i._costs), len(i._persist)) >= 3


def gpt2(folder, count=150):
    import torch.distributed as dist

    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
                ranked(rank, folder, count)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        pids.append(pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ranks'
    print("exit codes", [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids])


def ended(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    print(f"{blas()}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    what, where, *numbers = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=where, prefix="speed") as folder:
        {"forward": forward, "persist": persist, "steps": steps, "gpt2": gpt2, "small": small, "frozen": frozen}[what](folder, *map(int, numbers))
