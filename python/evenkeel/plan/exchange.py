"""The exchange of one layer between the replicas of a stage. Gradients are summed. The optimizer's state and the gradients may be sharded (ZeRO
stages 1 and 2: Rajbhandari et al., arXiv 1910.02054); then the updated weights are gathered.

If all replicas have the same tensor degree, ranks with the same part of the layer exchange that part. If degrees differ, parts do not match:
all ranks of the stage then exchange the whole layer, each with zeros for the parts that it does not have.
"""

import torch
import torch.distributed as dist

from . import model, tensor


def scattered(parts, group):
    """The sum of this rank's row of parts over the ranks of a group, each of which has a row for every rank. Not every version of gloo has reduce-scatter."""
    own, works, got = tensor.rank(group), [], []
    for k in range(len(parts)):
        got.append(parts[k] if k == own else torch.empty_like(parts[k]))
        if k != own:
            peer = dist.get_global_rank(group, k)
            works += [dist.irecv(got[k], peer, group=group), dist.isend(parts[k], peer, group=group)]
    for work in works:
        work.wait()
    return sum(got)


class LayerValues:
    """One layer's weights and gradients on a rank, each in one block of memory. AdamW updates them, without weight decay."""

    def __init__(self, layer, whole, strategy, place, group, exchange, mixed, rate):
        """whole: {name: tensor} of the whole layer. group: the rank's tensor group. exchange: the group of replicas, or None."""
        self.layer, self.strategy, self.place, self.group, self.exchange = layer, strategy, place, group, exchange
        self.mixed = mixed and exchange is not None
        parts = [model.part(p, whole[p.name], place.tensor_rank, place.tensor) for p in layer.parameters]
        self.count = sum(p.numel() for p in parts)
        self.weights, self.parameters = self._joined(parts), {}
        self.gradients, at = torch.zeros_like(self.weights), 0
        for p, v in zip(layer.parameters, parts):
            w = self.weights[at:at + v.numel()].view(v.shape).requires_grad_()
            w.grad = self.gradients[at:at + v.numel()].view(v.shape)
            self.parameters[p.name], at = w, at + v.numel()
        self.members = tensor.size(exchange)
        self.divided = self.members > 1 and strategy.sharding != "none"
        self.master, self.summed = self.weights, self.gradients  # what this rank updates, and its gradients
        if self.divided:  # a shard of the part or, if mixed, of the whole layer
            exchanged = self._joined(whole.values()) if self.mixed else self.weights
            self.master = self._padded(exchanged).view(self.members, -1)[tensor.rank(exchange)].clone()
            self.summed = torch.zeros_like(self.master)
        self.master.grad = self.summed
        self.optimizer = torch.optim.AdamW([self.master], lr=rate, weight_decay=0.0)

    @staticmethod
    def _joined(values):
        return torch.cat([v.detach().reshape(-1) for v in values]).clone()

    def after_backward(self):
        """Call it after the backward pass of each micro-batch. With sharded gradients, a rank keeps its shard only."""
        if self.divided and self.strategy.sharding == "gradients":
            self._scatter()

    def sum(self):
        """Sums the gradients over the replicas, after the last backward pass."""
        if self.exchange is None:
            return
        if self.divided:
            if self.strategy.sharding == "optimizer":
                self._scatter()
            return
        buffer = self._buffer()
        dist.all_reduce(buffer, group=self.exchange)
        self.gradients.copy_(self._out_of(buffer))

    def update(self):
        """Runs one step of the optimizer, gathers the weights and sets the gradients to zero."""
        self.optimizer.step()
        if self.divided:
            self.weights.copy_(self._out_of(self._gather(self.master)))
            self.summed.zero_()
        self.gradients.zero_()

    def gathered(self):
        """Returns the summed gradients of this rank's part, {name: tensor}. Call it before update()."""
        all = self._out_of(self._gather(self.summed)) if self.divided else self.gradients
        values, at = {}, 0
        for name, p in self.parameters.items():
            values[name], at = all[at:at + p.numel()].view(p.shape).clone(), at + p.numel()
        return values

    def _scatter(self):
        self.summed += scattered(self._padded(self._buffer()).view(self.members, -1), self.exchange)
        self.gradients.zero_()

    def _gather(self, own):
        parts = [torch.empty_like(own) for _ in range(self.members)]
        dist.all_gather(parts, own.contiguous(), group=self.exchange)
        return torch.cat(parts)

    def _padded(self, buffer):
        short = -len(buffer) % self.members
        return torch.cat([buffer, buffer.new_zeros(short)]) if short else buffer

    def _buffer(self):
        """The gradients to be summed. In a mixed stage, parameters that all ranks of a replica hold count once."""
        if not self.mixed:
            return self.gradients
        whole = []
        for p in self.layer.parameters:
            v = torch.zeros(p.shape, dtype=self.gradients.dtype)
            if p.split is not None or self.place.tensor_rank == 0:
                model.part(p, v, self.place.tensor_rank, self.place.tensor).copy_(self.parameters[p.name].grad)
            whole.append(v)
        return self._joined(whole)

    def _out_of(self, buffer):
        """This rank's part of the exchanged buffer."""
        if not self.mixed:
            return buffer[:self.count]
        values, at = [], 0
        for p in self.layer.parameters:
            n = self.parameters[p.name].numel() if p.split is None else self.parameters[p.name].numel() * self.place.tensor
            values.append(model.part(p, buffer[at:at + n].view(p.shape), self.place.tensor_rank, self.place.tensor))
            at += n
        return self._joined(values)
