"""Reads a plan file (docs/reference/formats/plan.md) and assigns layers and samples to ranks. It needs only the standard library. Which devices these are
makes no difference here; `evenkeel plan check` compares them with a cluster.

Ranks are numbered as by `evenkeel plan export`: stage by stage, within a stage replica by replica in the order of its groups, and within a
replica device by device.
"""

import json
import zlib
from collections import namedtuple

# The position of a rank. rows: the range of a micro-batch's samples that its replica takes.
Place = namedtuple("Place", "rank stage replica tensor tensor_rank rows")

# How a layer is trained. checkpoint: recompute it in the backward pass. selective: recompute only the core of its attention.
Strategy = namedtuple("Strategy", "sharding checkpoint selective", defaults=(False,))

MOST_RANKS = 256


class PlanError(ValueError):
    """The plan is invalid or cannot be run here. The message names the file and the field."""


class Layout:
    """The ranks and layers of a plan."""

    def __init__(self, text, name="plan"):
        """text: the plan as JSON. name: the plan's name in error messages."""
        self.name = name
        try:
            plan = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise PlanError("%s: no plan: %s" % (name, e)) from e
        self._field(plan, "version", int, 1, 1)
        self._known(plan, ("version", "model", "global_batch", "micro_batch", "context", "experts", "schedule", "stages", "unused", "predicted"))
        self.digest = zlib.crc32(json.dumps({k: v for k, v in plan.items() if k != "predicted"}, sort_keys=True).encode())
        self.global_batch = self._field(plan, "global_batch", int, 1, 1 << 30)
        self.micro_batch = self._field(plan, "micro_batch", int, 1, self.global_batch)
        if self.global_batch % self.micro_batch:
            self._refuse("global_batch", "%d is no multiple of micro_batch, %d" % (self.global_batch, self.micro_batch))
        self.micro_batches = self.global_batch // self.micro_batch
        for key in ("context", "experts"):
            if plan.get(key, 1) not in (0, 1):
                self._refuse(key, "%.40r: context and expert parallelism are not supported here" % (plan[key],))
        if plan.get("schedule") not in (None, "", "1f1b"):
            self._refuse("schedule", "%.40r: only 1f1b is supported here" % (plan["schedule"],))
        self.strategies, self.places, self.layers = [], [], []  # by layer; by rank; by stage, a range of layers
        for i, stage in enumerate(self._list(plan, "stages")):
            self._stage(i, stage)
        predicted = plan.get("predicted")
        predicted = predicted if isinstance(predicted, dict) else {}
        if predicted.get("tied", False) is not False:
            self._refuse("predicted.tied", "%.40r: tied parameters are not supported here; plan with a layer profile without tied_parameters" % (predicted["tied"],))
        seconds = [predicted.get(k) for k in ("simulated", "seconds")]
        self.predicted = next((float(s) for s in seconds if isinstance(s, (int, float)) and s > 0), None)

    @classmethod
    def load(cls, path):
        """Reads a plan file. Raises OSError if the file cannot be read."""
        with open(path, encoding="utf-8", errors="replace") as f:
            return cls(f.read(64 << 20), path)

    @property
    def world_size(self):
        return len(self.places)

    def ranks(self, stage):
        """The places of a stage."""
        return [p for p in self.places if p.stage == stage]

    def degrees(self, stage):
        """The tensor degrees of a stage's replicas."""
        return sorted({p.tensor for p in self.ranks(stage)})

    def partners(self, place, stage):
        """The ranks of a neighbouring stage from which a rank receives its rows of a micro-batch: (place, rows) each."""
        out = []
        for p in self.ranks(stage):
            rows = range(max(p.rows.start, place.rows.start), min(p.rows.stop, place.rows.stop))
            # Every rank of a replica has all of its rows, so the receivers are distributed over them.
            if rows and p.tensor_rank == place.tensor_rank % p.tensor:
                out.append((p, rows))
        return out

    def takers(self, place, stage):
        """The ranks of a neighbouring stage that receive rows of a micro-batch from this rank: (place, rows) each."""
        return [(p, rows) for p in self.ranks(stage) for partner, rows in self.partners(p, place.stage) if partner.rank == place.rank]

    def _stage(self, i, stage):
        at, first = "stages[%d]." % i, self.layers[-1].stop if self.layers else 0
        self._known(stage, ("from", "to", "groups", "strategies"), at)
        begin = self._field(stage, "from", int, first, first, at)
        end = self._field(stage, "to", int, begin + 1, 4096, at)
        replicas, row = 0, 0
        for k, group in enumerate(self._list(stage, "groups", at)):
            inner = "%sgroups[%d]." % (at, k)
            self._known(group, ("device", "first", "count", "tensor", "micro_batches"), inner)
            tensor = self._field(group, "tensor", int, 1, MOST_RANKS, inner)
            shares = self._list(group, "micro_batches", inner)
            count = self._field(group, "count", int, 1, MOST_RANKS, inner)
            if count != tensor * len(shares):
                self._refuse(inner + "count", "%d devices; want %d replicas of %d" % (count, len(shares), tensor))
            if len(self.places) + count > MOST_RANKS:
                self._refuse(inner + "count", "more than %d ranks" % MOST_RANKS)
            for n, share in enumerate(shares):
                if not isinstance(share, int) or isinstance(share, bool) or share < 1:
                    self._refuse("%smicro_batches[%d]" % (inner, n), "%.40r; want a whole number of at least 1" % (share,))
                for q in range(tensor):
                    self.places.append(Place(len(self.places), i, replicas, tensor, q, range(row, row + share)))
                replicas, row = replicas + 1, row + share
        if row != self.micro_batch:
            self._refuse(at + "groups", "the replicas take %d samples of a micro-batch of %d" % (row, self.micro_batch))
        for k, y in enumerate(self._list(stage, "strategies", at)):
            inner = "%sstrategies[%d]." % (at, k)
            self._known(y, ("from", "to", "tensor", "sharding", "checkpoint", "selective"), inner)
            self._field(y, "from", int, len(self.strategies), len(self.strategies), inner)
            to = self._field(y, "to", int, len(self.strategies) + 1, end, inner)
            if y.get("tensor"):
                self._refuse(inner + "tensor", "every layer has the tensor degree of its group; leave it out")
            if y.get("sharding") not in ("none", "optimizer", "gradients"):
                self._refuse(inner + "sharding", "%.40r; none, optimizer and gradients are supported here" % (y.get("sharding"),))
            for key in ("checkpoint", "selective"):
                if not isinstance(y.get(key, False), bool):
                    self._refuse(inner + key, "%.40r; want true or false" % (y[key],))
            strategy = Strategy(y["sharding"], y.get("checkpoint", False), y.get("selective", False))
            if strategy.checkpoint and strategy.selective:
                self._refuse(inner + "selective", "true, and so is checkpoint; want one of them")
            self.strategies += [strategy] * (to - len(self.strategies))
        if len(self.strategies) != end:
            self._refuse(at + "strategies", "they end at layer %d, the stage ends at layer %d" % (len(self.strategies), end))
        self.layers.append(range(begin, end))

    def _known(self, obj, keys, at=""):
        """Refuses unknown fields."""
        for key in obj:
            if key not in keys:
                self._refuse("%s%.40s" % (at, key), "not supported here")

    def _refuse(self, field, why):
        raise PlanError("%s: %s: %s" % (self.name, field, why))

    def _field(self, obj, key, kind, least, most, at=""):
        v = obj.get(key) if isinstance(obj, dict) else None
        if not isinstance(v, kind) or isinstance(v, bool) or not least <= v <= most:
            self._refuse(at + key, "%.40r; want %s" % (v, least if least == most else "%d to %d" % (least, most)))
        return v

    def _list(self, obj, key, at=""):
        v = obj.get(key)
        if not isinstance(v, list) or not v or not all(isinstance(x, dict) for x in v) and key != "micro_batches":
            self._refuse(at + key, "want a list of at least one")
        return v
