"""Tensor parallelism as in Megatron-LM (Shoeybi et al., arXiv 1909.08053). Of two consecutive matrices, the ranks of a group hold columns of the
first and rows of the second, and sum the results. A group of None stands for a single rank."""

import torch
import torch.distributed as dist


class _Copy(torch.autograd.Function):
    """The input of a split matrix: the identity; sums the gradients of the ranks (f in the paper)."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(g, group=ctx.group)
        return g, None


class _Sum(torch.autograd.Function):
    """The output of a split matrix: sums the parts of the ranks; the gradient is the identity (g in the paper)."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


def rank(group):
    """This process's rank in the group."""
    return 0 if group is None else dist.get_rank(group)


def size(group):
    """The number of processes in the group."""
    return 1 if group is None else dist.get_world_size(group)


def copy(x, group):
    """Passes x to a split matrix."""
    return x if group is None else _Copy.apply(x, group)


def total(x, group):
    """Sums x, the result of each rank's part of a matrix, over the ranks."""
    return x if group is None else _Sum.apply(x, group)


def cross_entropy(logits, targets, scale, group):
    """scale times the sum of the cross-entropy over the targets. Each rank has the logits of its share of the classes."""
    classes = logits.shape[-1]
    first = classes * rank(group)
    top = logits.detach().max(-1).values.contiguous()
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
    logits = logits - top[..., None]
    here = (targets >= first) & (targets < first + classes)
    own = logits.gather(-1, (targets - first).clamp(0, classes - 1)[..., None])[..., 0] * here
    sums = total(torch.stack([logits.exp().sum(-1), own]), group)
    return (sums[0].log() - sums[1]).sum() * scale
