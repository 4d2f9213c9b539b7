"""A job on mixed clusters that have bad days: hosts of unequal pace, network namespaces with delay and bandwidth, and what happens to them (scenario.py). All
entries meet the same events at the same seconds.

    go build -o evenkeel ./cmd/evenkeel && pip install ./python transformers matplotlib
    sudo EVENKEEL=./evenkeel python examples/mixed-cluster/run.py --out day
    sudo EVENKEEL=./evenkeel python examples/mixed-cluster/run.py --out many --scenario 1 2 3 --entries plain evenkeel

Linux, as root. It prints a table, and writes OUT/figure.svg, OUT/table.json and what the jobs said.
"""

import argparse
import collections
import contextlib
import glob
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)

import scenario
from hosts import Hosts

ENTRIES = {  # arguments of train.py
    "plain": ["--how=plain"],
    "by hand": ["--how=by-hand"],
    "shared": ["--how=shared"],
    "evenkeel": ["--how=evenkeel"],
    "without service": ["--how=evenkeel", "--without=service"],
    "without buckets": ["--how=evenkeel", "--without=buckets"],
    "without tuner": ["--how=evenkeel", "--without=tuner"],
    "without checkpoints": ["--how=evenkeel", "--without=checkpoints"],
}
SERVICE = "127.0.0.1:7070"  # within host 0


class Day:
    """The hosts, and a job over them. command: of a rank, before the folder."""

    def __init__(self, day, folder, command, seed):
        self.day, self.folder, self.command, self.seed = day, folder, command, seed
        self.weather = np.memmap(os.path.join(folder, "weather"), np.float64, "w+", shape=(len(day.paces), 4))
        self.weather[:] = [[p, 0.0, p, np.inf] for p in day.paces]
        self.disk = os.path.join(folder, "disk")
        os.makedirs(self.disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "evenkeel", self.disk], check=True)
        self.hosts, self.ranks, self.service = Hosts(len(day.paces), day.delay, day.bandwidth), {}, None
        self.lost = set()  # hosts

    def start(self, host):
        conf = f"is_host={str(host == 0).lower()},last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5,join_timeout=300"
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", f"--nnodes={max(len(self.day.paces) - 1, 1)}:{len(self.day.paces)}", "--nproc-per-node=1", "--max-restarts=1000", "--monitor-interval=0.5"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.hosts.address(0)}:29500", "--rdzv-id=day", f"--rdzv-conf={conf}", f"--local-addr={self.hosts.address(host)}"]
        environment = {**os.environ, "HOST": str(host), "SEED": str(self.seed), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "ek0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        environment["PYTHONPATH"] = os.path.join(ROOT, "python")
        if not {"--without=service", "--without=tuner"} & set(self.command):
            environment |= {"EVENKEEL_URL": f"http://{SERVICE}", "EVENKEEL_JOB": "day"}
        with open(os.path.join(self.folder, f"said.{host}"), "a") as said:
            self.ranks[host] = self.hosts.start(host, *command, self.command[0], self.folder, *self.command[1:], env=environment, stdout=said, stderr=subprocess.STDOUT)

    def serve(self):
        with open(os.path.join(self.folder, "said.service"), "a") as said:
            command = [os.path.abspath(os.environ["EVENKEEL"]), "serve", "--listen", SERVICE, "--state", os.path.join(self.folder, "state")]
            self.service = self.hosts.start(0, *command, stdout=said, stderr=subprocess.STDOUT)

    def happen(self, begins, what, host, by):
        everywhere = range(len(self.day.paces)) if what == "power lost" else [host]
        if what == "co-tenant":
            self.weather[host, 0] = self.day.paces[host] * (by if begins else 1)
        elif what == "slow loader":
            self.weather[host, 1] = by if begins else 0
        elif what == "slow link":
            self.hosts.bandwidth[host] = self.day.bandwidth / (by if begins else 1)
        elif what == "frozen":
            self.hosts.signal(host, signal.SIGSTOP if begins else signal.SIGCONT)
        elif what == "killed":
            if begins:
                self.hosts.signal(host, signal.SIGKILL, lambda command: self.command[0] in command and "torch.distributed.run" not in command)
        elif what == "disk full":
            ballast = os.path.join(self.disk, "ballast")
            if begins:
                with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as f:
                    while True:
                        f.write(bytes(1 << 16))
            else:
                os.remove(ballast)
        elif what == "service":
            if begins:
                self.service.kill()
            else:
                self.serve()
        elif begins:
            self.lost |= set(everywhere)
            for h in everywhere:
                self.hosts.signal(h, signal.SIGKILL)
        else:
            self.lost -= set(everywhere)
            if what == "power lost":
                self.serve()
            for h in everywhere:
                self.start(h)

    def wait(self, until):
        """Meanwhile torchrun is started again where it gave up, as a cluster's scheduler does."""
        while time.time() < until:
            time.sleep(min(0.5, max(until - time.time(), 0)))
            for host, p in self.ranks.items():
                if p.poll() is not None and host not in self.lost:
                    self.start(host)

    def run(self):
        """Runs the job with all that happens. Returns when its clock began, and the seconds of its start."""
        try:
            born = time.time()
            self.serve()
            for host in range(len(self.day.paces)):
                self.start(host)
            first = os.path.join(self.folder, "log.0")
            while not os.path.exists(first) or not os.path.getsize(first):
                time.sleep(0.1)
                if all(p.poll() is not None for p in self.ranks.values()):
                    sys.exit(f"the job ended before its first step; {self.folder}/said.* has what the ranks said")
            began = time.time()
            self.weather[:, 3] = until = began + self.day.seconds
            for at, begins, e in sorted(((e[at], at == "at", e) for e in self.day.events for at in ("at", "until")), key=lambda x: x[0]):
                self.wait(began + at)
                self.happen(begins, e["what"], e["host"], e["by"])
            self.wait(until)
            for p in self.ranks.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(max(until + 30 - time.time(), 1))
        finally:
            self.hosts.close()
            subprocess.run(["umount", "--lazy", self.disk], check=False)
        return began, began - born


def text(folder):
    """The pages of this repository, a paragraph a line. Returns their lengths."""
    lines = []
    for page in sorted(glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)):
        with open(page) as f:
            lines += [p.replace("\n", " ").encode()[:511] + b"\n" for p in f.read().split("\n\n") if len(p) > 15]
    with open(os.path.join(folder, "text"), "wb") as f:
        f.writelines(lines)
    return [len(line) - 1 for line in lines]


def notes(folder):
    """What the ranks trained, by time; what restarts took back; and the seconds that each note's device had computed since the one before."""
    found = []
    for path in glob.glob(os.path.join(folder, "log.*")):
        with open(path) as f:
            own = [json.loads(line[line.rindex("{") :]) for line in f if line.endswith("}\n")]  # a killed rank may have torn its last line
        for before, n in zip([None, *own], own):
            n["took"] = n["busy"] - (before["busy"] if before and before["run"] == n["run"] else 0)
        found += own
    found.sort(key=lambda n: n["at"])
    again = {}  # of each start of the ranks, its first step
    for n in found:
        again[n["run"]] = min(again.get(n["run"], n["step"]), n["step"])
    back = [any(run > n["at"] and first <= n["step"] for run, first in again.items()) for n in found]
    return [n for n, b in zip(found, back) if not b], [n for n, b in zip(found, back) if b], found


def judge(rows, day, lengths):
    """Compares the entries of a scenario. The quickest start of a job is that of the bound, too."""
    bound = day.bound(lengths, min(r["start"] for r in rows))
    for r in rows:
        r["of_bound"] = r["tokens_per_second"] / bound
        r["of_first"] = r["tokens_per_second"] / max(rows[0]["tokens_per_second"], 1)


def score(day, folder, began, start, lengths):
    kept, back, found = notes(folder)
    timed = [n for n in kept if began <= n["at"] <= began + day.seconds]
    last = timed[-max(len(timed) // 10, 1) :]
    times = collections.Counter({i: 0 for i in range(len(lengths))})
    times.update(i for n in kept for i in n["samples"])
    at = [n["at"] for n in found if n["at"] <= began + day.seconds]
    return {
        "tokens_per_second": sum(n["tokens"] for n in timed) / day.seconds,
        "idle": 1 - sum(n["took"] for n in found if began <= n["at"] <= began + day.seconds) / day.seconds / len(day.paces),
        "loss": sum(n["loss"] for n in last) / max(sum(n["tokens"] for n in last), 1),
        "start": start,
        "starts": len({n["run"] for n in found}),
        "steps": len({n["step"] for n in kept}),
        "steps_taken_back": len({n["step"] for n in back}),
        "longest_pause": max(b - a for a, b in zip(at, at[1:])),
        "sample_times": [min(times.values()), max(times.values())],
    }, [(n["at"] - began, n["tokens"], n["loss"]) for n in timed]


def draw(day, found, path):
    """One scenario: its events, tokens per second, and loss."""
    figure, (top, left, right) = pyplot.subplots(3, 1, figsize=(9, 10))
    width = day.seconds / 24
    for name, timed in found.items():
        if not timed:
            continue
        at, tokens, loss = np.array(timed).T
        per, edges = np.histogram(at, np.arange(0, day.seconds + width, width), weights=tokens)
        top.stairs(per / width, edges, label=name)
        blocks = np.array_split(np.arange(len(at)), 60)
        mean = [loss[b].sum() / max(tokens[b].sum(), 1) for b in blocks]
        left.plot([at[b[-1]] for b in blocks if len(b)], mean[: len(at)])
        right.plot([tokens[: b[-1]].sum() for b in blocks if len(b)], mean[: len(at)])
    for e in day.events:
        top.axvspan(e["at"], e["until"], alpha=0.12, color="gray", lw=0)
        top.text(e["at"], 1.01, f"{e['what']},\nhost {e['host']}", fontsize=7, transform=top.get_xaxis_transform())
    top.set(xlabel="seconds", ylabel="tokens/s")
    left.set(xlabel="seconds", ylabel="loss")
    right.set(xlabel="tokens", ylabel="loss")
    top.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path)


def compare(rows, entries, path):
    """Several scenarios: each entry's share of the bound."""
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for i, name in enumerate(entries):
        own = [r for r in rows if r["entry"] == name]
        axes.bar([k + (i - len(entries) / 2) * 0.8 / len(entries) for k in range(len(own))], [r["of_bound"] for r in own], width=0.8 / len(entries), align="edge", label=name)
    axes.set(xlabel="scenario, seed", ylabel="tokens/s over the bound", xticks=range(len(own)))
    axes.set_xticklabels([f"{r['scenario']}, {r['seed']}" for r in own], rotation=90)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="day", help="folder; entries that it has are not run again (%(default)s)")
    parser.add_argument("--scenario", nargs="+", default=[os.path.join(HERE, "bad-day.json")], help="files, or seeds of scenarios to draw; default: bad-day.json")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of weights and the order of samples")
    parser.add_argument("--entries", nargs="+", default=["plain", "by hand", "shared", "evenkeel"], metavar="NAME", help=f"of {', '.join(ENTRIES)}; or NAME=SCRIPT, run as train.py is")
    parser.add_argument("--seconds", type=float, help="of each job, instead of the scenario's; its events move with it")
    o = parser.parse_args()
    if os.geteuid() or not os.environ.get("EVENKEEL"):
        sys.exit("run it as root, with EVENKEEL=path of the binary: it makes network namespaces")
    entries = {}
    for name in o.entries:
        name, _, script = name.partition("=")
        if not script and name not in ENTRIES:
            parser.error(f"entry {name!r}: one of {', '.join(ENTRIES)}, or NAME=SCRIPT")
        entries[name] = [os.path.abspath(script)] if script else [os.path.join(HERE, "train.py"), *ENTRIES[name]]
    days = {}
    for s in o.scenario:
        day = scenario.draw(int(s)) if s.isdigit() else scenario.read(s)
        days[os.path.basename(s).removesuffix(".json")] = day.scaled(o.seconds or day.seconds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no host is left behind
    rows, found = [], {}
    todo = list(itertools.product(days.items(), o.seeds, entries.items()))
    for k, ((where, day), seed, (name, command)) in enumerate(todo):
        left = sum(d.seconds + 30 for (_, d), _, _ in todo[k:]) / 60
        print(f"{where}, seed {seed}, {name}: entry {k + 1} of {len(todo)}, {left:.0f} minutes left", file=sys.stderr, flush=True)
        folder = os.path.join(os.path.abspath(o.out), f"{where}-{seed}", name.replace(" ", "-"))
        kept = os.path.join(folder, "score.json")
        if not os.path.exists(kept):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            lengths = text(folder)
            row, timed = score(day, folder, *Day(day, folder, command, seed).run(), lengths)
            with open(kept, "w") as f:
                json.dump([{"scenario": where, "seed": seed, "entry": name, **row}, timed, lengths], f)
        with open(kept) as f:
            row, found[name], lengths = json.load(f)
        rows.append(row)
        if len(rows) % len(entries) == 0:
            judge(rows[-len(entries) :], day, lengths)
    print(f"{'scenario':10s} seed {'entry':20s} tokens/s  of {rows[0]['entry']}  of bound  devices idle  loss of the last tenth  steps  taken back  longest pause")
    for r in rows:
        print(f"{r['scenario']:10s} {r['seed']:4d} {r['entry']:20s} {r['tokens_per_second']:8.0f}  {r['of_first']:{3 + len(rows[0]['entry'])}.2f}  {r['of_bound']:8.2f}  {r['idle']:12.0%}  {r['loss']:22.3f}  {r['steps']:5d}  {r['steps_taken_back']:10d}  {r['longest_pause']:12.1f}s")
        if r["sample_times"][1] - r["sample_times"][0] > 1:
            print(f"           samples were trained {r['sample_times'][0]} to {r['sample_times'][1]} times")
    with open(os.path.join(o.out, "table.json"), "w") as f:
        json.dump(rows, f, indent=1)
    path = os.path.join(o.out, "figure.svg")
    if len(rows) == len(entries):
        draw(day, found, path)
    else:
        compare(rows, entries, path)


if __name__ == "__main__":
    main()
