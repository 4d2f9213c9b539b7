"""The undivided model on one process, and how far from it the ranks of a plan are."""

import torch
import torch.distributed as dist

from . import model, tensor


def gradients(sizes, seed, dtype, tokens, targets):
    """The mean loss of a batch at the first weights, and its gradients, {name: tensor} of each layer."""
    layers = sizes.layers()
    values = [{k: v.requires_grad_() for k, v in model.initial(l, i, seed, dtype).items()} for i, l in enumerate(layers)]
    x = tokens
    for l, p in zip(layers, values):
        x = l.forward(p, x, None)
    loss = tensor.cross_entropy(x, targets, 1.0 / targets.numel(), None)
    loss.backward()
    return float(loss.detach()), [{k: v.grad for k, v in p.items()} for p in values]


def compare(worker, seed, tokens, targets):
    """Called by all ranks between the exchange and the first update. Returns on rank 0 the largest difference of a gradient from the
    undivided model's, as a share of the largest gradient of its parameter, with its name; None on others."""
    own = [{k: g.numpy() for k, g in v.gathered().items()} for v in worker.layers]
    all = [None] * dist.get_world_size() if worker.place.rank == 0 else None
    dist.gather_object(own, all, dst=0)
    if all is None:
        return None
    with torch.enable_grad():
        _, whole = gradients(worker.sizes, seed, worker.dtype, tokens, targets)
    worst = (0.0, "none")
    for place, layers in zip(worker.layout.places, all):
        for number, values in zip(worker.layout.layers[place.stage], layers):
            layer = worker.sizes.layers()[number]
            for p in layer.parameters:
                want = model.part(p, whole[number][p.name], place.tensor_rank, place.tensor)
                got = torch.from_numpy(values[p.name])
                largest = float(whole[number][p.name].abs().max())
                off = float((got - want).abs().max()) / largest if largest > 0 else float(got.abs().max())
                if not off <= worst[0]:  # NaN counts
                    worst = (off, "layer %d (%s), %s, on rank %d" % (number, layer.name, p.name, place.rank))
    return worst
