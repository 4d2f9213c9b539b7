"""python3 -m evenkeel.plan profile: measures the layers of a small transformer on this machine, at several tensor degrees."""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from ..profile import numbers, write
from . import model, processes, tensor
from .exchange import LayerValues, scattered
from .layout import Place, Strategy
from .run import DTYPES, sizes

ROUNDS = 5  # of each measurement; their median counts
CHAIN = 4  # blocks are measured in a row: a pass goes through many layers
COLUMNS = ("layer", "name", "parameters", "output_bytes", "device", "tensor", "micro_batch", "forward_seconds", "backward_seconds", "update_seconds", "activation_bytes", "selective_seconds", "selective_bytes")


def arguments(parser):
    """The command's flags."""
    sizes(parser)
    parser.add_argument("--blocks", type=int, default=4, metavar="N", help="blocks; default 4")
    parser.add_argument("--tensor", type=numbers, default=[1, 2], metavar="N,...", help="tensor degrees; default 1,2")
    parser.add_argument("--micro-batches", type=numbers, default=[1, 2, 4, 8], metavar="N,...", help="samples of a micro-batch; default 1,2,4,8")
    parser.add_argument("--busy", type=int, default=os.cpu_count(), metavar="N", help="processes that measure at the same time; default one for each core")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="name of the device in the profile; default cpu")
    parser.add_argument("--each", type=float, default=0.3, metavar="SECONDS", help="time for each measurement; default 0.3")
    parser.add_argument("--cluster", metavar="FILE", help="write a cluster file of --busy devices, with the link between two processes as measured")
    parser.add_argument("--out", metavar="FILE", required=True, help="profile to write (CSV)")


def main(args):
    """Runs the command."""
    s = model.Sizes(args.vocabulary, args.length, args.size, args.heads, args.blocks)
    for t in args.tensor:
        s.check(t)
    if not args.each > 0 or args.busy < 1:
        raise ValueError("--each and --busy must be above 0")
    given = processes.given()
    ranks = max(args.busy, max(args.tensor))
    ranks += -ranks % max(args.tensor)
    if given is None:
        with open(args.out, "a", encoding="utf-8"):
            pass  # fail before the measurements, not after them
        return processes.start(main, args, ranks)
    dist.init_process_group("gloo")
    try:
        torch.set_num_threads(1)
        rows = []
        for t in args.tensor:
            rows += _degree(args, s, t, *given)
        link = _link(s, *given) if args.cluster and given[1] > 1 else None
        if given[0] == 0:
            rows.sort(key=lambda r: r[0])
            _write(args, s, rows, link)
        return 0
    finally:
        dist.destroy_process_group()


def _degree(args, s, t, rank, ranks):
    """The rows of a tensor degree. As many groups of t ranks as possible measure at the same time."""
    groups = [dist.new_group(list(range(k, k + t))) for k in range(0, ranks - t + 1, t)] if t > 1 else None
    place = Place(rank, 0, rank // t, t, rank % t, range(0))
    works = rank < ranks - ranks % t
    group = groups[rank // t] if t > 1 and works else None
    layers, cases, dtype = s.layers(), [], DTYPES[args.dtype]
    named = [("0", 0), (str(len(layers) - 1), len(layers) - 1)]
    if s.blocks > 0:
        named.insert(1, ("1" if s.blocks == 1 else "1-%d" % s.blocks, 1))
    for at, number in named:
        layer = layers[number]
        whole = model.initial(layer, number, 0, dtype)
        values = LayerValues(layer, whole, Strategy("none", False), place, group, None, False, 1e-9)
        for b in args.micro_batches:
            once, kept, again = _passes(s, layer, values, b, dtype, number == len(layers) - 1, group)
            parameters = sum(v.numel() for v in whole.values())
            output = s.length * s.size * torch.empty(0, dtype=dtype).element_size()
            cases.append((number, (at, layer.name, parameters, output, args.device, t, b), once, kept, again, []))
    for _ in range(ROUNDS):  # in turn, so that a slow spell of the machine meets all of them alike
        for _, _, once, _, _, means in cases:
            dist.barrier()
            if works:
                means.append(_mean(once, args.each / ROUNDS, group))
    rows = []
    for number, key, _, kept, again, means in cases if rank == 0 else ():
        forward, backward, update, core = map(statistics.median, zip(*means))
        rows.append((number, key + tuple("%.4g" % x for x in (forward, backward, update, kept, min(core, forward), again))))
        sys.stderr.write("%s, tensor %d, micro-batch %d: %.3g ms forward, %.3g ms backward\n" % (key[1], t, key[-1], 1e3 * forward, 1e3 * backward))
    return rows


def _passes(s, layer, values, b, dtype, last, group):
    """A function that runs a layer once and returns the seconds of its forward pass, its backward pass, its update and the core of its attention;
    bytes kept for a sample; those that selective recomputation frees."""
    if layer.name == "embedding":
        x = model.tokens(s, 0, 0, b)[0]
    else:
        x = torch.randn(b, s.length, s.size, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
    targets = model.tokens(s, 0, 0, b)[1]
    dy = torch.randn(b, s.length, s.size, dtype=dtype, generator=torch.Generator().manual_seed(2))

    def forward(x=x):
        y = layer.forward(values.parameters, x, group)
        return tensor.cross_entropy(y, targets, 1.0 / targets.numel(), group) if last else y

    more = CHAIN - 1 if layer.name == "block" else 0

    core = ()
    if layer.name == "block":
        heads, e = values.parameters["mix"].shape[:2]
        core = [torch.randn(b, heads, s.length, e, dtype=dtype).requires_grad_() for _ in range(3)]
    kept = _kept(forward, values.parameters.values()) / b
    again = _kept(lambda: model.attend(*core).sum(), core) / b if core else 0

    def once():
        t0 = time.perf_counter()
        y = forward()
        for _ in range(more):
            y = forward(y)
        t1 = time.perf_counter()
        torch.autograd.backward(y, None if last else dy)
        t2 = time.perf_counter()
        with torch.no_grad():
            values.update()
        t3 = time.perf_counter()
        with torch.no_grad():
            model.attend(*core) if core else None
        return (t1 - t0) / (1 + more), (t2 - t1) / (1 + more), t3 - t2, time.perf_counter() - t3 if core else 0.0

    return once, kept, min(again, kept)


def _mean(once, seconds, group):
    """The means of what once() returns, in so many seconds: an iteration is a sum of passes, those that wait for others included."""
    once()  # warms up
    times, begun, more = [], time.perf_counter(), torch.ones(1)
    while more.item():
        times.append(once())
        more[0] = float(len(times) < 3 or time.perf_counter() - begun < seconds)
        if group is not None:
            dist.all_reduce(more, dist.ReduceOp.MAX, group=group)  # all go on or stop together
    return [statistics.mean(t) for t in zip(*times)]


def _kept(forward, others):
    """Bytes that a forward pass keeps for the backward pass, without the tensors in others."""
    held = []  # so that no memory is reused

    def keep(v):
        held.append(v)
        return v

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda v: v):
        y = forward()
    torch.autograd.backward(y, torch.ones_like(y))
    others = {w.data_ptr() for w in others}
    return sum({v.data_ptr(): v.numel() * v.element_size() for v in held if v.data_ptr() not in others}.values())


def _link(s, rank, ranks):
    """Seconds of a message between rank 0 and the last rank, bytes per second, and seconds that a collective takes besides, each in turn with
    computing: what waits is woken later than what asks without pause."""
    pair, own, works = dist.new_group([0, ranks - 1]), rank > 0, rank in (0, ranks - 1)
    small, large, repeats = 8, 1 << 22, 8
    block = s.layers()[1]
    p, y = model.initial(block, 1, 0, torch.float32), torch.randn(1, s.length, s.size)

    def trip(x):
        for sends in (not own, own):
            dist.send(x, 0 if own else ranks - 1) if sends else dist.recv(x, 0 if own else ranks - 1)

    def scatter(x):
        scattered(x.view(2, -1), pair)

    def gather(x):
        dist.all_gather(list(x.view(2, -1)), x.view(2, -1)[int(own)].clone(), group=pair)

    operations = {"none": lambda x: None, "trip": trip, "reduce": lambda x: dist.all_reduce(x, group=pair), "scatter": scatter, "gather": gather}
    took = {(name, size): [] for name in operations for size in (small, large)}
    for _ in range(2 * ROUNDS):
        for (name, size), seconds in took.items():
            x = torch.zeros(size // 4)
            dist.barrier()
            for i in range(repeats + 1 if works else 0):
                if i == 1:
                    begun = time.perf_counter()  # the first one connects
                with torch.no_grad():
                    block.forward(p, y, None)
                operations[name](x)
            if works:
                seconds.append((time.perf_counter() - begun) / repeats)
    if not works:
        return None
    return fit({key: statistics.median(seconds) for key, seconds in took.items()}, small, large)


def fit(took, small, large):
    """Seconds of a message, bytes per second and seconds that a collective takes besides, of what computing and an operation took by sizes in bytes.
    A round trip is two messages, an all-reduce between two is two of half the bytes, a scatter or a gather one."""
    cost = {key: max(0.0, seconds - took["none", key[1]]) for key, seconds in took.items()}
    latency = cost["trip", small] / 2
    start = sum(cost[name, small] - messages * latency for name, messages in (("reduce", 2), ("scatter", 1), ("gather", 1))) / 3
    more = max(sum(cost[name, large] - cost[name, small] for name in ("trip", "reduce")), 1e-6)
    return latency, 3 * (large - small) / more, max(0.0, start)


def _write(args, s, rows, link):
    write(args.out, COLUMNS, (r for _, r in rows))
    said = "Written to %s" % args.out
    if args.cluster:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // args.busy
        inside = "" if link is None else ", inside: {latency: %.0fus, bandwidth: %.0fMB/s, start: %.0fus}" % (link[0] * 1e6, link[1] / 1e6, link[2] * 1e6)
        with open(args.cluster, "w", encoding="utf-8") as f:
            f.write("nodes:\n  - {device: %s, count: %d, per_machine: %d, memory: %d%s}\n" % (args.device, args.busy, args.busy, memory, inside))
        said += " and " + args.cluster
    print(said + ".")
