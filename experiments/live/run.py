"""Measures jobs on emulated devices (job.py): python3 experiments/live/run.py SUITE [--runs N], with /usr/bin/python3 and evenkeel in EVENKEEL or on PATH.

waiting   rounds that wait for all, first and last rank swap speeds in mid-run: equal shares, the best split of a sweep, proportional control, the service
deadline  noise and bursts: waiting for all, deadline rounds, hivemind's rule, the service with a deadline; sizes right in the mean for the first three
quota     ranks that compute under quotas of processor time (cgroups, root) in place of emulated devices: equal shares, shares by the quotas, proportional control, the service
quality   loss and accuracy after the same number of samples, by seed
client    the tuner's own time in a step; steps beside a service that turns bad and good again, by turns
kills     steps and sizes of a job whose service, with a journal, is killed 20 times

Interrupted it prints the table of the runs that are done. With --keep FOLDER it goes on there when it is started again.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]

import policies
import processes

CLOCK, KEEP = [], None
EVENKEEL = os.environ.get("EVENKEEL", "evenkeel")
PACES = [1, 1.5, 2, 4]
SLOW = ["--alpha", "0.008", "--beta", "0.0012"]  # a round of some 150 ms: other work on the machine weighs little


def run(policy, *options, ranks=4):
    """What a job reports, or has reported before (--keep)."""
    if not KEEP:
        return job(policy, *options, ranks=ranks)
    kept = os.path.join(KEEP, hashlib.sha256(repr((policy, list(map(str, options)), ranks, CLOCK)).encode()).hexdigest()[:16] + ".json")
    if not os.path.exists(kept):
        r = job(policy, *options, ranks=ranks)
        with open(kept + ".new", "w") as f:
            json.dump(r, f)
        os.replace(kept + ".new", kept)
    with open(kept) as f:
        return json.load(f)


def job(policy, *options, ranks=4, url=None):
    """The service, where there is one, lives as long as the job."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "out.json")
        command = ["nice", "-n", "-15"] if os.geteuid() == 0 else []
        command += [sys.executable, "-m", "torch.distributed.run", "--master_addr", "127.0.0.1", "--master_port", str(processes.free_port()), "--nproc_per_node", str(ranks), "--redirects", "1", "--tee", "1"]
        command += [os.path.join(HERE, "job.py"), "--policy", policy, "--out", out, *CLOCK, *map(str, options)]
        served = policy == "served" and not url
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "EVENKEEL_URL": url or "http://rule"}
        p = subprocess.run([EVENKEEL, "serve", "--", *command] if served else command, env=environment, capture_output=True, text=True, timeout=600)
        if p.returncode:
            raise SystemExit(p.stdout + p.stderr)
        with open(out) as f:
            return json.load(f)


def speed(r, first=0, last=None):
    """Samples per second from round first on."""
    rounds = r["rounds"]
    last = len(rounds) - 1 if last is None else min(last, len(rounds) - 1)
    return (rounds[last]["total"] - rounds[first]["total"]) / (rounds[last]["at"] - rounds[first]["at"])


def idle(r, first=0):
    """Share of the ranks' time in which they did not compute."""
    rounds = r["rounds"][first:]
    wall = rounds[-1]["at"] - rounds[0]["at"]
    return 1 - sum(sum(x["seconds"]) for x in rounds[1:]) / (wall * len(rounds[0]["samples"]))


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def shares(alpha, beta, paces, batch):
    return policies.split(alpha, beta, paces, batch)


def spread(values, form="{:.2f}"):
    return f"{form.format(min(values))} / {form.format(statistics.median(values))}"


@contextlib.contextmanager
def interruptible():
    """Ctrl-C ends the runs; what follows prints what is there."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)


def waiting(runs):
    swap, rounds = 100, 210
    swapped = [4, 1.5, 2, 1]
    best = {}
    for paces in (PACES, swapped):
        for alpha in (0.004, 0.008, 0.012, 0.02):  # equal finish for devices of another overhead: the sweep
            s = shares(alpha, 0.0012, paces, 256)
            r = run("static", *SLOW, "--paces", *paces, "--shares", *s, "--rounds", 30)
            best.setdefault(tuple(paces), []).append((speed(r, 5), s))
    static = {p: max(found) for p, found in best.items()}
    print("best splits:", {p: (round(v), s) for p, (v, s) in static.items()})
    row("run", "equal shares", "best split", "proportional", "service", "of the best split", "times equal", "rounds back after the swap", "of the best split after it", "worst of 100 rounds against proportional")
    all_ = []
    with interruptible():
        for k in range(runs):
            common = [*SLOW, "--seed", k + 1, "--noise", 0.03 if CLOCK else 0]  # else all runs are the same
            even = speed(run("uniform", *common, "--rounds", 20), 3)
            before = speed(run("static", *common, "--shares", *static[tuple(PACES)][1], "--rounds", 40), 5)
            after = speed(run("static", *common, "--paces", *swapped, "--shares", *static[tuple(swapped)][1], "--rounds", 40), 5)
            prop = run("proportional", *common, "--rounds", rounds, "--swap", swap)
            own = run("served", *common, "--rounds", rounds, "--swap", swap)
            v = speed(own, 20, swap - 1)
            back = next((n for n in range(60) if statistics.median(speed(own, swap + n + j, swap + n + j + 1) for j in range(5)) >= 0.95 * after), 60)
            worst = min(speed(own, a, a + 100) / speed(prop, a, a + 100) for a in range(0, rounds - 101, 5))
            late = speed(own, swap + 20)
            row(k + 1, f"{even:.0f}", f"{before:.0f}", f"{speed(prop, 20, swap - 1):.0f}", f"{v:.0f}", f"{v / before:.3f}", f"{v / even:.2f}", back, f"{late / after:.3f}", f"{worst:.3f}")
            all_.append((v / before, v / even, back, late / after, worst))
    if all_:
        of_best, of_even, back, late, worst = zip(*all_)
        row("least / median", "", "", "", "", spread(of_best, "{:.3f}"), spread(of_even, "{:.3f}"), f"most {max(back)}, median {statistics.median(back):g}", spread(late, "{:.3f}"), spread(worst, "{:.3f}"))


def deadlines(runs):
    """8 micro-steps a share."""
    s = shares(8 * 0.004, 0.0012, PACES, 256)  # each of the 8 micro-steps costs its overhead
    kinds, first, rounds = ((0.03, 0), (0.1, 0), (0.1, 0.06)), 25, 200
    tables = {kind: [] for kind in kinds}
    with interruptible():
        for k in range(runs):
            for noise, bursts in kinds:
                common = ["--alpha", 0.004, "--beta", 0.0012, "--noise", noise, "--bursts", bursts, "--steps", 8, "--shares", *s, "--seed", k + 1, "--rounds", rounds]
                rs = [run(p, *common, *(["--deadline", "auto"] if p != "static" else [])) for p in ("static", "timed", "expected", "served")]
                v = [speed(r, first) for r in rs]
                mean = [statistics.mean(sum(x["samples"]) for x in r["rounds"][first:]) for r in rs]
                tables[noise, bursts].append((*v, v[1] / v[0], v[3] / v[0], *(idle(rs[j], first) for j in (0, 1, 3)), mean[1], mean[3]))
                print(k + 1, noise, bursts, [f"{x:.4g}" for x in tables[noise, bursts][-1]], file=sys.stderr, flush=True)
    row("noise of a round", "bursts", "runs", "waiting for all", "deadline", "hivemind", "service, deadline auto", "deadline / waiting", "service / waiting", "idle: waiting", "deadline", "service", "samples of a round, deadline: least / mean / most", "service")
    forms = ["{:.0f}"] * 4 + ["{:.2f}"] * 2 + ["{:.3f}"] * 3
    for (noise, bursts), table in tables.items():
        if table:
            columns = list(zip(*table))
            means = [f"{min(c):.1f} / {statistics.mean(c):.1f} / {max(c):.1f}" for c in columns[-2:]]
            row(f"{noise:.0%}", f"{bursts:.0%}", len(table), *(spread(c, f) for c, f in zip(columns, forms)), *means)


def quota(runs):
    """Policies take turns, so that other work on the machine falls on all."""
    common, first = ["--quota", 0.4, "--rounds", 60], 15
    by_quota = shares(0.0, 1.0, PACES, 256)
    kinds = (("equal shares", "uniform", []), ("by the quotas", "static", ["--shares", *by_quota]), ("proportional", "proportional", []), ("service", "served", []))
    found = {name: [] for name, *_ in kinds}
    with interruptible():
        for k in range(runs):
            for name, policy, options in kinds:
                r = run(policy, *common, *options, "--seed", k + 1)
                found[name].append((speed(r, first), idle(r, first)))
                print(k + 1, name, found[name][-1], r["rounds"][-1]["shares"], file=sys.stderr, flush=True)
    row("sizes", "samples/s: least / median", "times equal shares, by run", "idle share: least / median")
    for name, some in found.items():
        times = [f"{v / e:.2f}" for (v, _), (e, _) in zip(some, found["equal shares"])]
        row(name, spread([v for v, _ in some], "{:.0f}"), " ".join(times), spread([i for _, i in some]))


def quality(runs):
    kinds = (("equal shares", "uniform", []), ("service", "served", []), ("service, deadline auto", "served", ["--deadline", "auto", "--steps", 4]))
    found = {name: [] for name, _, _ in kinds}
    with interruptible():
        for k in range(runs):
            for name, policy, options in kinds:
                r = run(policy, "--alpha", 0.002, "--beta", 0.0003, "--samples", 36000, "--seed", k + 1, "--noise", 0.1, *options)
                found[name].append((r["loss"], r["accuracy"]))
                print(k + 1, name, r["loss"], r["accuracy"], file=sys.stderr, flush=True)
    row("policy", "loss on the test set, by seed", "mean (standard deviation)", "accuracy, by seed", "mean (standard deviation)")
    for name, some in found.items():
        cells = []
        for column in zip(*some):
            cells += [" ".join(f"{x:.3f}" for x in column), f"{statistics.mean(column):.3f} ({statistics.stdev(column) if len(column) > 1 else 0:.3f})"]
        row(name, *cells)


SEGMENT, ROUNDS = 6.0, 2700  # seconds of one mode, good and bad by turns; of a run, which takes a minute


def client(runs):
    """A fake service (python/tests/fake_service.py) that is good and bad by turns: what else the machine does, it does to both."""
    import fake_service

    modes = ("hang", "nonsense", "huge", "gone")
    found = {m: [[], [], []] for m in modes}  # the tuner's own seconds in a step, and a step's: beside a good service, a bad one
    processor = []
    options = ["--paces", 1, 1, "--alpha", 0.004, "--beta", 0.0001, "--rounds", ROUNDS]
    with interruptible():
        for k in range(runs):
            for mode in modes:
                service = fake_service.Service(lambda reports, _: ([130, 126],) if len(reports) % 2 else ([126, 130],))
                turns, over = [], threading.Event()

                def turn():
                    bad = False
                    while not over.wait(SEGMENT):
                        bad = not bad
                        if mode == "gone":
                            service.stop() if bad else service.start()
                        else:
                            service.mode = mode if bad else "good"
                        turns.append((time.perf_counter(), bad))

                t = threading.Thread(target=turn)
                t.start()
                try:
                    r = job("served", *options, ranks=2, url=service.url)
                finally:
                    over.set()
                    t.join()
                    if not (turns and turns[-1][1] and mode == "gone"):
                        service.stop()
                own, good, bad = found[mode]
                own.extend(r["own"][20:])
                for begin, end in zip(r["times"][20:], r["times"][21:]):
                    (bad if next((b for at, b in reversed(turns) if at <= end), False) else good).append(end - begin)
            service = fake_service.Service(lambda reports, _: ([130, 126],) if len(reports) % 2 else ([126, 130],))
            processor.extend(job("served", *options, "--rounds", 500, "--processor", ranks=2, url=service.url)["own"][20:])
            service.stop()
    at = lambda values, share: 1e3 * sorted(values)[int(share * (len(values) - 1))]  # noqa: E731
    times = lambda values: " / ".join(f"{at(values, q):.2f}" for q in (0.5, 0.99, 1)) if values else ""  # noqa: E731
    row("the service is, by turns, good and", "tuner's own time in a step, ms: median / 99% / longest", "steps beside it good", "their ms", "later than their median by more than 50 ms", "steps beside it bad", "their ms", "later by more than 50 ms")
    for mode, (own, good, bad) in found.items():
        if good and bad:
            late = at(good, 0.5) / 1e3 + 0.05
            row(mode, times(own), len(good), times(good), sum(x > late for x in good), len(bad), times(bad), sum(x > late for x in bad))
    print(f"\nThe tuner's own processor time in a step, beside a good service: {times(processor)} ms.")


KILLS = 20  # of the service, in a run


def kills(runs):
    """Four ranks; their service, with a journal, is killed again and again."""
    import random

    beside, others, changes, samples = [], [], [], []
    rounds = 60 + 15 * KILLS
    with interruptible():
        for k in range(runs):
            rng, gone, over = random.Random(k), [], threading.Event()
            with tempfile.TemporaryDirectory() as folder:
                at = f"127.0.0.1:{processes.free_port()}"

                def serve(folder=folder, at=at):
                    return subprocess.Popen([EVENKEEL, "serve", "--state", folder, "--listen", at], stderr=subprocess.DEVNULL)

                service = serve()

                def kill(rng=rng, gone=gone, over=over):
                    nonlocal service
                    if over.wait(15):  # torch, and the first 25 rounds
                        return
                    for _ in range(KILLS):
                        if over.wait(rng.uniform(1, 2)):
                            return
                        began = time.perf_counter()
                        service.kill()
                        service.wait()
                        time.sleep(rng.uniform(0, 1))
                        service = serve()
                        gone.append((began, time.perf_counter() + 1))

                t = threading.Thread(target=kill)
                t.start()
                try:
                    r = job("served", *SLOW, "--rounds", rounds, "--seed", k + 1, url=f"http://{at}")
                finally:
                    over.set()
                    t.join()
                    service.kill()
                    service.wait()
            times = r["times"]
            steps = [(e, e - b) for b, e in zip(times[25:], times[26:])]
            beside += [d for e, d in steps if any(a <= e <= b for a, b in gone)]
            others += [d for e, d in steps if not any(a <= e <= b for a, b in gone)]
            for a, b in gone:  # the sizes of the round before the kill, and of the fifth after the service was back
                before = max((i for i, e in enumerate(times[1:]) if e < a), default=None)
                after = next((i for i, e in enumerate(times[1:]) if e > b - 1), None)
                if before is not None and after is not None and after + 5 < len(r["rounds"]):
                    one, other = r["rounds"][before]["shares"], r["rounds"][after + 5]["shares"]
                    changes.append(max(abs(x - y) for x, y in zip(one, other)))
            samples.append(sum(sum(x["samples"]) for x in r["rounds"]) / len(r["rounds"]))
            print(k + 1, len(gone), "kills", r["counts"], r["problem"], file=sys.stderr, flush=True)
    at = lambda values, share: 1e3 * sorted(values)[int(share * (len(values) - 1))]  # noqa: E731
    times = lambda values: " / ".join(f"{at(values, q):.1f}" for q in (0.5, 0.99, 1)) if values else ""  # noqa: E731
    late = at(others, 0.5) / 1e3 + 0.05
    row("steps", "number", "ms: median / 99% / longest", "later than the others' median by more than 50 ms")
    row("from a kill to a second after the start", len(beside), times(beside), sum(x > late for x in beside))
    row("the others", len(others), times(others), sum(x > late for x in others))
    print(f"\nShares of the fifth round after a start against those before the kill: {len(changes)} kills, at most {max(changes, default=0)} samples of a rank other. Samples of a round: {min(samples):g} to {max(samples):g}.")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", choices=["waiting", "deadline", "quota", "quality", "client", "kills"])
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--virtual", action="store_true", help="clocks of the emulated devices in place of sleep: other work on the machine changes nothing")
    p.add_argument("--keep", metavar="FOLDER", help="the jobs' results, which another start takes up")
    a = p.parse_args()
    if a.keep:
        os.makedirs(a.keep, exist_ok=True)
    KEEP = a.keep
    CLOCK = ["--virtual"] if a.virtual else []
    {"waiting": waiting, "deadline": deadlines, "quota": quota, "quality": quality, "client": client, "kills": kills}[a.suite](a.runs)
