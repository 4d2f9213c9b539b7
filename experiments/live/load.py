"""Load on one service with a journal: python3 experiments/live/load.py [--jobs 100] [--ranks 100] [--rate 2] [--seconds 60], evenkeel in EVENKEEL or on PATH.

Jobs of simulated ranks (evenkeel workers) report so many rounds a second each. The service has the first processor, the workers the second (taskset). Processor time counts, since
others may share the machine; answers are timed by the workers, so they wait for whatever else runs there.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

EVENKEEL = os.environ.get("EVENKEEL", "evenkeel")


def pinned(processor, *command, **options):
    return subprocess.Popen(["taskset", "-c", str(processor), EVENKEEL, *command], **options)


def used(pid):
    """Processor seconds and resident bytes."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def alive(at):
    """Bytes of the heap that were in use after the newest garbage collection: resident memory is that and whatever was garbage since, or has not been given back."""
    text = urllib.request.urlopen(f"http://{at}/metrics").read().decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("go_memstats_next_gc_bytes "))) / 2  # the next one comes at twice that


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--jobs", type=int, default=100)
    p.add_argument("--ranks", type=int, default=100)
    p.add_argument("--rate", type=float, default=2, help="rounds a second of each job")
    p.add_argument("--seconds", type=float, default=60)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = os.path.join(folder, "cluster.yaml")
        third = a.ranks // 3
        with open(cluster, "w") as f:
            f.write(f"workload: gpt-1.3b-512-fp32\nglobal_batch: {40 * a.ranks}\nnodes:\n  - {{device: a6000, count: {third}}}\n  - {{device: l40s, count: {third}}}\n  - {{device: p40, count: {a.ranks - 2 * third}}}\n")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            at = f"127.0.0.1:{s.getsockname()[1]}"
        most = ["--max-jobs", str(a.jobs + 1)]
        service = pinned(0, "serve", "--state", os.path.join(folder, "state"), "--listen", at, *most, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"http://{at}/livez").read()
                    break
                except OSError:
                    time.sleep(0.05)
            workers = ["workers", "--url", f"http://{at}", "--cluster", cluster, "--json"]
            first = json.loads(subprocess.check_output([EVENKEEL, *workers, "--job", "first", "--rounds", "10", "--speed", "0"]))["jobs"][0]
            speed = first["seconds"] / first["rounds"] * a.rate
            rounds = int(a.seconds * a.rate)
            before, begun = used(service.pid)[0], time.monotonic()
            answer = os.path.join(folder, "result.json")  # a pipe that nobody reads would hold the workers up
            with open(answer, "w") as f:
                load = pinned(1, *workers, "--jobs", str(a.jobs), "--rounds", str(rounds), "--speed", str(speed), stdout=f)
            memory, pause = [], a.seconds / 40
            while load.poll() is None:
                if time.monotonic() - begun > pause * (len(memory) + 1):
                    memory.append((time.monotonic() - begun, used(service.pid)[1], alive(at)))
                time.sleep(0.02)
            took, spent = time.monotonic() - begun, used(service.pid)[0] - before
            if load.returncode:
                raise SystemExit("the workers failed")
            with open(answer) as f:
                result = json.load(f)
            accepted = sum(j["verdicts"].get("accepted", 0) for j in result["jobs"])
            state = sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(os.path.join(folder, "state")) for f in names)
            print(f"{a.jobs} jobs of {a.ranks} ranks, {rounds} rounds each in {took:.1f} s: {result['reports']} reports, {accepted} accepted, {accepted / took:.0f} a second")
            print(f"service: {spent / took:.3f} of a core, {1000 * spent / accepted:.2f} ms of processor time a report; answers {1000 * result['answer_seconds_median']:.1f} ms at the median, {1000 * result['answer_seconds_p99']:.1f} ms for 99 in 100")
            print("resident memory by fortieths, MB:", " ".join(f"{m / 1e6:.0f}" for _, m, _ in memory), f"; journal {state / 1e6:.1f} MB")
            print("live heap, MB:", " ".join(f"{m / 1e6:.1f}" for *_, m in memory))
            late = [(t, m) for t, _, m in memory if t > min(600 / a.rate, a.seconds / 2)]  # until then the history of jobs fills up
            if len(late) > 3:
                line = statistics.linear_regression(*zip(*late))
                mean, middle = statistics.mean(m for _, m in late), statistics.mean(t for t, _ in late)
                rest = sum((m - line.slope * t - line.intercept) ** 2 for t, m in late) / (len(late) - 2)
                error = (rest / sum((t - middle) ** 2 for t, _ in late)) ** 0.5
                print(f"a line through the live heap after {late[0][0]:.0f} s: {360_000 * line.slope / mean:+.2f}% an hour, standard error {360_000 * error / mean:.2f}")
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
