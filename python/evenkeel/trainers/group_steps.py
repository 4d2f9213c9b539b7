"""HSDP whose shard groups make as many micro-steps as they can: ranks of one group meet in every micro-step, groups only at the end of a round.

    mesh = init_device_mesh("cuda", (hosts, 8), mesh_dim_names=("replicate", "shard"))
    tuner = evenkeel.GroupSteps(fully_shard(model, mesh=mesh))
    loader = tuner.loader(data, global_batch=256, micro_batch=1)            # of a rank, in each micro-step
    for x, y in tuner.steps(loader):
        (criterion(model(x), y) * tuner.scale).backward()
        if tuner.synchronised:
            optimizer.step(); optimizer.zero_grad()

A group is one node of the tuner: one machine of equal cards, each of which takes as many samples in a micro-step. Micro-batches keep their size, so a
quick machine needs no more memory than a slow one, and a micro-batch may be a single sequence. Gradients of earlier micro-steps stay within the group, as
FSDP2's set_requires_all_reduce has it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ..tuner import client, registration
from ..tuner.errors import Usage
from ..tuner.local import LocalClient
from ..tuner.round_vector import Did
from ..tuner.sample_order import split
from .equal_order import EqualOrder
from .equal_steps import EqualSteps, Loader
from .forward_time import BOTH, Stopwatch


class GroupOrder(EqualOrder):
    """The batch sampler of one rank. groups are the ranks of each shard group; the shares of a plan are theirs."""

    def __init__(self, length: int, global_batch: int, micro_batch: int, groups: list[list[int]], seed: int = 0, shuffle: bool = True, drop_last: bool = False):
        super().__init__(length, global_batch, 0, seed, shuffle, drop_last)
        self.micro_batch, self.groups = micro_batch, groups
        self.unit = micro_batch * len(groups[0])  # samples of a group's micro-step

    def __len__(self) -> int:
        raise TypeError("how many micro-steps an epoch has depends on the sizes")

    def counts(self, number: int) -> list[int]:
        total, shares = self._total(number), self.plan(number).shares[: len(self.groups)]
        units = split(-(-total // self.unit), shares) if sum(shares) != total else [s // self.unit for s in shares]
        counts = [0] * sum(map(len, self.groups))
        beyond = sum(units) * self.unit - total  # of an epoch's last round
        for ranks, n in zip(self.groups, units):
            own = max(n * self.unit - beyond, 0)
            beyond -= n * self.unit - own
            for r, c in zip(ranks, split(own, [1] * len(ranks))):
                counts[r] = c
        return counts

    def sizes(self, number: int) -> list[int]:
        counts = self.counts(number)
        group = next(g for g in self.groups if self.rank in g)
        return split(counts[self.rank], [1] * max(-(-max(counts[r] for r in group) // self.micro_batch), 1))


class StepTime(Stopwatch):
    """How long a group's micro-steps take. In the last one it waits for the other groups: that takes as long as the mean of those before. A single one takes BOTH
    times its forward pass."""

    def __init__(self, model: torch.nn.Module, clock: Callable[[], float]):
        super().__init__(model, clock)
        self._steps, self._alone = 0, False
        self._handles += [model.register_forward_pre_hook(self._enter, prepend=True), model.register_forward_hook(self._leave, always_call=True)]

    def begin(self, last: bool) -> None:
        self._alone = last and not self._steps
        if not last:
            self._start()

    def end(self, last: bool) -> None:
        if not last:
            self._stop()
            self._steps += 1

    def read(self, of: Any) -> tuple[float, Any]:
        times, self._steps = (self._steps + 1) / self._steps if self._steps else BOTH, 0
        seconds, told = super().read((of, times))
        of, times = told or (None, 0.0)
        return times * seconds, of

    def _enter(self, *_: Any) -> None:
        if self.active and self._alone and torch.is_grad_enabled():
            self._start()

    def _leave(self, *_: Any) -> None:
        if self.active and self._alone and torch.is_grad_enabled():
            self._stop()


class GroupSteps(EqualSteps):
    """One rank's side. model was given to fully_shard, with a mesh of groups by ranks within them."""

    _timer = StepTime

    def __init__(self, model: torch.nn.Module, local: bool = True, **arguments: Any):
        meshes = {p.device_mesh for p in model.parameters() if hasattr(p, "device_mesh")}
        if not isinstance(model, FSDPModule) or len(meshes) != 1 or (mesh := meshes.pop()).ndim != 2:
            raise Usage("GroupSteps takes the model that fully_shard(model, mesh=...) returned, with one mesh of two dimensions for all of its layers, replicate and shard; without it use evenkeel.EqualSteps")
        self._groups: list[list[int]] = mesh.mesh.tolist()
        super().__init__(model, local=local, **arguments)

    def loader(self, data: Any, global_batch: int, micro_batch: int = 1, seed: int = 0, shuffle: bool = True, drop_last: bool = False, **arguments: Any) -> Loader:  # type: ignore[override]
        """The loader of a map-style dataset. Every round takes global_batch samples, in micro-steps of micro_batch samples of each rank. Arguments are the same on
        all ranks; further ones are DataLoader's."""
        if not isinstance(micro_batch, int) or micro_batch < 1:
            raise Usage(f"micro_batch {micro_batch!r}: give the samples of a rank in a micro-step")
        return super().loader(data, global_batch, 1, micro_batch, seed, shuffle, drop_last, **arguments)

    def _order(self, length: int, global_batch: int, _: int, *arguments: Any) -> GroupOrder:
        order = GroupOrder(length, global_batch, self._most, self._groups, *arguments[:3])
        if global_batch % order.unit or global_batch < order.unit * len(self._groups):
            raise Usage(f"global_batch {global_batch}: give a multiple of {order.unit}, the samples of a micro-step of a shard group, with one for each of {len(self._groups)} groups")
        return order

    def _found(self, same: dict[str, Any], device: torch.device) -> registration.Found:
        """Registers the groups, by their first ranks."""
        unit, groups, found = self.order.unit, self._groups, None
        same = {**same, "micro_batch": self._most}
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, same, group=self._group)
        wrong = next((r for r, other in enumerate(everyone) if other != everyone[0]), 0)
        if wrong:
            raise Usage(f"loader() has {everyone[wrong]} on rank {wrong}, {everyone[0]} on rank 0: pass the same on all ranks")
        first = [g[0] for g in groups]
        leaders = dist.new_group(first, backend="gloo")
        if dist.get_rank() in first:
            found = registration.register(same, {"least": unit, "most": unit, "sizes": [unit]}, device, leaders, self._local)
        told: list[Any] = [found and (found.first, found.serving, isinstance(found.client, LocalClient))]
        dist.broadcast_object_list(told, first[0], group=self._group)
        plan, serving, alike = told[0]
        own = LocalClient(self.order.global_batch, [0] * len(groups), unit=unit) if alike else found and found.client
        if plan is None or alike:
            plan = own.newest if alike else client.Plan(0, [unit * n for n in client.uniform(self.order.global_batch // unit, [0] * len(groups)).shares], [unit] * len(groups))
        return registration.Found(own, plan, serving, False, [unit] * len(groups))

    def _nodes(self, ranks: list[Did]) -> list[Did]:
        """A group takes as long as its slowest rank."""
        nodes = []
        for g in self._groups:
            own = [ranks[r] for r in g]
            nodes.append(Did(max(d.seconds for d in own), sum(d.samples for d in own), max(d.micro_steps for d in own), input=max(d.input for d in own)))
        return nodes

    def start(self) -> None:
        super().start()
        self._model.set_requires_all_reduce(self.last)
        self._time.begin(self.last)

    def stop(self) -> None:
        self._time.end(self.last)
        super().stop()
