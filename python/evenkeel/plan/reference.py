"""Compares the gradients of a plan's ranks with those of the undivided model on one process."""

import torch
import torch.distributed as dist

from . import model, tensor


def gradients(sizes, seed, dtype, tokens, targets):
    """Returns the gradients of a batch's mean loss at the first weights: for each layer {name: tensor}."""
    layers = sizes.layers()
    values = [{k: v.requires_grad_() for k, v in model.initial(l, i, seed, dtype).items()} for i, l in enumerate(layers)]
    x = tokens
    for l, p in zip(layers, values):
        x = l.forward(p, x, None)
    tensor.cross_entropy(x, targets, 1.0 / targets.numel(), None).backward()
    return [{k: v.grad for k, v in p.items()} for p in values]


def compare(worker, seed, tokens, targets):
    """All ranks call it between the exchange and the first update. On rank 0 it returns the largest difference between a gradient and the
    undivided model's, relative to the largest gradient of the same parameter, and where it is. Other ranks get None."""
    own = [{k: g.numpy() for k, g in v.gathered().items()} for v in worker.layers]
    all = [None] * dist.get_world_size() if worker.place.rank == 0 else None
    dist.gather_object(own, all, dst=0)
    if all is None:
        return None
    with torch.enable_grad():
        whole = gradients(worker.sizes, seed, worker.dtype, tokens, targets)
    worst = (0.0, "none")
    for place, layers in zip(worker.layout.places, all):
        for number, values in zip(worker.layout.layers[place.stage], layers):
            layer = worker.sizes.layers()[number]
            for p in layer.parameters:
                want = model.part(p, whole[number][p.name], place.tensor_rank, place.tensor)
                got = torch.from_numpy(values[p.name])
                largest = float(whole[number][p.name].abs().max())
                off = float((got - want).abs().max()) / largest if largest > 0 else float(got.abs().max())
                if not off <= worst[0]:  # also if it is NaN
                    worst = (off, "layer %d (%s), %s, on rank %d" % (number, layer.name, p.name, place.rank))
    return worst
