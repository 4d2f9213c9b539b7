"""Measures jobs on emulated devices (job.py): python3 experiments/live/run.py SUITE [--runs N], with /usr/bin/python3 and evenkeel in EVENKEEL or on PATH.

waiting   rounds that wait for all, first and last rank swap speeds in mid-run: equal shares, the best split of a sweep, proportional control, the service
deadline  noise and bursts: waiting for all, deadline rounds, hivemind's rule, the service with a deadline; sizes right in the mean for the first three
quality   loss and accuracy after the same number of samples, by seed
client    the tuner's own time in a step; a service that is gone, hangs, or talks nonsense
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python"), os.path.join(HERE, "..", "..", "python", "tests")]

import policies

CLOCK = []
EVENKEEL = os.environ.get("EVENKEEL", "evenkeel")
PACES = [1, 1.5, 2, 4]
SLOW = ["--alpha", "0.008", "--beta", "0.0012"]  # a round of some 150 ms: other work on the machine weighs little


def free_port():
    """--standalone has one port for all jobs of the machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(policy, *options, ranks=4, url=None):
    """What a job reports. The service, where there is one, lives as long as the job."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "out.json")
        job = ["nice", "-n", "-15"] if os.geteuid() == 0 else []
        job += [sys.executable, "-m", "torch.distributed.run", "--master_addr", "127.0.0.1", "--master_port", str(free_port()), "--nproc_per_node", str(ranks), "--redirects", "1", "--tee", "1"]
        job += [os.path.join(HERE, "job.py"), "--policy", policy, "--out", out, *CLOCK, *map(str, options)]
        served = policy == "served" and not url
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "EVENKEEL_URL": url or "http://rule"}
        p = subprocess.run([EVENKEEL, "serve", "--", *job] if served else job, env=environment, capture_output=True, text=True, timeout=600)
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
    for k in range(runs):
        common = [*SLOW, "--seed", k + 1, "--noise", 0.03 if CLOCK else 0]  # else all runs are the same
        even = speed(run("uniform", *common, "--rounds", 20), 3)
        before = speed(run("static", *common, "--shares", *static[tuple(PACES)][1], "--rounds", 40), 5)
        after = speed(run("static", *common, "--paces", *swapped, "--shares", *static[tuple(swapped)][1], "--rounds", 40), 5)
        prop = run("proportional", *common, "--rounds", rounds, "--swap", swap)
        own = run("served", *common, "--rounds", rounds, "--swap", swap)
        v = speed(own, 20, swap - 1)
        back = next((n for n in range(60) if statistics.median(speed(own, swap + n + j, swap + n + j + 1) for j in range(5)) >= 0.95 * after), ">60")
        worst = min(speed(own, a, a + 100) / speed(prop, a, a + 100) for a in range(0, rounds - 101, 5))
        late = speed(own, swap + 20)
        row(k + 1, f"{even:.0f}", f"{before:.0f}", f"{speed(prop, 20, swap - 1):.0f}", f"{v:.0f}", f"{v / before:.3f}", f"{v / even:.2f}", back, f"{late / after:.3f}", f"{worst:.3f}")
        all_.append((v / before, v / even, late / after, worst))
    a, b, c, d = (spread(column, "{:.3f}") for column in zip(*all_))
    row("least / median", "", "", "", "", a, b, "", c, d)


def deadlines(runs):
    """8 micro-steps a share."""
    s = shares(8 * 0.004, 0.0012, PACES, 256)  # each of the 8 micro-steps costs its overhead
    row("noise of a round", "bursts", "waiting for all", "deadline", "hivemind", "service, deadline auto", "deadline / waiting", "service / waiting", "idle: waiting", "deadline", "service", "samples of a round, deadline", "service")
    for noise, bursts in ((0.03, 0), (0.1, 0), (0.1, 0.06)):
        table = []
        for k in range(runs):
            common = ["--alpha", 0.004, "--beta", 0.0012, "--noise", noise, "--bursts", bursts, "--steps", 8, "--shares", *s, "--seed", k + 1, "--rounds", 100]
            rs = [run(p, *common, *(["--deadline", "auto"] if p != "static" else [])) for p in ("static", "timed", "expected", "served")]
            v, first = [speed(r, 25) for r in rs], 25
            mean = [statistics.mean(sum(x["samples"]) for x in r["rounds"][first:]) for r in rs]
            table.append((*v, v[1] / v[0], v[3] / v[0], idle(rs[0], first), idle(rs[1], first), idle(rs[3], first), mean[1], mean[3]))
        forms = ["{:.0f}"] * 4 + ["{:.2f}"] * 5 + ["{:.1f}"] * 2
        row(f"{noise:.0%}", f"{bursts:.0%}", *(spread(c, f) for c, f in zip(zip(*table), forms)))


def quality(runs):
    row("policy", "loss on the test set, by seed", "mean", "accuracy, by seed", "mean")
    for name, policy, options in (("equal shares", "uniform", []), ("service", "served", []), ("service, deadline auto", "served", ["--deadline", "auto", "--steps", 4])):
        rs = [run(policy, "--alpha", 0.002, "--beta", 0.0003, "--samples", 36000, "--seed", k + 1, "--noise", 0.1, *options) for k in range(runs)]
        loss, right = [r["loss"] for r in rs], [r["accuracy"] for r in rs]
        row(name, " ".join(f"{x:.3f}" for x in loss), f"{statistics.mean(loss):.3f}", " ".join(f"{x:.3f}" for x in right), f"{statistics.mean(right):.3f}")


def client(runs):
    """A fake service (python/tests/fake_service.py) turns bad in the course of the job. Processor time is what another load on the machine cannot change."""
    import fake_service

    row("service", "tuner's own time in a step, median", "99%", "longest", "own processor time, median", "99%", "longest step")
    for mode in ("good", "hang", "nonsense", "gone"):
        own, processor, steps = [], [], []
        for k in range(2 * runs):
            service = fake_service.Service(lambda reports, _: ([130, 126],) if len(reports) % 2 else ([126, 130],))

            def turn():
                if mode == "gone":
                    service.stop()
                else:
                    service.mode = mode

            threading.Timer(7.0, turn).start()
            options = ["--paces", 1, 1, "--alpha", 0.004, "--beta", 0.0001, "--rounds", 500, *(["--processor"] if k % 2 else [])]
            r = run("served", *options, ranks=2, url=service.url)
            (processor if k % 2 else own).extend(r["own"][20:])
            if k % 2 == 0:
                steps += [b - a for a, b in zip(r["times"][20:], r["times"][21:])]
        at = lambda values, share: f"{1e3 * sorted(values)[int(share * (len(values) - 1))]:.2f} ms"  # noqa: E731
        row(mode, at(own, 0.5), at(own, 0.99), at(own, 1), at(processor, 0.5), at(processor, 0.99), f"{at(steps, 1)} (median {at(steps, 0.5)})")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", choices=["waiting", "deadline", "quality", "client"])
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--virtual", action="store_true", help="clocks of the emulated devices in place of sleep: other work on the machine changes nothing")
    a = p.parse_args()
    CLOCK = ["--virtual"] if a.virtual else []
    {"waiting": waiting, "deadline": deadlines, "quality": quality, "client": client}[a.suite](a.runs)
