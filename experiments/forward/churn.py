"""Processors behind slow lines, of which a fifth is away at any time: each a process in a network namespace of its own, killed and started again. How long
the steps after the first block take, and whether all end with the same weights. Linux, as root, with openssl.

    go build -o /tmp/evenkeel ./cmd/evenkeel
    EVENKEEL=/tmp/evenkeel python3 experiments/forward/churn.py [--processors 50] [--away 10] [--lives 0 240 60]
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "mixed-cluster"))

import hosts as network


class Run:
    """A run of the broker on host 0; rank r is on host r + 1."""

    def __init__(self, o, hosts, folder, name):
        self.hosts, self.folder, self.name, self.processors = hosts, folder, name, o.processors
        with open(os.path.join(folder, "tokens")) as f:
            self.tokens = dict(line.split() for line in f)
        self.launch = self.command(0, "launch", "launch", "-n", str(o.processors), "--steps", str(o.steps), "--examples", "8", "--json", stdout=subprocess.PIPE)
        line = ""
        while f"--rank {o.processors - 1}" not in line:
            line = self.launch.stderr.readline()
            if not line:
                sys.exit("launch failed")
        self.ranks = {}

    def command(self, host, user, *words, **arguments):
        words = ("forward", *words, "--url", f"tls://{self.hosts.address(0)}:4222", "--ca", "cert.pem", "--run", self.name)
        environment = {**os.environ, "EVENKEEL_NATS_TOKEN": self.tokens[user], "GOMAXPROCS": "1"}
        return self.hosts.start(host, os.path.abspath(os.environ["EVENKEEL"]), *words, env=environment, cwd=self.folder, text=True, **{"stderr": subprocess.PIPE, **arguments})

    def start(self, rank):
        self.ranks[rank] = self.command(rank + 1, f"rank{rank}", "join", "--rank", str(rank), "--json", stdout=subprocess.PIPE, stderr=None)

    def kill(self, rank):
        self.ranks[rank].kill()
        self.ranks.pop(rank).wait()

    def churn(self, away, life):
        """Kills a rank and starts the one that has been away for longest, so often that each lives for life seconds; returns how many were killed."""
        order = random.Random(1).sample(range(self.processors), self.processors)
        for rank in order[:away]:
            self.kill(rank)
        killed = 0
        while not self.over.wait(life / (self.processors - away)):
            self.start(order[killed % self.processors])
            self.kill(order[(killed + away) % self.processors])
            killed += 1
        return killed

    def follow(self):
        """Notes when blocks end."""
        for line in self.launch.stderr:
            if found := re.search(r"(\d+) of \d+ steps", line):
                self.seen.append((time.monotonic(), int(found[1])))
        self.over.set()

    def measure(self, away, life):
        self.over, self.seen = threading.Event(), []
        threading.Thread(target=self.follow, daemon=True).start()
        for rank in range(self.processors):
            self.start(rank)
        while not self.seen:
            time.sleep(0.1)
        killed = self.churn(away, life) if life else self.over.wait() - 1
        said, _ = self.launch.communicate()
        if self.launch.returncode:
            sys.exit("launch failed")
        summary = json.loads(said)
        for rank in set(range(self.processors)) - set(self.ranks):
            self.start(rank)  # reads the weights
        hashes = {json.loads(p.communicate()[0])["weights_hash"] for p in self.ranks.values()} | set(summary["weights_hash"])
        (first, done), (last, all) = self.seen[0], self.seen[-1]
        absent = sum(summary["absent_steps"]) / len(summary["absent_steps"]) / all
        print(f"lives of {life:.0f} s: {1e3 * (last - first) / (all - done):.0f} ms a step over {all - done} steps, {killed} killed meanwhile, a pair absent in {absent:.2f} of the steps, "
              f"test loss {summary['loss']:.3f}, {len(hashes)} results among {self.processors} ranks", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processors", type=int, default=50)
    parser.add_argument("--away", type=int, default=10, help="ranks that are dead at any time")
    parser.add_argument("--lives", type=float, nargs="+", default=[0, 240, 60], help="seconds from a rank's start to its end, a run for each; 0: none is killed")
    parser.add_argument("--steps", type=int, default=448)
    parser.add_argument("--delay", type=float, default=50, help="milliseconds of one way")
    parser.add_argument("--bandwidth", type=float, default=1, help="Mbit/s of a rank, each way")
    o = parser.parse_args()
    line = o.bandwidth * 1e6 / 8
    network.MTU = 1500
    with network.Hosts(o.processors + 1, delay=o.delay / 1e3, bandwidth=line, receives=line) as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.bandwidth[0] = hosts.receives[0] = 125e6  # the broker is in a data centre
        made = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=broker -addext subjectAltName=IP:{hosts.address(0)} -keyout key.pem -out cert.pem"
        subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
        words = ["--store", ".", "--listen", f"{hosts.address(0)}:4222", "--cert", "cert.pem", "--key", "key.pem", "--ranks", str(o.processors)]
        with open(os.path.join(folder, "log"), "w") as log:
            hosts.start(0, os.path.abspath(os.environ["EVENKEEL"]), "forward", "serve", *words, cwd=folder, stderr=log, stdout=log)
        time.sleep(2)
        for i, life in enumerate(o.lives):
            Run(o, hosts, folder, f"run{i}").measure(o.away, life)


if __name__ == "__main__":
    main()
