"""The header of a run, on which all processors agree, with its checks and hashes."""

import dataclasses
import hashlib
import json
import math
import secrets

from ..checkpoint.file import layout

MAX_HEADER = 1 << 20


class Refused(ValueError):
    """A run, a message or a file does not fit this process. The message says what to do."""


@dataclasses.dataclass
class Config:
    """The settings of a run that determine its weights. complete() replaces None and 0 by defaults."""

    processors: int = 2  # even
    # "each": every rank tries its own direction on the same examples. "pairs": a pair tries a direction and its opposite. The default is "each",
    # unless there are directions or unequal examples.
    estimator: str = None
    directions: int = 0  # default: one for each rank; with "pairs", one for each pair
    key: int = None  # seed of all random numbers; default: random
    steps: int = 1000
    epsilon: float = None  # how far a trial moves each weight; default: 0.001, or what prepare() finds for a loss
    learning_rate: float = 0.0  # default: sqrt(directions) / (8 weights^(1/4)), times (examples / 8)^(3/4) below 8 examples
    schedule: str = "cosine"  # or "constant"
    examples: list | int = 8  # examples of an input, for each pair; a single number is for all pairs
    clip: float = 3.0  # largest slope, in units of the root mean square of the slopes; 0: no limit
    guard: bool = True  # halve the rate after a block of 64 steps that is clearly worse than the best

    def complete(self, weights):
        """Returns a checked copy with defaults for a run of so many weights."""
        c = dataclasses.replace(self, examples=list(self.examples) if isinstance(self.examples, (list, tuple)) else [self.examples])
        try:
            if len(c.examples) == 1:
                c.examples *= c.processors // 2
            c.estimator = c.estimator or ("each" if not c.directions and len(set(c.examples)) == 1 else "pairs")
            c.directions = c.directions or (c.processors if c.estimator == "each" else c.processors // 2)
        except TypeError:
            pass  # check() names the field
        c.key = secrets.randbits(64) if c.key is None else c.key
        c.epsilon = 1e-3 if c.epsilon is None else c.epsilon
        automatic, c.learning_rate = not c.learning_rate, c.learning_rate or 1.0
        c.check()
        if automatic:
            c.learning_rate = math.sqrt(c.directions) * (0.125 / math.sqrt(math.sqrt(weights))) * min(1, min(c.examples) / 8) ** 0.75
        return c

    def fields(self):
        """The fields of the header's config."""
        return dataclasses.asdict(self)

    def check(self):
        """Raises Refused for fields that are out of range."""

        def whole(x, low, high):
            return type(x) is int and low <= x <= high

        def number(x, low, high):
            return type(x) in (int, float) and low <= x <= high

        pairs = self.processors // 2 if whole(self.processors, 2, 128) else 0
        rules = {
            "processors": (pairs > 0 and self.processors % 2 == 0, "even, 2 to 128"),
            "estimator": (self.estimator in ("pairs", "each"), "pairs or each"),
            "directions": (self._directions(pairs), "a divisor of the pairs; with the estimator each, the number of processors"),
            "key": (whole(self.key, 0, 2**64 - 1), "64 bits"),
            "steps": (whole(self.steps, 1, 2**31), "1 to 2^31"),
            "epsilon": (number(self.epsilon, 2**-20, 1) and self.epsilon > 2**-20, "above 2^-20, at most 1"),
            "learning_rate": (number(self.learning_rate, 0, 100) and self.learning_rate > 0, "above 0, at most 100"),
            "schedule": (self.schedule in ("constant", "cosine"), "constant or cosine"),
            "examples": (type(self.examples) is list and len(self.examples) == pairs and all(whole(e, 1, 1 << 20) for e in self.examples), "one number of 1 to 2^20 for each pair"),
            "clip": (number(self.clip, 0, math.inf) and math.isfinite(self.clip), "0 or above"),
            "guard": (type(self.guard) is bool, "true or false"),
        }
        if self.estimator == "each" and rules["examples"][0]:
            rules["examples"] = len(set(self.examples)) == 1, "the same for all pairs with the estimator each"
        wrong = [f"config.{f}: {getattr(self, f)!r} must be {rule}" for f, (good, rule) in rules.items() if not good]
        if wrong:
            raise Refused("; ".join(wrong))

    def _directions(self, pairs):
        if type(self.directions) is not int:
            return False
        return self.directions == self.processors if self.estimator == "each" else 1 <= self.directions <= max(pairs, 1) and pairs % self.directions == 0

    def direction(self, rank):
        """The number of the direction that a rank tries."""
        return rank if self.estimator == "each" else rank // 2 * self.directions // (self.processors // 2)

    def sign(self, rank):
        """-1 for ranks that try the opposite of their direction, else 1."""
        return -1 if self.estimator != "each" and rank % 2 else 1


@dataclasses.dataclass
class Tensor:
    """The description of a trained tensor in the header."""

    name: str
    shape: list
    shift: int
    mean: float
    std: float
    hash: str

    def size(self):
        return math.prod(self.shape)


@dataclasses.dataclass
class Header:
    raw: bytes  # the received JSON, which is hashed as it is
    config: Config
    tensors: list
    initial: str
    count: int
    frozen: str  # "" if the header has none


def build(config, count, tensors, frozen):
    """The header of a new run, as JSON. It starts from the present values of the tensors."""
    h = {"version": 5, "config": config.fields(), "data": {"count": count}, "initial": "file", "tensors": [dataclasses.asdict(t) for t in tensors]}
    if frozen:
        h["frozen"] = frozen
    return json.dumps(h).encode()


def parse(raw):
    """Parses a header. Refused names the first bad field."""
    if len(raw) > MAX_HEADER:
        raise Refused(f"header: {len(raw)} bytes, at most {MAX_HEADER}")
    try:
        h = json.loads(raw)
    except ValueError as e:
        raise Refused(f"header: {e}") from None
    if type(h) is not dict or h.get("version") != 5:
        raise Refused(f"header: version {h.get('version') if type(h) is dict else None!r}; this program knows version 5")
    config = _config(h.get("config"))
    if h.get("initial") not in ("key", "file"):
        raise Refused(f"initial: {h.get('initial')!r} must be key or file")
    data = h.get("data")
    if type(data) is not dict or type(data.get("count")) is not int or not 1 <= data["count"] < 2**32:
        raise Refused("data.count must be 1 to 2^32 - 1")
    return Header(raw, config, _tensors(h.get("tensors")), h["initial"], data["count"], str(h.get("frozen", "")))


def _config(c):
    """Makes a Config from the header's fields. Unknown fields and values are refused, because they would change the weights."""
    names = {f.name for f in dataclasses.fields(Config)}
    if type(c) is not dict or set(c) != names:
        raise Refused(f"config: fields {sorted(names ^ set(c)) if type(c) is dict else c!r} are missing or unknown")
    config = Config(**c)
    config.check()
    return config


def _tensors(listed):
    if type(listed) is not list or not listed:
        raise Refused("tensors: none")
    out = []
    for i, t in enumerate(listed):
        t = t if type(t) is dict else {}
        shape, shift = t.get("shape"), t.get("shift")
        if type(t.get("name")) is not str or type(t.get("hash")) is not str:
            raise Refused(f"tensors[{i}]: name and hash must be strings")
        if type(shape) is not list or any(type(d) is not int or not 1 <= d < 2**40 for d in shape):
            raise Refused(f"tensors[{i}] {t['name']!r}: shape {shape!r} is invalid")
        if type(shift) is not int or not 0 <= shift <= 24:
            raise Refused(f"tensors[{i}] {t['name']!r}: shift {shift!r} must be 0 to 24")
        if not all(type(t.get(f)) in (int, float) and math.isfinite(t[f]) for f in ("mean", "std")):
            raise Refused(f"tensors[{i}] {t['name']!r}: mean and std must be numbers")
        out.append(Tensor(t["name"], shape, shift, t["mean"], t["std"], t["hash"]))
    return out


def same(theirs, ours, frozen_theirs, frozen_ours):
    """Refuses a run whose tensors or frozen part differ from this model's. The message names the first difference."""
    for what in ("name", "shape", "hash"):
        for i in range(max(len(theirs), len(ours))):
            a, b = (getattr(ts[i], what) if i < len(ts) else None for ts in (theirs, ours))
            if a != b:
                name = (theirs if i < len(theirs) else ours)[i].name
                raise Refused(f"tensor {i} {name!r}: {what} {a!r} in the run, {b!r} here; {_REMEDY[what]}")
    if frozen_theirs and frozen_theirs != frozen_ours:
        raise Refused(f"the frozen part differs: its hash is {frozen_theirs} in the run, {frozen_ours or 'none'} here; use the same base model, in the same dtype")


_REMEDY = {"name": "train the same parameters in the same order", "shape": "use the same model", "hash": "start from the same weights"}


def frozen_hash(tensors):
    """The hash of the tensors that are not trained. tensors: name -> tensor."""
    out = hashlib.sha256()
    for name, t in sorted(tensors.items(), key=lambda i: i[0].encode()):
        out.update(name.encode() + b"\0" + str(t.dtype).replace("torch.", "").encode() + b"\0")
        raw = t.detach().cpu().contiguous()
        out.update(layout.memory(raw))
    return out.hexdigest()
