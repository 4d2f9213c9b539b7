"""Everything that follows from a run's header and the frames in order: rounds, steps, weights, blocks. It uses no network and no clock."""

import collections
import math

import torch

from . import header as headers
from . import philox, record, rounds, step, weights


class Replica:
    """A run's state, the same bits in every process. parts are those of the model, and are checked against the header."""

    def __init__(self, raw, parts, frozen=""):
        h = self.header = headers.parse(raw)
        self.config = h.config
        if h.initial == "file":
            ours = weights.describe(parts, [t.shift for t in h.tensors])
        else:  # their hashes are checked as they are made
            ours = [headers.Tensor(p.name, p.shape, 0, 0, 0, t.hash) for p, t in zip(parts, h.tensors)]
            ours += [headers.Tensor(p.name, p.shape, 0, 0, 0, "") for p in parts[len(ours) :]]
        headers.same(h.tensors, ours, h.frozen, frozen)
        self.weights = weights.Weights(parts, h.tensors, self.config.key, self.config.directions)
        self.weights.start(h.initial)
        self.step = 0  # the next to be decided
        self._last = False  # it was decided to stop, and the block is complete
        self.chain = record.start(raw)[-16:]
        self.running, self.rounds = step.Running(), rounds.Rounds(self.config.processors, self.config.steps)
        self.not_finite, self.absent = collections.Counter(), collections.Counter()  # by pair: steps
        self._steps, self._losses, self._examples = [], [], {}  # of the block so far
        self.rounds.begin(0)

    def over(self):
        return self._last or self.step == self.config.steps

    def trial(self, rank):
        """What the rank's losses of this step are computed with: its amounts."""
        n = round(self.config.epsilon * 2.0**24)
        return [(self.config.direction(rank), self.step, -n if rank % 2 and self.config.estimator != "each" else n)]

    def batch(self, rank):
        """The examples of the rank's two inputs in this step."""
        c, p, k = self.config, rank // 2, self.step // rounds.BLOCK
        e = c.examples[p]
        if self._examples.get(p, (None,))[0] != k:  # a block's at once
            stride, first = (2 * max(c.examples), 0) if c.estimator == "each" else (2 * sum(c.examples), 2 * sum(c.examples[:p]))
            at = (torch.arange(rounds.BLOCK) + k * rounds.BLOCK)[:, None] * stride + first + torch.arange(2 * e)
            self._examples[p] = k, philox.examples(c.key, self.header.count, at.flatten()).reshape(at.shape)
        both = self._examples[p][1][self.step % rounds.BLOCK]
        return both[:e], both[e:]

    def losses(self, rank, loss):
        """The rank's losses of this step, of the user's function; its parameters are left as the trial has them."""
        with torch.no_grad():
            self.weights.write(self.trial(rank))
            return [float(loss(b)) for b in self.batch(rank)]

    def put(self, sender, data, position=0):
        """A frame of the stream, on a rank's subject. Gives a block's bytes if it ended one, True if it decided a step or counted, False if it
        is to be ignored."""
        f = rounds.read_frame(data)
        taken = f is not None and not self.over() and self.rounds.put(sender, *f)
        if taken is False:
            return False
        if taken is None:
            return True
        j = self.step
        counted = [t.pair for t in taken if t.age == 0] or [t.pair for t in taken]
        self.author = 2 * counted[0]  # of the block, if this ends one
        self.not_finite.update(t.pair for t in taken if not t.finite())
        self.absent.update(set(range(self.config.processors // 2)) - {t.pair for t in taken})
        s = step.increments(self.config, self.running, j, taken)
        self._apply(s)
        if self.step % rounds.BLOCK and self.step < self.config.steps:
            self.rounds.begin(self.step)
            return True
        out = self._block(position)
        self._last = self.rounds.stop
        self.rounds.begin(self.step)
        return out

    def _apply(self, s):
        j = self.step
        if j % rounds.BLOCK == 0:
            self._steps = []
        self._steps.append(s)
        if s.loss is not None:
            self._losses.append(s.loss)
        self.weights.move(step.amounts(self.config, s, j))
        self.step = j + 1
        if j % 16 == 15 or self.step == self.config.steps:
            self.weights.check()

    def _block(self, position):
        k = (self.step - 1) // rounds.BLOCK
        mean = step.guard(self.running, self._losses) if self.config.guard else _mean(self._losses)
        prompt = sum(1 << p for p, on in enumerate(self.rounds.prompt) if on)
        r = self.running
        b = record.Block(k, self._steps, position, prompt, self.rounds.stop, r.square, r.scale, r.best, r.best_error, math.nan if mean is None else mean, self.weights.hash())
        out = record.write(b, self.chain)
        self.before, self.chain, self._losses = self.chain, out[-16:], []
        return out

    def apply(self, data):
        """A whole block, of a log or of the stream, at a block's start; its weights are checked. Gives it."""
        if self.step % rounds.BLOCK or self.over():
            raise headers.Refused(f"a block at step {self.step}")
        b = record.read(data, self.chain, self.step // rounds.BLOCK, self.config)
        for s in b.steps:
            self._apply(s)
        if self.weights.hash() != b.weights:
            raise headers.Refused(f"block {b.number}: its steps lead to other weights than it says")
        self.running = step.Running(b.square, b.scale, b.best, b.best_error)
        self.chain, self._losses, self._last = b.chain, [], b.last
        self.rounds.prompt = [bool(b.prompt >> p & 1) for p in range(self.config.processors // 2)]
        self.rounds.begin(self.step)
        return b

    def hash(self):
        return self.weights.hash().hex()


class Validation:
    """For after_block: computes loss() every 64 steps, and asks for the run's end when it has not fallen for stop_after steps. losses has the losses
    so far, as (steps, loss); best is the lowest, None before the first, and replay(..., steps=best[0]) has its weights. One rank's validation is
    enough: all ranks end together. The others go on while it validates, and its pair is absent from their steps if that takes longer than a few steps
    (Result.absent). A rank that was killed and started again does not know earlier losses."""

    def __init__(self, loss, stop_after=None):
        self._loss, self._stop_after = loss, stop_after
        self.losses = []

    @property
    def best(self):
        return min(self.losses, key=lambda l: (not l[1] <= math.inf, l[1]), default=None)  # the first; a NaN is none

    def __call__(self, run):
        with torch.no_grad():
            self.losses.append((run.step, float(self._loss())))
        first = 0 if math.isnan(self.best[1]) else self.best[0]
        return self._stop_after is not None and run.step - first >= self._stop_after


def _mean(losses):
    return sum(losses) / len(losses) if losses else None


def prepare(config, count, parts, frozen="", data_hash="", program=None):
    """The header of a new run that trains the parts from the values they have now, on count examples, with the config's defaults filled in."""
    tensors = weights.describe(parts)
    return headers.build(config.complete(sum(t.size() for t in tensors)), count, tensors, "file", frozen, data_hash, program)


def alone(raw, parts, loss, frozen="", log=None, after_block=None):
    """Runs all processors of a run in this process, one after the other, and returns the replica. log is a file to write. after_block(replica) is
    called every 64 steps with the weights in the parameters; if it returns True, the run ends 64 steps later, as a run of several processes does."""
    r = Replica(raw, parts, frozen)
    if log:
        log.write(record.start(raw))
    while not r.over():
        at, frames = r.step, []
        for rank in range(r.config.processors):
            frames.append(rounds.frame(at, rank, rounds.LOSSES, r.losses(rank, loss)))
        for rank, f in enumerate(frames):
            block = r.put(rank, f)
        if isinstance(block, bytes):
            if log:
                log.write(block)
            if after_block:
                r.weights.write()
                if after_block(r) is True and not r.over():
                    r.put(0, rounds.frame(r.step, 0, rounds.STOP))
    r.weights.write()
    return r


def replay(path, parts, frozen="", steps=None):
    """Puts the weights after so many steps of a log (a multiple of 64), or after all, into the parts' parameters, and returns the replica. Every
    block's hash is compared."""
    if steps is not None and (steps < 0 or steps % rounds.BLOCK):
        raise headers.Refused(f"steps: {steps}; a log has weights after every {rounds.BLOCK} steps")
    with open(path, "rb") as f:
        data = f.read()
    try:
        raw, at = record.read_start(data)
        r = Replica(raw, parts, frozen)
        while at < len(data) and (steps is None or r.step < steps):
            n = record.length(data[at : at + (1 << 21)])
            if n is None:
                break  # good up to the block before
            r.apply(data[at : at + n])
            at += n
        if steps is not None and r.step < steps:
            raise headers.Refused(f"steps: {steps}; it ends after step {r.step}")
    except headers.Refused as e:
        raise headers.Refused(f"{path}: {e}") from None
    r.weights.write()
    return r
