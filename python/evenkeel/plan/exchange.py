"""What the replicas of a stage exchange of one layer: gradients summed, the optimizer's state and gradients perhaps divided (ZeRO stages 1 and 2:
Rajbhandari et al., arXiv 1910.02054), weights gathered again.

Where all replicas have one tensor degree, ranks of the same part of the layer exchange that part. Where degrees differ, parts do not match:
then all ranks of the stage exchange the whole layer, each with zeros for what it does not have.
"""

import torch
import torch.distributed as dist

from . import model, tensor


class LayerValues:
    """One layer's weights and gradients on a rank, each in one piece of memory, and how they are exchanged and updated."""

    def __init__(self, layer, whole, strategy, place, group, exchange, mixed, optimizer):
        """whole is {name: tensor} of the whole layer; group the rank's tensor group, exchange the group of replicas (None: alone)."""
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
        # What is exchanged: the part, or the whole layer; padded, so that it can be divided.
        self.members = tensor.size(exchange)
        self.exchanged = self.count if not self.mixed else sum(v.numel() for v in whole.values())
        self.divided = self.members > 1 and strategy.sharding != "none"
        each = -(-self.exchanged // self.members)
        first = each * tensor.rank(exchange) if self.divided else 0
        self.own = slice(first, first + each) if self.divided else slice(0, self.count)
        n = each if self.divided else self.count
        self.optimizer = optimizer
        self.moments = [torch.zeros(n, dtype=self.weights.dtype) for _ in range(2)]
        if self.divided:  # what this rank updates for all
            self.summed = torch.zeros(n, dtype=self.weights.dtype)
            self.master = self._padded(self.weights if not self.mixed else self._joined(list(whole.values())))[self.own].clone()

    @staticmethod
    def _joined(values):
        return torch.cat([v.detach().reshape(-1) for v in values]).clone()

    def after_backward(self):
        """After each micro-batch's backward pass: with sharded gradients a rank keeps its share alone."""
        if self.divided and self.strategy.sharding == "gradients":
            self._scatter()

    def sum(self):
        """After the last backward pass: sums over the replicas."""
        if self.exchange is None:
            return
        if self.divided:
            if self.strategy.sharding == "optimizer":
                self._scatter()
            return
        buffer = self._buffer()
        dist.all_reduce(buffer, group=self.exchange)
        self.gradients.copy_(self._out_of(buffer))

    def update(self, step):
        """One step of the optimizer on what this rank updates; then all have the weights, and no gradients."""
        if not self.divided:
            self.optimizer.update(step, self.weights, self.gradients, *self.moments)
        else:
            self.optimizer.update(step, self.master, self.summed, *self.moments)
            self.weights.copy_(self._out_of(self._gather(self.master)))
            self.summed.zero_()
        self.gradients.zero_()

    def gathered(self):
        """The summed gradients of this rank's part, before update: {name: tensor}."""
        all = self._out_of(self._gather(self.summed)) if self.divided else self.gradients
        values, at = {}, 0
        for name, p in self.parameters.items():
            values[name], at = all[at:at + p.numel()].view(p.shape).clone(), at + p.numel()
        return values

    def _scatter(self):
        buffer = self._padded(self._buffer())
        chunks = buffer.view(self.members, -1)
        for k in range(self.members):  # not every gloo has a reduce-scatter
            dist.reduce(chunks[k], dist.get_global_rank(self.exchange, k), group=self.exchange)
        self.summed += chunks[tensor.rank(self.exchange)]
        self.gradients.zero_()

    def _gather(self, own):
        parts = [torch.empty_like(own) for _ in range(self.members)]
        dist.all_gather(parts, own.contiguous(), group=self.exchange)
        return torch.cat(parts)

    def _padded(self, buffer):
        short = -len(buffer) % self.members
        return torch.cat([buffer, buffer.new_zeros(short)]) if short else buffer

    def _buffer(self):
        """The gradients, to be summed. Of a mixed stage what all ranks of a replica have counts once."""
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
        """This rank's part of what was exchanged."""
        if not self.mixed:
            return buffer[:self.count]
        values, at = [], 0
        for p in self.layer.parameters:
            n = self.parameters[p.name].numel() if p.split is None else self.parameters[p.name].numel() * self.place.tensor
            values.append(model.part(p, buffer[at:at + n].view(p.shape), self.place.tensor_rank, self.place.tensor))
            at += n
        return self._joined(values)


class AdamW:
    """Loshchilov and Hutter, arXiv 1711.05101, without weight decay."""

    def __init__(self, rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.rate, self.beta1, self.beta2, self.epsilon = rate, beta1, beta2, epsilon

    def update(self, step, weights, gradients, first, second):
        """Changes the weights; step counts from 1."""
        first.mul_(self.beta1).add_(gradients, alpha=1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradients, gradients, value=1 - self.beta2)
        spread = (second / (1 - self.beta2 ** step)).sqrt_().add_(self.epsilon)
        weights.data.addcdiv_(first, spread, value=-self.rate / (1 - self.beta1 ** step))
