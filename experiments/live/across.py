"""Jobs over three hosts: network namespaces with delay and bandwidth, torchrun on each, the service with TLS and tokens on the first. Samples per second
with the library's own division of a batch and with tuned sizes; the hosts' devices have paces 1, 2 and 4. Linux, as root, with openssl.

    go build -o /tmp/evenkeel ./cmd/evenkeel
    EVENKEEL=/tmp/evenkeel python experiments/live/across.py [--only fsdp2] [--delay 0.2 5] [--rounds 60]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "examples", "mixed-cluster"))

import trainers
from hosts import Hosts

HOSTS = 3


def rank(o):
    """What torchrun starts on each host."""
    if o.rank in ("ddp", "fsdp2"):
        trainers.dist.init_process_group("gloo")
    speed, _ = trainers.job(o.rank, o.rounds, o.tuned)
    if trainers.dist.get_rank() == 0:
        print(f"samples/s {speed}", flush=True)
    trainers.dist.destroy_process_group()


def secrets(folder, address):
    """Certificates and the administrator's token."""
    for command in (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=authority -keyout ca.key -out ca.pem",
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=evenkeel -keyout key.pem -out request.pem",
        f"echo subjectAltName=IP:{address} > names; openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names -out cert.pem",
        "umask 077; openssl rand -hex 32 > token",
    ):
        subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)
    with open(os.path.join(folder, "token")) as f:
        return f.read().strip()


def run(o, hosts, name, tuned, environment):
    """Samples per second of one job."""
    ranks = []
    for host in range(HOSTS):
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", f"--nnodes={HOSTS}", f"--node-rank={host}", "--nproc-per-node=1", f"--master-addr={hosts.address(0)}", "--master-port=29500"]
        command += [os.path.abspath(__file__), "--rank", name, "--rounds", str(o.rounds), *(["--tuned"] if tuned else [])]
        ranks.append(hosts.start(host, *command, env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "ek0"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [p.communicate()[0] for p in ranks]
    if any(p.returncode for p in ranks):
        sys.exit("\n".join(said))
    return float(next(line for line in said[0].splitlines() if line.startswith("samples/s")).split()[1]), said[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[j for j in trainers.JOBS if j != "hsdp"], default=["ddp", "fsdp2", "huggingface"])
    parser.add_argument("--delay", type=float, nargs="+", default=[0.2, 5.0], help="milliseconds of one way")
    parser.add_argument("--bandwidth", type=float, default=125, help="MB/s of each host")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--tuned", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    trainers.PACES[:] = [1, 2, 4]
    trainers.BATCH = trainers.STEPS * trainers.EACH * HOSTS
    if o.rank:
        rank(o)
        return
    program = os.path.abspath(os.environ["EVENKEEL"])
    with Hosts(HOSTS, bandwidth=o.bandwidth * 1e6) as hosts, tempfile.TemporaryDirectory() as folder:
        url, token = f"https://{hosts.address(0)}:7070", secrets(folder, hosts.address(0))
        known = {"EVENKEEL_URL": url, "EVENKEEL_CA": os.path.join(folder, "ca.pem")}
        with open(os.path.join(folder, "log"), "w") as log:
            hosts.start(0, program, "serve", "--listen", "0.0.0.0:7070", "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--token-file", "token", cwd=folder, stderr=log)
        time.sleep(2)

        def jobs(*words, token):
            made = hosts.start(1, program, "jobs", *words, env={**os.environ, **known, "EVENKEEL_TOKEN": token}, stdout=subprocess.PIPE, text=True)
            out = made.communicate()[0].strip()
            if made.returncode:
                sys.exit(f"evenkeel jobs {' '.join(words)} failed")
            return out

        for milliseconds in o.delay:
            hosts.delay[:] = [milliseconds / 1e3] * HOSTS
            for name in o.only:
                job = f"{name}-{milliseconds:g}".replace(".", "-")
                admin = jobs("create", job, token=token)
                report = jobs("token", job, token=admin)
                default, _ = run(o, hosts, name, False, {})
                tuned, said = run(o, hosts, name, True, {**known, "EVENKEEL_JOB": job, "EVENKEEL_TOKEN": report})
                print(f"{name:12s} {milliseconds:4g} ms: default {default:4.0f} samples/s, tuned {tuned:4.0f}: {tuned / default:.2f}x", flush=True)


if __name__ == "__main__":
    main()
