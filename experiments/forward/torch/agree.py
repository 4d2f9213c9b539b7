"""Go's and torch's processors in one run of 10,000 steps: one joins late, one is killed and comes back, one stays away for a while. Then the log is
replayed by both, and all weights are compared.

    go build -o /tmp/evenkeel ./cmd/evenkeel && EVENKEEL=/tmp/evenkeel /usr/bin/python3 experiments/forward/torch/agree.py
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "..", "..", "python", "tests")
sys.path[:0] = [TESTS, os.path.join(TESTS, "..")]

import forward_rank  # noqa: E402
from evenkeel import forward  # noqa: E402
from evenkeel.forward import nats, rounds  # noqa: E402
from evenkeel.checkpoint.interchange import from_safetensors  # noqa: E402
from processes import free_port  # noqa: E402

EVENKEEL, STEPS, SIZE = os.environ["EVENKEEL"], int(os.environ.get("STEPS", 10000)), 8


def main(folder):
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    started = [subprocess.Popen([EVENKEEL, "forward", "serve", "--store", "store", "--listen", f"127.0.0.1:{port}"], cwd=folder, stderr=subprocess.DEVNULL)]
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        with open(os.path.join(folder, "store", "tokens"), encoding="utf-8") as f:
            tokens = dict(line.split() for line in f)

        def start(token, *command):
            p = subprocess.Popen(command, cwd=folder, env={**os.environ, "EVENKEEL_NATS_TOKEN": tokens[token]}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            started.append(p)
            return p

        def go(rank):
            return start(f"rank{rank}", EVENKEEL, "forward", "join", "--url", url, "--run", "run", "--rank", str(rank), "--json")

        def torch_(rank):
            a = {"url": url, "run": "run", "rank": rank, "size": SIZE, "token": tokens[f"rank{rank}"]}
            return start(f"rank{rank}", sys.executable, os.path.join(TESTS, "forward_rank.py"), json.dumps(a))

        launch = start("launch", EVENKEEL, "forward", "launch", "-n", "6", "--url", url, "--run", "run", "--manual", "--steps", str(STEPS), "--size", str(SIZE), "--examples", "8", "--log", "run.log")
        c = nats.Connection(url, tokens["launch"], "launch")
        stream = nats.Stream(c, "EVENKEEL_run")
        while True:
            try:
                stream.message(1)
                break
            except forward.Refused:
                time.sleep(0.1)
        ranks = {0: go(0), 1: torch_(1), 2: torch_(2), 3: go(3)}
        stream.read(2, "evenkeel.forward.run.frame.>")

        def reach(step):
            while True:
                if any((rounds.read_frame(d) or (0,))[0] >= step for _, _, d in stream.take(5)[0]):
                    return
                dead = [r for r, p in ranks.items() if p.poll() not in (None, 0, -9)]
                assert not dead, (dead, ranks[dead[0]].communicate())

        reach(STEPS // 10)
        ranks[4], ranks[5] = torch_(4), go(5)  # the third pair joins late
        reach(STEPS * 3 // 10)
        ranks[1].kill()  # torch, and Go at once again
        ranks[3].kill()
        ranks[3] = go(3)
        reach(STEPS * 5 // 10)
        ranks[1] = torch_(1)  # was away for a fifth of the run
        ranks[0].kill()
        ranks[0] = go(0)
        results = {r: json.loads(p.communicate()[0]) for r, p in ranks.items()}
        _, err = launch.communicate()
        hashes = {r: v.get("weights_hash", v.get("hash")) for r, v in results.items()}
        print(f"{STEPS} steps, ranks {sorted(hashes)}: {len(set(hashes.values()))} hash{'es' if len(set(hashes.values())) > 1 else ''} of the weights, {hashes[0][:16]}...; launch's exit status {launch.returncode}")
        print(f"pairs that did not count, of {3 * STEPS}, as rank 2 saw it: {sum(results[2]['absent'].values())}")
        w = forward_rank.network(SIZE)
        replayed = forward.replay(os.path.join(folder, "run.log"), [forward.Part(n, t) for n, t in w.items()]).hash()
        out = subprocess.run([EVENKEEL, "forward", "replay", "run.log", "--export", "go.safetensors"], cwd=folder, capture_output=True, text=True)
        assert out.returncode == 0, out.stderr
        module = torch.nn.Module()
        for n, t in w.items():
            module.register_buffer(n.replace(".", "_"), torch.zeros_like(t))
        from_safetensors(os.path.join(folder, "go.safetensors"), module, rename=lambda n: n.replace("_", ".", 1))
        differ = sum(int((t.view(torch.int32) != b.view(torch.int32)).sum()) for t, b in zip(w.values(), module.buffers()))
        print(f"replayed by torch: {'the same' if replayed == hashes[0] else 'ANOTHER'} hash; by Go: {differ} of {sum(t.numel() for t in w.values())} weights differ from torch's; log of {os.path.getsize(os.path.join(folder, 'run.log'))} bytes")
    finally:
        for p in started:
            p.kill()
            p.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        main(d)
