"""One rank of a plan. It runs its stage's layers in the order of 1F1B."""

import time

import torch
import torch.distributed as dist

from . import model, tensor
from .exchange import LayerValues


def order(stage, stages, micro_batches):
    """The passes of a stage in the order of 1F1B: ("forward" or "backward", micro-batch) each."""
    ahead = min(micro_batches, stages - stage)
    passes = [("forward", m) for m in range(ahead)]
    for m in range(micro_batches):
        passes.append(("backward", m))
        if ahead + m < micro_batches:
            passes.append(("forward", ahead + m))
    return passes


class Groups:
    """The process groups of a plan. Every rank creates all groups, in the same order."""

    def __init__(self, layout, rank):
        self.tensor = self.exchange = None
        self.mixed = False
        for stage in range(len(layout.layers)):
            ranks, degrees = layout.ranks(stage), layout.degrees(stage)
            for replica in sorted({p.replica for p in ranks}):
                self._make("tensor", [p.rank for p in ranks if p.replica == replica], rank)
            if len({p.replica for p in ranks}) == 1:
                continue
            if len(degrees) > 1:
                self._make("exchange", [p.rank for p in ranks], rank)
                self.mixed |= layout.places[rank].stage == stage
                continue
            for q in range(degrees[0]):
                self._make("exchange", [p.rank for p in ranks if p.tensor_rank == q], rank)

    def _make(self, name, ranks, rank):
        if len(ranks) > 1:
            group = dist.new_group(ranks)
            if rank in ranks:
                setattr(self, name, group)


class Times:
    """Seconds that a rank spent on each part of an iteration."""

    kinds = ("forward", "backward", "exchange", "update", "wait")

    def __init__(self):
        self.seconds = dict.fromkeys(self.kinds, 0.0)

    def count(self, kind, begun):
        """Adds the time since begun, and returns the present time."""
        now = time.perf_counter()
        self.seconds[kind] += now - begun
        return now


class Worker:
    """A rank of a plan."""

    def __init__(self, layout, sizes, rank, seed, dtype, rate):
        self.layout, self.sizes, self.place = layout, sizes, layout.places[rank]
        self.groups, self.dtype = Groups(layout, rank), dtype
        s = self.place.stage
        self.first, self.last = s == 0, s + 1 == len(layout.layers)
        self.scale = 1.0 / (layout.global_batch * sizes.length)
        self.passes = order(s, len(layout.layers), layout.micro_batches)
        all = sizes.layers()
        self.layers = [LayerValues(all[i], model.initial(all[i], i, seed, dtype), layout.strategies[i], self.place, self.groups.tensor,
                                   self.groups.exchange, self.groups.mixed, rate) for i in layout.layers[s]]
        self.before = {s - 1: layout.partners(self.place, s - 1), s + 1: layout.partners(self.place, s + 1)}
        self.behind = {k: layout.takers(self.place, k) for k in (s - 1, s + 1)}
        self.sending = []

    def iterate(self, tokens, targets, inspect=None):
        """Runs an iteration on the tokens and targets of the global batch. Returns this rank's part of the loss, and Times. inspect(self), if given,
        is called between the exchange and the update."""
        held, loss, times, begun = {}, 0.0, Times(), time.perf_counter()
        for kind, m in self.passes:
            if kind == "forward":
                x = self._rows(tokens, m) if self.first else self._receive(self.place.stage - 1, m, times)
                if not self.first:
                    x.requires_grad_()
                begun = time.perf_counter()
                y = self._forward(x, self._rows(targets, m) if self.last else None)
                held[m] = x, y
                if self.last:
                    loss += float(y.detach())
                times.count("forward", begun)
                if not self.last:
                    self._send(self.place.stage + 1, m, y.detach())
                continue
            x, y = held.pop(m)
            dy = None if self.last else self._receive(self.place.stage + 1, m, times)
            begun = time.perf_counter()
            torch.autograd.backward(y, dy)
            for v in self.layers:
                v.after_backward()
            times.count("backward", begun)
            if not self.first:
                self._send(self.place.stage - 1, m, x.grad)
        begun = time.perf_counter()
        with torch.no_grad():
            for v in self.layers:
                v.sum()
            begun = times.count("exchange", begun)
            if inspect is not None:
                inspect(self)
            begun = time.perf_counter()
            for v in self.layers:
                v.update()
            times.count("update", begun)
        for work, _ in self.sending:
            work.wait()
        self.sending = []
        # All ranks of a replica have the same loss; it counts once.
        return loss if self.place.tensor_rank == 0 else 0.0, times

    def _forward(self, x, targets):
        for v in self.layers:
            if v.strategy.checkpoint:
                x = model.Recomputed.apply(lambda x, v=v: v.layer.forward(v.parameters, x, v.group), next(iter(v.parameters.values())), x)
            else:
                x = v.layer.forward(v.parameters, x, v.group, v.strategy.selective)
        return x if targets is None else tensor.cross_entropy(x, targets, self.scale, self.groups.tensor)

    def _rows(self, all, m):
        """This rank's samples of a micro-batch."""
        first = m * self.layout.micro_batch
        return all[first + self.place.rows.start:first + self.place.rows.stop]

    def _receive(self, stage, m, times):
        """Receives this rank's rows of micro-batch m from a neighbouring stage."""
        begun = time.perf_counter()
        rows = self.place.rows
        x = torch.empty(len(rows), self.sizes.length, self.sizes.size, dtype=self.dtype)
        for partner, part in self.before[stage]:
            dist.recv(x[part.start - rows.start:part.stop - rows.start], partner.rank, tag=m)
        times.count("wait", begun)
        return x

    def _send(self, stage, m, x):
        """Sends rows of micro-batch m to the ranks of a neighbouring stage that need them."""
        rows = self.place.rows
        for taker, part in self.behind[stage]:
            sent = x[part.start - rows.start:part.stop - rows.start].contiguous()
            self.sending.append((dist.isend(sent, taker.rank, tag=m), sent))
