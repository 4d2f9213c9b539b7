"""python3 -m evenkeel.plan profile: measures the layers of a small transformer on this machine, at several tensor degrees."""

import os
import sys
import time

import torch
import torch.distributed as dist

from ..profile import numbers, write
from . import model, processes, tensor
from .exchange import LayerValues
from .layout import Place, Strategy
from .run import DTYPES, sizes

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
        link = _link(*given) if args.cluster and given[1] > 1 else None
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
    layers, rows, dtype = s.layers(), [], DTYPES[args.dtype]
    named = [("0", 0), (str(len(layers) - 1), len(layers) - 1)]
    if s.blocks > 0:
        named.insert(1, ("1" if s.blocks == 1 else "1-%d" % s.blocks, 1))
    for at, number in named:
        layer = layers[number]
        whole = model.initial(layer, number, 0, dtype)
        values = LayerValues(layer, whole, Strategy("none", False), place, group, None, False, 1e-9)
        for b in args.micro_batches:
            dist.barrier()
            took = _measure(args, s, layer, values, b, dtype, number == len(layers) - 1, group) if works else None
            if rank == 0:
                parameters = sum(v.numel() for v in whole.values())
                output = s.length * s.size * torch.empty(0, dtype=dtype).element_size()
                rows.append((number, (at, layer.name, parameters, output, args.device, t, b) + tuple("%.4g" % x for x in took)))
                sys.stderr.write("%s, tensor %d, micro-batch %d: %.3g ms forward, %.3g ms backward\n" % (layer.name, t, b, 1e3 * took[0], 1e3 * took[1]))
    return rows


def _measure(args, s, layer, values, b, dtype, last, group):
    """Seconds of the forward pass, the backward pass and the update; bytes kept for a sample; seconds and bytes of selective recomputation."""
    if layer.name == "embedding":
        x = model.tokens(s, 0, 0, b)[0]
    else:
        x = torch.randn(b, s.length, s.size, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()
    targets = model.tokens(s, 0, 0, b)[1]
    dy = torch.randn(b, s.length, s.size, dtype=dtype, generator=torch.Generator().manual_seed(2))

    def forward():
        y = layer.forward(values.parameters, x, group)
        return tensor.cross_entropy(y, targets, 1.0 / targets.numel(), group) if last else y

    core = ()
    if layer.name == "block":
        heads, e = values.parameters["mix"].shape[:2]
        core = [torch.randn(b, heads, s.length, e, dtype=dtype).requires_grad_() for _ in range(3)]
    kept = _kept(forward, values.parameters.values()) / b
    again = _kept(lambda: model.attend(*core).sum(), core) / b if core else 0
    times, begun, more = [], time.perf_counter(), torch.ones(1)
    while more.item():
        t0 = time.perf_counter()
        y = forward()
        t1 = time.perf_counter()
        torch.autograd.backward(y, None if last else dy)
        t2 = time.perf_counter()
        with torch.no_grad():
            values.update()
        t3 = time.perf_counter()
        with torch.no_grad():
            model.attend(*core) if core else None
        times.append((t1 - t0, t2 - t1, t3 - t2, time.perf_counter() - t3))
        more[0] = float(len(times) < 4 or time.perf_counter() - begun < args.each)
        if group is not None:
            dist.all_reduce(more, dist.ReduceOp.MAX, group=group)  # all go on or stop together
    times = times[1:]  # the first one warms up
    mean = [sum(t[k] for t in times) / len(times) for k in range(4)]  # an iteration is a sum of passes, those that wait for others included
    return mean[:3] + [kept, min(mean[3], mean[0]) if core else 0, min(again, kept)]


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


def _link(rank, ranks):
    """Latency and bytes per second between rank 0 and the last rank: means over round trips and all-reduces, of two transfers each."""
    seconds, large, rounds = {}, 1 << 22, 30
    pair = dist.new_group([0, ranks - 1])
    for size in (8, large):
        x, y, took = torch.zeros(size // 4), torch.zeros(size // 2), 0.0
        for round in range(rounds + 1):
            dist.barrier()
            begun = time.perf_counter()
            if rank == 0:
                dist.send(x, ranks - 1)
                dist.recv(x, ranks - 1)
            elif rank == ranks - 1:
                dist.recv(x, 0)
                dist.send(x, 0)
            if rank in (0, ranks - 1):
                dist.all_reduce(y, group=pair)
            took += time.perf_counter() - begun if round else 0  # the first one connects
        seconds[size] = took / rounds / 4
    return seconds[8], large / max(seconds[large] - seconds[8], seconds[large] / 10)


def _write(args, s, rows, link):
    write(args.out, COLUMNS, (r for _, r in rows))
    said = "Written to %s" % args.out
    if args.cluster:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // args.busy
        latency, bandwidth = link or (0, 0)
        inside = "" if link is None else ", inside: {latency: %.0fus, bandwidth: %.0fMB/s}" % (latency * 1e6, bandwidth / 1e6)
        with open(args.cluster, "w", encoding="utf-8") as f:
            f.write("nodes:\n  - {device: %s, count: %d, per_machine: %d, memory: %d%s}\n" % (args.device, args.busy, args.busy, memory, inside))
        said += " and " + args.cluster
    print(said + ".")
