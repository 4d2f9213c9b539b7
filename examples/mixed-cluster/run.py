"""A job on a mixed cluster that has a bad day: three hosts of paces 1, 2 and 4, network namespaces with delay and bandwidth. A co-tenant comes, a loader is
slow, a link degrades, a host is lost and comes back. The job runs as PyTorch's examples have it, with batches split by hand in proportion to the hosts'
usual speeds, with Evenkeel, and with Evenkeel without one of its parts. All meet the same events at the same seconds.

    go build -o evenkeel ./cmd/evenkeel && pip install ./python transformers matplotlib
    sudo EVENKEEL=./evenkeel python examples/mixed-cluster/run.py --out day

Linux, as root. It prints a table, and writes day/figure.svg and what the jobs said.
"""

import argparse
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)

from hosts import Hosts

PACES = [1.0, 2.0, 4.0]
DELAY, BANDWIDTH = 0.0002, 125e6  # seconds of one way, bytes a second
EVENTS = [  # begin and end as shares of the job, what happens, to which host
    (0.12, 0.22, "co-tenant", 0),
    (0.30, 0.40, "slow loader", 1),
    (0.48, 0.58, "slow link", 2),
    (0.66, 0.76, "host lost", 2),
    (0.84, 0.88, "co-tenant", 1),
    (0.92, 0.96, "co-tenant", 1),
]
JOBS = {  # arguments of train.py
    "plain": ["--how=plain"],
    "by hand": ["--how=by-hand"],
    "evenkeel": ["--how=evenkeel"],
    "without buckets": ["--how=evenkeel", "--without=buckets"],
    "without tuner": ["--how=evenkeel", "--without=tuner"],
    "without checkpoints": ["--how=evenkeel", "--without=checkpoints"],
}


class Day:
    """The hosts, and a job over them."""

    def __init__(self, o, folder, arguments):
        self.o, self.folder, self.arguments = o, folder, arguments
        self.weather = np.memmap(os.path.join(folder, "weather"), np.float64, "w+", shape=(len(PACES), 4))
        self.weather[:] = [[p, 0.0, p, np.inf] for p in PACES]
        self.hosts, self.ranks = Hosts(len(PACES), DELAY, BANDWIDTH), {}

    def start(self, host):
        conf = f"is_host={str(host == 0).lower()},last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=300"
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", f"--nnodes={len(PACES) - 1}:{len(PACES)}", "--nproc-per-node=1", "--max-restarts=20", "--monitor-interval=0.5"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.hosts.address(0)}:29500", "--rdzv-id=day", f"--rdzv-conf={conf}", f"--local-addr={self.hosts.address(host)}"]
        command += [os.path.join(HERE, "train.py"), self.folder, *self.arguments]
        if host == 0 and "--how=evenkeel" in self.arguments and "--without=tuner" not in self.arguments:
            command = [os.path.abspath(os.environ["EVENKEEL"]), "serve", "--", *command]
        environment = {**os.environ, "HOST": str(host), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "ek0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        environment["PYTHONPATH"] = os.path.join(ROOT, "python")
        with open(os.path.join(self.folder, f"said.{host}"), "a") as said:
            self.ranks[host] = self.hosts.start(host, *command, env=environment, stdout=said, stderr=subprocess.STDOUT)

    def lose(self, host):
        pids = subprocess.run(["ip", "netns", "pids", self.hosts.names[host]], capture_output=True, text=True).stdout.split()
        for pid in map(int, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def happen(self, begins, what, host):
        if what == "co-tenant":
            self.weather[host, 0] = PACES[host] * (2.5 if begins else 1)
        elif what == "slow loader":
            self.weather[host, 1] = 0.02 if begins else 0
        elif what == "slow link":
            self.hosts.bandwidth[host] = BANDWIDTH / (100 if begins else 1)
        elif begins:
            self.lose(host)
        else:
            self.start(host)

    def run(self):
        """Runs the job with all that happens. Returns when its clock began."""
        try:
            for host in range(len(PACES)):
                self.start(host)
            first = os.path.join(self.folder, "log.0")
            while not os.path.exists(first) or not os.path.getsize(first):
                time.sleep(0.1)
                if all(p.poll() is not None for p in self.ranks.values()):
                    sys.exit(f"the job ended before its first step; {self.folder}/said.* has what the ranks said")
            began = time.time()
            self.weather[:, 3] = until = began + self.o.seconds
            for at, begins, what, host in sorted((at, at == b, what, host) for b, e, what, host in EVENTS for at in (b, e)):
                time.sleep(max(began + at * self.o.seconds - time.time(), 0))
                self.happen(begins, what, host)
            for p in self.ranks.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(max(until + 30 - time.time(), 1))
        finally:
            self.hosts.close()
        return began


def text(folder):
    """The pages of this repository, a paragraph a line. Returns their lengths."""
    lines = []
    for page in sorted(glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)):
        with open(page) as f:
            lines += [p.replace("\n", " ").encode()[:511] + b"\n" for p in f.read().split("\n\n") if len(p) > 15]
    with open(os.path.join(folder, "text"), "wb") as f:
        f.writelines(lines)
    return [len(line) - 1 for line in lines]


def plan(folder, lengths):
    """Pieces of equal duration, by what the emulated devices take: Host.compute in train.py."""
    with open(os.path.join(folder, "lengths"), "w") as f:
        f.writelines(f"{n}\n" for n in lengths)
    with open(os.path.join(folder, "table.csv"), "w") as f:
        print("length,batch,seconds,peak_bytes", file=f)
        for length in (16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512):
            for batch in (1, 2, 4, 8, 16, 32):
                if length * batch <= 512:
                    print(f"{length},{batch},{length * batch * (1 + length / 1024) / 24000},{length * batch * 1000}", file=f)
    subprocess.run([os.path.abspath(os.environ["EVENKEEL"]), "bucket", "plan", "--lengths", "lengths", "--table", "table.csv", "--ranks", "1", "--out", "plan.json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def notes(folder, began, seconds):
    """What the ranks trained while the clock ran and no restart took back: (seconds, tokens, sum of losses), by time; and the seconds that devices computed."""
    found, busy = [], 0.0
    for path in glob.glob(os.path.join(folder, "log.*")):
        with open(path) as f:
            own = [json.loads(line[line.rindex("{") :]) for line in f if line.endswith("}\n")]  # a killed rank may have torn its last line
        for before, n in zip([None, *own], own):
            if began <= n["at"] <= began + seconds:
                busy += n["busy"] - (before["busy"] if before and before["run"] == n["run"] else 0)
        found += own
    again = {}  # of each start of the ranks, its first step
    for n in found:
        again[n["run"]] = min(again.get(n["run"], n["step"]), n["step"])
    kept = [n for n in found if not any(run > n["at"] and first <= n["step"] for run, first in again.items())]
    return sorted((n["at"] - began, n["tokens"], n["loss"]) for n in kept if began <= n["at"] <= began + seconds), busy


def draw(found, seconds, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, left, right) = pyplot.subplots(3, 1, figsize=(9, 10))
    width = seconds / 60
    for name in ("plain", "by hand", "evenkeel"):
        if name not in found:
            continue
        at, tokens, loss = np.array(found[name]).T
        per, edges = np.histogram(at, np.arange(0, seconds + width, width), weights=tokens)
        top.stairs(per / width, edges, label=name)
        blocks = np.array_split(np.arange(len(at)), 60)
        mean = [loss[b].sum() / max(tokens[b].sum(), 1) for b in blocks]
        left.plot([at[b[-1]] for b in blocks], mean)
        right.plot([tokens[: b[-1]].sum() for b in blocks], mean)
    for begin, end, what, host in EVENTS:
        top.axvspan(begin * seconds, end * seconds, alpha=0.12, color="gray", lw=0)
        top.text(begin * seconds, 1.01, f"{what},\nhost {host}", fontsize=7, transform=top.get_xaxis_transform())
    top.set(xlabel="seconds", ylabel="tokens/s")
    left.set(xlabel="seconds", ylabel="loss")
    right.set(xlabel="tokens", ylabel="loss")
    top.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="day")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=["plain", "by hand", "evenkeel"], help="%(default)s; the others leave a part out")
    parser.add_argument("--seconds", type=float, default=240, help="of each job")
    o = parser.parse_args()
    if os.geteuid() or not os.environ.get("EVENKEEL"):
        sys.exit("run it as root, with EVENKEEL=path of the binary: it makes network namespaces")
    found, rows = {}, {}
    print(f"{'job':20s} tokens/s  over plain  devices idle  loss of the last tenth", flush=True)
    for name in o.only:
        folder = os.path.join(os.path.abspath(o.out), name.replace(" ", "-"))
        os.makedirs(folder)
        plan(folder, text(folder))
        found[name], busy = notes(folder, Day(o, folder, JOBS[name]).run(), o.seconds)
        last = found[name][-max(len(found[name]) // 10, 1) :]
        rows[name] = {"tokens_per_second": sum(n[1] for n in found[name]) / o.seconds, "idle": 1 - busy / o.seconds / len(PACES), "loss": sum(n[2] for n in last) / sum(n[1] for n in last)}
        r = rows[name]
        print(f"{name:20s} {r['tokens_per_second']:8.0f}  {r['tokens_per_second'] / rows[o.only[0]]['tokens_per_second']:9.2f}x  {r['idle']:11.0%}  {r['loss']:.3f}", flush=True)
    with open(os.path.join(o.out, "table.json"), "w") as f:
        json.dump(rows, f, indent=1)
    draw(found, o.seconds, os.path.join(o.out, "figure.svg"))


if __name__ == "__main__":
    main()
