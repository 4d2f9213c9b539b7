"""python3 -m evenkeel.plan run: trains a small transformer as a plan says, and reports losses and times."""

import csv
import datetime
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from . import model, processes, reference
from .layout import Layout, PlanError
from .worker import Times, Worker

MOST_SEED = (1 << 32) - 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def arguments(parser):
    """The command's flags."""
    parser.add_argument("plan", help="plan file (JSON)")
    sizes(parser)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="iterations; default 20")
    parser.add_argument("--rate", type=float, default=0.001, metavar="X", help="learning rate of AdamW; default 0.001")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and data; default 0")
    parser.add_argument("--check", action="store_true", help="compare the first gradients with those of the undivided model on rank 0")
    parser.add_argument("--measured", metavar="FILE", help="append the plan and its seconds, for evenkeel plan calibrate")
    parser.add_argument("--cluster", metavar="FILE", help="with --measured: the cluster file on which it ran")
    parser.add_argument("--json", action="store_true", help="print JSON")


def sizes(parser):
    """Flags that run and profile share."""
    parser.add_argument("--size", type=int, default=256, metavar="N", help="floats of a token; default 256")
    parser.add_argument("--heads", type=int, default=4, metavar="N", help="heads of attention; default 4")
    parser.add_argument("--length", type=int, default=64, metavar="N", help="tokens of a sample; default 64")
    parser.add_argument("--vocabulary", type=int, default=512, metavar="N", help="different tokens; default 512")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32", help="default float32")


def main(args):
    """Runs the command and returns the exit status. Without a launcher, it starts all ranks as processes of this machine."""
    layout = Layout.load(args.plan)
    blocks = layout.layers[-1].stop - 2
    if blocks < 0:
        raise PlanError("%s: it has %d layers; it needs one for the embedding, one for the head and one for each block" % (args.plan, blocks + 2))
    s = model.Sizes(args.vocabulary, args.length, args.size, args.heads, blocks)
    for p in layout.places:
        s.check(p.tensor)
    if args.steps < 1:
        raise ValueError("--steps %d: must be at least 1" % args.steps)
    if not 0 <= args.seed <= MOST_SEED:
        raise ValueError("--seed %d: must lie in 0 to %d" % (args.seed, MOST_SEED))
    if not 0 < args.rate < float("inf"):
        raise ValueError("--rate %r: must be above 0" % args.rate)
    if args.cluster and not args.measured:
        raise ValueError("--cluster needs --measured")
    given = processes.given()
    if given is None:
        return processes.start(main, args, layout.world_size)
    if given[1] != layout.world_size:
        raise PlanError("%s: the plan has %d ranks; the launcher started %d" % (args.plan, layout.world_size, given[1]))
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=processes.PATIENCE))
    try:
        _agree(args, layout)
        return _rank(args, layout, s, given[0])
    finally:
        dist.destroy_process_group()


def _agree(args, layout):
    """Raises ValueError if a rank has another plan or other flags than rank 0. The ranks would wait for each other forever."""
    own = {"--" + k: getattr(args, k) for k in ("size", "heads", "length", "vocabulary", "dtype", "steps", "rate", "seed", "check")}
    own["the plan"] = "%08x" % layout.digest
    all = [None] * layout.world_size
    dist.all_gather_object(all, own)
    for rank, other in enumerate(all):
        for k, v in other.items():
            if v != all[0][k]:
                raise ValueError("rank %d was started with %s %s, rank 0 with %s: give all ranks the same" % (rank, k, v, all[0][k]))


def _rank(args, layout, s, rank):
    torch.set_num_threads(1)
    worker = Worker(layout, s, rank, args.seed, DTYPES[args.dtype], args.rate)
    losses, seconds, spent, off = [], [], [], None

    def inspect(w):
        nonlocal off
        off = reference.compare(w, args.seed, tokens, targets)

    shown = time.monotonic()
    for i in range(args.steps):
        tokens, targets = model.tokens(s, args.seed, i, layout.global_batch)
        dist.barrier()
        begun = time.perf_counter()
        loss, times = worker.iterate(tokens, targets, inspect if args.check and i == 0 else None)
        seconds.append(time.perf_counter() - begun)
        loss = torch.tensor([loss], dtype=torch.float64)
        dist.all_reduce(loss)
        losses.append(float(loss))
        spent.append(times.seconds)
        if rank == 0 and sys.stderr.isatty() and time.monotonic() > shown + 0.5:
            shown = time.monotonic()
            sys.stderr.write("\r%d of %d iterations, loss %.4f " % (i + 1, args.steps, losses[-1]))
    if rank == 0 and sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    late = slice(1, None) if args.steps > 1 else slice(None)  # the first one warms up
    mean = {k: sum(t[k] for t in spent[late]) / len(spent[late]) for k in Times.kinds}
    all = [None] * layout.world_size if rank == 0 else None
    dist.gather_object((mean, seconds[late]), all, dst=0)
    if rank == 0:
        times, seconds = zip(*all)
        last = statistics.median(map(max, zip(*seconds)))  # an iteration ends with its last rank
        _report(args, layout, losses, last, times, off)
    return 0


def _report(args, layout, losses, median, times, off):
    stages = []
    for k, layers in enumerate(layout.layers):
        ranks = layout.ranks(k)
        share = {kind: sum(times[p.rank][kind] for p in ranks) / len(ranks) for kind in Times.kinds}
        shares = [len(p.rows) for p in ranks if p.tensor_rank == 0]
        stages.append({"stage": k, "layers": [layers.start, layers.stop], "ranks": len(ranks), "tensor": layout.degrees(k), "samples": shares, "seconds": share})
    result = {"plan": args.plan, "ranks": layout.world_size, "cores": os.cpu_count(), "losses": losses, "seconds_per_iteration": median,
              "plan_seconds": layout.predicted, "stages": stages}
    if off is not None:
        result["gradients"] = {"off": off[0], "where": off[1]}
    if args.measured:
        _append(args, median)
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print("%s of %s, %s each: %s, %s.\n" % tuple(_count(n, what) for n, what in (
        (len(losses), "iteration"), (layout.global_batch, "sample"), (layout.micro_batches, "micro-batch"), (len(stages), "stage"), (layout.world_size, "rank"))))
    print("loss       %.4f at first, %.4f at last" % (losses[0], losses[-1]))
    said = "" if layout.predicted is None else "; %s predicted in the plan (%+.1f%%)" % (_seconds(layout.predicted), 100 * (layout.predicted / median - 1))
    print("iteration  %s measured (median)%s" % (_seconds(median), said))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", layout.world_size))  # torchrun sets it
    if here > os.cpu_count():
        print("           %d ranks share %d cores of this machine, so their times depend on each other" % (here, os.cpu_count()))
    if off is not None:
        print("gradients  off by at most %.2g from the undivided model, %s" % off)
    rows = [("stage", "layers", "tensor", "samples") + Times.kinds]
    for s in stages:
        first, end = s["layers"]
        rows.append((str(s["stage"]), "%d-%d" % (first, end - 1), "+".join(map(str, s["tensor"])), "+".join(map(str, s["samples"])))
                    + tuple(_seconds(s["seconds"][k]) for k in Times.kinds))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    print()
    for r in rows:
        print("  ".join(c.rjust(w) for c, w in zip(r, widths)).rstrip())


def _append(args, median):
    """Appends a line for `evenkeel plan calibrate`. Paths are relative to the file."""
    folder = os.path.dirname(os.path.abspath(args.measured))
    relative = lambda path: os.path.relpath(os.path.abspath(path), folder) if path else ""
    new = not os.path.exists(args.measured)
    with open(args.measured, "a", encoding="utf-8", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        if new:
            rows.writerow(("plan", "cluster", "seconds", "peak_bytes"))
        rows.writerow((relative(args.plan), relative(args.cluster), "%.6g" % median, ""))


def _count(n, what):
    return "%d %s" % (n, what if n == 1 else what + ("es" if what.endswith("ch") else "s"))


def _seconds(x):
    """Formats seconds with three digits and a unit."""
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if x * factor >= 1 or unit == "us":
            return "%.3g %s" % (x * factor, unit)
