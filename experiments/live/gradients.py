"""Models and batches of libraries' own, trained by evenkeel.Tuner on three gloo ranks in double precision: after each round the gradient is that of one
process, or the job is refused by name. Needs torch 2.15 and the libraries of requirements.txt, in an environment of their own:

    python3 -m venv --system-site-packages live && live/bin/pip install -r experiments/live/requirements.txt
    live/bin/python -W ignore experiments/live/gradients.py [--only PART-OF-A-NAME] [--json FILE]          6 minutes on two idle cores

A case (cases.py) runs as up to three jobs. In "whole" each micro-step is a batch of the loader; in "cut" rounds end at a deadline, and batches are cut and
joined. Both have uneven shares, ranks without a share, micro-steps of unequal size, and epochs that end with part of a round. "dropout" has the library's
own noise, and asks only whether the tuner's check lets it pass.

The reference is computed in one process, without the tuner. "union": the gradient of all samples of the round in one batch. "micro-steps": the mean of the
micro-steps' gradients, weighted by samples, where a loss or a model makes its batch part of the mathematics (batch normalisation, contrastive losses).
Status 1: a gradient was silently another one, or a case was not refused that has to be.
"""

import argparse
import collections
import contextlib
import copy
import importlib.metadata
import itertools
import json
import logging
import multiprocessing
import os
import random
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, *(os.path.join(HERE, "..", "..", "python", p) for p in ("", "tests"))]
warnings.simplefilter("ignore")
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import cases
import evenkeel
import fake_service
import processes
from evenkeel.tuner import Usage, micro_steps

LENGTH, GLOBAL, RANKS, ROUNDS, MOST = 70, 20, 3, 8, 1e-12
#          uneven, unequal micro-steps            a rank without a share       two without                  one micro-step each
WHOLE = (([13, 5, 2], [4, 5, 2]), ([11, 0, 9], [3, 1, 9]), ([0, 0, 20], [1, 1, 7]), ([7, 8, 5], [7, 8, 5]))
CUT = (([13, 5, 2], [4, 3, 2], (0.05, [0.02, 0.03, 0.04])), ([11, 0, 9], [4, 1, 5], (0.05, [0.02, 0.01, 0.03])))


class Doubles(torch.overrides.TorchFunctionMode):
    """Libraries compute some losses in single precision whatever the model has; here these stay double."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        func = torch.Tensor.double if func is torch.Tensor.float else func
        double = lambda x: torch.float64 if x is torch.float32 else x
        return func(*map(double, args), **{k: double(v) for k, v in (kwargs or {}).items()})


def gradients(model):
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad.to_dense()).flatten() for p in model.parameters() if p.requires_grad])


def reference(case, model, pieces, samples):
    """The gradient of one process."""
    pieces = [[i for p in pieces for i in p]] if case.reference == "union" else pieces
    total, weights = 0, 0
    for piece in pieces:
        twin = copy.deepcopy(model)
        twin.zero_grad()
        batch = case.collate([samples[i] for i in piece])
        weight = case.weight(batch) if case.weight else len(piece)
        if weight:
            case.compute(twin, batch)
            total, weights = total + weight * gradients(twin), weights + weight
    return total / weights


def train(case, rank, mode, samples):
    """What one rank saw: the largest difference, in how many rounds a rank had no share, how often batches were cut."""
    torch.manual_seed(1)
    random.seed(1), np.random.seed(1)
    plain = (case.net(dropout=0.1) if mode == "dropout" else case.net()).double()
    ddp = DDP(plain, **case.ddp)
    clock = itertools.count()  # the same cuts on every machine
    tuner = evenkeel.Tuner(ddp, check=case.check, clock=lambda: next(clock) * 3e-3)
    options = {"weighted": case.weight is not None, "cut": case.cut, "deadline": "1s" if mode == "cut" else "", **case.batches}
    order = tuner.batches(LENGTH, global_batch=GLOBAL, **options)
    loader = torch.utils.data.DataLoader(samples, batch_sampler=order, collate_fn=case.collate, num_workers=rank == 1)
    optimizer = torch.optim.SGD([p for p in ddp.parameters() if p.requires_grad], lr=0.01)
    worst, absent, cuts, own, done, seen, epochs = 0.0, 0, 0, [], 0, collections.Counter(), 0
    cut = micro_steps.MicroSteps.cut

    def counted(self, batch, samples, begin, end):
        nonlocal cuts
        cuts += done > 0 and (begin, end) != (0, samples)  # the check, in the first round, cuts too
        return cut(self, batch, samples, begin, end)

    micro_steps.MicroSteps.cut = counted
    while done < (2 if mode == "dropout" else ROUNDS):
        for batch in tuner.steps(loader):
            if case.weight:
                tuner.weight(case.weight(batch))
            case.compute(ddp, batch)
            if tuner.counts:
                own.append(cases.numbers(batch))
            if not tuner.synchronised:
                continue
            done, ranks = done + 1, [None] * RANKS
            dist.all_gather_object(ranks, own)
            absent, own = absent + (not all(ranks)), []
            seen.update(i for pieces in ranks for p in pieces for i in p)
            if mode != "dropout":
                its = reference(case, plain, [p for pieces in ranks for p in pieces], samples)
                off = float((gradients(plain) - its).norm() / its.norm())
                worst = max(worst, off if off == off else float("inf"))
            case.step(optimizer, plain)
        epochs += 1
    tuner.close()
    assert max(seen.values()) == epochs, "samples came more than once in an epoch"
    assert case.batches.get("drop_last") or mode == "dropout" or (len(seen) == LENGTH and min(seen.values()) == epochs), "samples are missing from an epoch"
    return {"difference": worst, "absent": absent, "cuts": cuts, "pending": tuner._check is not None}


def child(case, rank, port, url, mode, samples, pipe):
    log, found = [], {}
    handler = logging.Handler()
    handler.emit = lambda record: log.append(record.getMessage())
    logging.getLogger("evenkeel").addHandler(handler)
    logging.getLogger("evenkeel").setLevel(logging.INFO)
    os.environ["EVENKEEL_URL"] = url
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    try:
        with Doubles():
            found = train(case, rank, mode, samples)
    except Usage as e:
        found = {"refused": str(e)}
    except Exception as e:
        found = {"error": f"{type(e).__name__}: {e}", "trace": traceback.format_exc()}
    pipe.send({**found, "log": log})
    os._exit(0)


def job(case, mode, patience):
    """Runs a case in processes of its own, and says how it ended: exact, refused, or the error."""
    shares = CUT if mode == "cut" else WHOLE
    samples = cases.samples(case, LENGTH)
    service = fake_service.Service(lambda reports, _: shares[len(reports) // 2 % len(shares)])
    port, fork, pipes, ranks = processes.free_port(), multiprocessing.get_context("fork"), [], []
    for rank in range(RANKS):
        mine, its = fork.Pipe(False)
        ranks.append(fork.Process(target=child, args=(case, rank, port, service.url, mode, samples, its)))
        ranks[-1].start()
        its.close()
        pipes.append(mine)
    until, told = time.monotonic() + patience, []
    for pipe in pipes:
        with contextlib.suppress(EOFError):
            told.append(pipe.recv() if pipe.poll(max(0.0, 5.0 if any("refused" in t for t in told) else until - time.monotonic())) else {"error": "hangs"})
    for p in ranks:
        p.kill()
        p.join()
    service.stop()
    say = lambda key: next((t[key] for t in told if key in t), "")
    out = {"check": next((m.removeprefix("evenkeel: gradients were not checked: ") for t in told for m in t.get("log", ()) if "not checked" in m), "off" if not case.check else "not made: no batch can be cut in one way" if all(t.get("pending") for t in told) else "made")}
    if say("refused"):
        return {**out, "outcome": "refused", "reason": say("refused")}
    if say("error") or len(told) < RANKS:
        worst = [t for t in told if "error" in t and "onnection" not in t["error"]] or told
        by_torch = any(w in worst[0].get("error", "") for w in ("SyncBatchNorm layers only work with GPU", "Expected to have finished reduction"))
        return {**out, "outcome": "refused by torch" if by_torch else "error", "reason": worst[0].get("error", "a rank died"), "trace": worst[0].get("trace", "")}
    if mode == "dropout":
        return {**out, "outcome": "passed"}
    off = max(t["difference"] for t in told)
    return {**out, "outcome": "exact" if off <= MOST else "warned" if out["check"].startswith("they depend") else "other", "difference": off, "absent": told[0]["absent"], "cuts": sum(t["cuts"] for t in told)}


def expected(case, mode, of):
    outcome = of["outcome"]
    if outcome == "exact" and not (of["absent"] and (of["cuts"] or mode == "whole")):
        return False  # the job was too plain
    if case.refused:
        return outcome == ("warned" if case.warned else "refused")
    return outcome in ("exact", "passed") or mode in case.limits and outcome.startswith("refused")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--json", default="", help="a file for the rows")
    parser.add_argument("--patience", type=float, default=240, help="seconds for a job")
    args = parser.parse_args()
    rows, wrong = [], 0
    print("| library | case | reference | whole | cut | largest difference | check, with dropout | why refused |\n|---|---|---|---|---|---|---|---|")
    for case in cases.CASES:
        name = f"{case.library}: {case.name}"
        if args.only not in name:
            continue
        modes = ["whole", *(["cut"] if not case.refused else []), *(["dropout"] if cases.noisy(case) else [])]
        jobs = {m: job(case, m, args.patience) for m in modes}
        ok = all(expected(case, mode, j) for mode, j in jobs.items())
        wrong += not ok
        off = max((j["difference"] for j in jobs.values() if "difference" in j), default=None)
        rows.append({"library": case.library, "version": importlib.metadata.version(case.library), "case": case.name, "reference": case.reference, "jobs": jobs, "as_expected": ok})
        told = [jobs.get(m, {}).get("outcome", "") for m in ("whole", "cut")]
        check = jobs["whole"]["check"] + (f", {jobs['dropout']['outcome']}" if "dropout" in jobs else "")
        why = next((j["reason"] for j in jobs.values() if "reason" in j), "")
        difference = "" if off is None else f"{off:.1g}"
        print(f"| {case.library} {rows[-1]['version']} | {case.name} | {case.reference} | {' | '.join(told)} | {difference} | {check[:60]} | {why[:160]} |{'' if ok else '  NOT AS EXPECTED'}", flush=True)
        if not ok and args.only:
            print(*(j.get("trace", "") for j in jobs.values()), sep="\n")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
