"""A small transformer in the layers of a plan: the embedding, blocks as in GPT-2 (causal attention, then two dense layers with GELU), and the
final norm with the output. Each rank of a tensor group holds a part of a layer's parameters."""

import math
from collections import namedtuple

import torch
import torch.nn.functional as F

from . import tensor

# A parameter of the whole layer. split: the dimension that is split over the ranks of a tensor group; None: each rank holds all of it.
Parameter = namedtuple("Parameter", "name shape split std mean")


def _parameter(name, *shape, split=None, std=0.0, mean=0.0):
    return Parameter(name, shape, split, std, mean)


class Embedding:
    """Maps tokens and positions to vectors. A rank has the vectors of some tokens."""

    name = "embedding"

    def __init__(self, sizes):
        self.parameters = [_parameter("tokens", sizes.vocabulary, sizes.size, split=0, std=0.02), _parameter("positions", sizes.length, sizes.size, std=0.02)]

    def forward(self, p, tokens, group, selective=False):
        own = p["tokens"].shape[0]
        at = tokens - own * tensor.rank(group)
        elsewhere = (at < 0) | (at >= own)
        x = F.embedding(at.clamp(0, own - 1), p["tokens"]).masked_fill(elsewhere[..., None], 0)
        return tensor.total(x, group) + p["positions"]


class Recomputed(torch.autograd.Function):
    """run(*inputs), computed again in the backward pass, as by Megatron-LM's CheckpointFunction. PyTorch's own takes long even for small layers.
    weight: one that run uses, or None if an input has gradients."""

    @staticmethod
    def forward(ctx, run, weight, *inputs):
        ctx.run = run
        ctx.save_for_backward(*inputs)
        return run(*inputs)

    @staticmethod
    def backward(ctx, dy):
        inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.run(*inputs)
        torch.autograd.backward(y, dy)
        return None, None, *(x.grad for x in inputs)


def attend(q, k, v):
    """Causal attention. Shapes are samples x heads x tokens x floats."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ v


class Block:
    """Attention and two dense layers. A rank has some of the heads and some of the hidden units."""

    name = "block"

    def __init__(self, sizes):
        d, h, e = sizes.size, sizes.heads, sizes.size // sizes.heads
        self.size = d
        self.parameters = [
            _parameter("norm1", d, mean=1.0), _parameter("shift1", d),
            _parameter("query-key-value", 3, h, e, d, split=1, std=0.02), _parameter("query-key-value-bias", 3, h, e, split=1),
            _parameter("mix", h, e, d, split=0, std=0.02), _parameter("mix-bias", d),
            _parameter("norm2", d, mean=1.0), _parameter("shift2", d),
            _parameter("up", 4 * d, d, split=0, std=0.02), _parameter("up-bias", 4 * d, split=0),
            _parameter("down", 4 * d, d, split=0, std=0.02), _parameter("down-bias", d),
        ]

    def forward(self, p, x, group, selective=False):
        """selective: keep query, key and value, and recompute the attention between them (Korthikanti et al., arXiv 2205.05198)."""
        n, t, d = x.shape
        _, h, e, _ = p["query-key-value"].shape
        a = tensor.copy(F.layer_norm(x, (d,), p["norm1"], p["shift1"]), group)
        q, k, v = F.linear(a, p["query-key-value"].reshape(-1, d), p["query-key-value-bias"].reshape(-1)).view(n, t, 3, h, e).permute(2, 0, 3, 1, 4)
        a = Recomputed.apply(attend, None, q, k, v) if selective else attend(q, k, v)
        a = a.transpose(1, 2).reshape(n, t, h * e)
        x = x + tensor.total(a @ p["mix"].reshape(h * e, d), group) + p["mix-bias"]
        a = tensor.copy(F.layer_norm(x, (d,), p["norm2"], p["shift2"]), group)
        a = F.gelu(F.linear(a, p["up"], p["up-bias"]))
        return x + tensor.total(a @ p["down"], group) + p["down-bias"]


class Head:
    """The final norm and the output. A rank has some of the classes."""

    name = "head"

    def __init__(self, sizes):
        d = sizes.size
        self.parameters = [_parameter("norm", d, mean=1.0), _parameter("shift", d), _parameter("predict", sizes.vocabulary, d, split=0, std=0.02)]

    def forward(self, p, x, group, selective=False):
        d = x.shape[-1]
        return F.linear(tensor.copy(F.layer_norm(x, (d,), p["norm"], p["shift"]), group), p["predict"])


class Sizes(namedtuple("Sizes", "vocabulary length size heads blocks")):
    """The sizes of a transformer: different tokens, tokens per sample, floats per token, attention heads, blocks."""

    def layers(self):
        """The layers of a plan: the embedding, the blocks and the head."""
        return [Embedding(self)] + [Block(self) for _ in range(self.blocks)] + [Head(self)]

    def check(self, degree):
        """Raises ValueError if the sizes do not fit a tensor degree."""
        for name, value, least in zip(self._fields, self, (2, 1, 1, 1, 0)):
            if value < least:
                raise ValueError("--%s %d: must be at least %d" % (name, value, least))
        if self.size % self.heads:
            raise ValueError("--size %d: must be a multiple of --heads, %d" % (self.size, self.heads))
        for name in ("vocabulary", "heads"):
            if getattr(self, name) % degree:
                raise ValueError("--%s %d: must be a multiple of the tensor degree, %d" % (name, getattr(self, name), degree))


def part(p, value, rank, size):
    """Returns a rank's part of a whole parameter."""
    if p.split is None or size == 1:
        return value
    n = value.shape[p.split] // size
    return value.narrow(p.split, rank * n, n)


def initial(layer, number, seed, dtype):
    """The first values of a layer's whole parameters, {name: tensor}. They are the same on every rank. number: the layer's place in the model."""
    values = {}
    for i, p in enumerate(layer.parameters):
        g = torch.Generator().manual_seed((seed * 1000003 + number) * 1009 + i)
        values[p.name] = (torch.randn(p.shape, generator=g, dtype=torch.float64) * p.std + p.mean).to(dtype)
    return values


def tokens(sizes, seed, iteration, samples):
    """The tokens of an iteration and the token after each, the same on every rank. They are random walks, whose steps a model can learn."""
    g = torch.Generator().manual_seed(seed * 1000003 + iteration)
    steps = torch.randint(0, 4, (samples, sizes.length + 1), generator=g)
    steps[:, 0] = torch.randint(0, sizes.vocabulary, (samples,), generator=g)
    walk = steps.cumsum(1) % sizes.vocabulary
    return walk[:, :-1].contiguous(), walk[:, 1:].contiguous()
