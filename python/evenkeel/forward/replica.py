"""Computes rounds, steps, weights and blocks from the header of a run and its frames, in order. It uses no network and no clock."""

import collections
import contextlib
import functools
import logging
import math

import torch

from . import header as headers
from . import philox, record, rounds, step, trained, weights

_LOG = logging.getLogger("evenkeel.forward")


@contextlib.contextmanager
def _passes():
    """Forward passes without gradients. Torch's fast path of attention layers would read the weights of the layers in it, and pass adapters by."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)

def _number(loss):
    try:
        return float(loss)
    except (TypeError, ValueError, RuntimeError):
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
        raise headers.Refused(f"loss(batch) returned {what}; it must return one number, the mean loss") from None


class Replica:
    """The state of a run, with the same bits in every process. parts: those of the model; they are compared with the header."""

    def __init__(self, raw, parts):
        h = self.header = headers.parse(raw)
        self.config = h.config
        if h.initial == "file":
            ours = weights.describe(parts, [t.shift for t in h.tensors])
        else:  # start() compares their hashes
            ours = [headers.Tensor(p.name, p.shape, 0, 0, 0, t.hash) for p, t in zip(parts, h.tensors)]
            ours += [headers.Tensor(p.name, p.shape, 0, 0, 0, "") for p in parts[len(ours) :]]
        self._frozen = trained.frozen(parts)
        headers.same(h.tensors, ours, h.frozen, self._frozen)
        self.weights = weights.Weights(parts, h.tensors, self.config.key, self.config.directions)
        self.weights.start(h.initial)
        self.step = 0  # the step to be decided next
        self._last = False  # the run was stopped, and its last block is complete
        self.chain = record.start(raw)[-16:]
        self.running, self.rounds = step.Running(), rounds.Rounds(self.config.processors, self.config.steps)
        self.left_out, self.absent = collections.Counter(), collections.Counter()  # by pair: number of steps
        self._steps, self._losses, self._examples = [], [], {}  # of the present block
        self._equal = []  # by pair that came in it: whether both trials had the same losses
        self._tried = False  # whether losses were computed
        self._means = False  # whether the loss is that of a batch, and not of its examples
        self.rounds.begin(0)

    def over(self):
        """Whether the run is over."""
        return self._last or self.step == self.config.steps

    def trial(self, rank):
        """The amounts that a rank adds to the weights to compute its losses of this step."""
        n = round(self.config.epsilon * 2.0**24)
        return [(self.config.direction(rank), self.step, self.config.sign(rank) * n)]

    def batch(self, rank):
        """The examples of a rank's two inputs in this step."""
        c, p, k = self.config, rank // 2, self.step // rounds.BLOCK
        e = c.examples[p]
        if self._examples.get(p, (None,))[0] != k:  # compute them for a whole block
            stride, first = (2 * max(c.examples), 0) if c.estimator == "each" else (2 * sum(c.examples), 2 * sum(c.examples[:p]))
            at = (torch.arange(rounds.BLOCK) + k * rounds.BLOCK)[:, None] * stride + first + torch.arange(2 * e)
            self._examples[p] = k, philox.examples(c.key, self.header.count, at.flatten()).reshape(at.shape)
        both = self._examples[p][1][self.step % rounds.BLOCK]
        return both[:e], both[e:]

    def losses(self, ranks, loss):
        """Computes losses of this step, of both inputs for each rank. Those of ranks with the same examples are computed in one pass, by torch.vmap.
        Afterwards the model's parameters have the weights of a trial."""
        before, out = self._buffers(), []
        with _passes():
            while len(out) < len(ranks):
                first = ranks[len(out)]
                same = [r for r in ranks[len(out) :] if self.config.estimator == "each" or r // 2 == first // 2]
                two = functools.partial(self._two, loss, *self.batch(first))
                if len(same) == 1:
                    self.weights.write(self.trial(first))
                    out.append([_number(l) for l in two()])
                else:
                    out += self._together(same, two)
        for name, hash in self._buffers().items():
            if before[name] != hash:
                raise headers.Refused(f"buffer {name!r} of the model changes with a loss, and is no part of the run: freeze it, or select what is trained with training=True")
        if not self._tried:
            self._tried = True
            self._check_frozen()
        return out

    def _two(self, loss, a, b):
        """The losses of two inputs, in one pass if loss gives those of single examples."""
        if not self._means:
            of = loss(torch.cat((a, b)))
            if isinstance(of, torch.Tensor) and of.dim() == 1 and len(of) == len(a) + len(b):
                return of.float().reshape(2, -1).mean(1)
            self._means = True
        return loss(a), loss(b)

    def _together(self, ranks, two):
        model = self.weights.parts[0].model
        if model is None:
            raise headers.Refused("parts without a model are tried one rank at a time")
        trials = [{p.key: v for p, v in self.weights.values(self.trial(r))} for r in ranks]
        call = torch.nn.Module()
        call.model, call.forward = model, lambda: torch.stack([torch.as_tensor(l) for l in two()])

        def one(values):
            return torch.func.functional_call(call, {f"model.{n}": v for n, v in values.items()}, ())

        return torch.vmap(one)({n: torch.stack([t.pop(n) for t in trials]) for n in list(trials[0])}).tolist()

    def finish(self):
        """Writes the weights to the parameters, and checks that the run has changed nothing else."""
        self.weights.write()
        self._check_frozen()

    def _check_frozen(self):
        if trained.frozen(self.weights.parts) != self._frozen:
            raise headers.Refused("tensors of the model that the run does not train have changed since it began: its log and adapters are of another model. (PEFT's adapters of torch.nn.MultiheadAttention do so.)")

    def _buffers(self):
        """The hashes of the buffers that must not change, once a block."""
        return {n: headers.frozen_hash({n: b}) for n, b in trained.buffers(self.weights.parts).items()} if self.step % rounds.BLOCK == 0 else {}

    def put(self, sender, data, position=0):
        """Takes a frame from a rank's subject. Returns the bytes of a block if the frame ends one, True if it counts, False if it is ignored."""
        f = rounds.read_frame(data)
        taken = f is not None and not self.over() and self.rounds.put(sender, *f)
        if taken is False:
            return False
        if taken is None:
            return True
        j = self.step
        counted = [t.pair for t in taken if t.age == 0] or [t.pair for t in taken]
        self.author = 2 * counted[0]  # the rank that publishes the block if this step ends one
        self.absent.update(set(range(self.config.processors // 2)) - {t.pair for t in taken})
        s = step.increments(self.config, self.running, j, taken)
        self.left_out.update(s.left_out)
        self._equal += [t.even == t.odd for t in taken]
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
        mean = step.guard(self.running, self._losses, self.config.guard)
        prompt = sum(1 << p for p, on in enumerate(self.rounds.prompt) if on)
        r = self.running
        b = record.Block(k, self._steps, position, prompt, self.rounds.stop, r.square, r.scale, r.best, r.best_error, mean, self.weights.hash())
        out = record.write(b, self.chain)
        if k == 0 and 2 * sum(self._equal) > len(self._equal):  # later it may be that nothing is left to learn
            share, now = sum(self._equal) / len(self._equal), self.config.epsilon
            _LOG.warning("%.0f%% of the pairs of trials changed no loss, so little is learned: start again with a Config.epsilon above %g or more examples", 100 * share, now)
        self.before, self.chain, self._losses, self._equal = self.chain, out[-16:], [], []
        return out

    def apply(self, data):
        """Applies a whole block from a log or a stream, and compares the hash of the weights. Returns the block."""
        if self.step % rounds.BLOCK or self.over():
            raise headers.Refused(f"unexpected block at step {self.step}")
        b = record.read(data, self.chain, self.step // rounds.BLOCK, self.config)
        for s in b.steps:
            self._apply(s)
        if self.weights.hash() != b.weights:
            raise headers.Refused(f"block {b.number}: its steps lead to weights with another hash")
        self.running = step.Running(b.square, b.scale, b.best, b.best_error)
        self.chain, self._losses, self._last = b.chain, [], b.last
        self.rounds.prompt = [bool(b.prompt >> p & 1) for p in range(self.config.processors // 2)]
        self.rounds.begin(self.step)
        return b

    def hash(self):
        """The hash of the weights."""
        return self.weights.hash().hex()


class Validation:
    """An after_block function that computes loss() every 64 steps and ends the run when the loss has not fallen for stop_after steps.

    losses: (steps, loss) of each computation. best: the entry with the lowest loss, or None; replay(..., steps=best[0]) has its weights. The validation
    of one rank is enough, because all ranks end together. The others continue meanwhile, and its pair is absent from their steps if that takes long
    (Result.absent). A rank that was restarted does not know earlier losses."""

    def __init__(self, loss, stop_after=None):
        self._loss, self._stop_after = loss, stop_after
        self.losses = []

    @property
    def best(self):
        return min(self.losses, key=lambda l: (not l[1] <= math.inf, l[1]), default=None)  # the first of equal ones; NaN is worst

    def __call__(self, run):
        with torch.no_grad():
            self.losses.append((run.step, float(self._loss())))
        first = 0 if math.isnan(self.best[1]) else self.best[0]
        return self._stop_after is not None and run.step - first >= self._stop_after


def prepare(config, count, parts, loss=None):
    """Makes the header of a new run that trains the parts from their present values on count examples. loss, as of join(): if the config has no epsilon,
    it is doubled until trials change the losses, and while they are counts, such as error rates, until a trial is four times as long as a step: where
    steps lead further than trials, a run ends where no trial changes a count."""
    tensors = weights.describe(parts)
    c, frozen = config.complete(sum(t.size() for t in tensors)), trained.frozen(parts)
    while True:
        raw = headers.build(c, count, tensors, frozen)
        if loss is None or config.epsilon is not None or c.epsilon > 0.1:
            return raw
        losses = _tried(Replica(raw, parts), loss)
        equal, counts = sum(a == b for a, b in zip(losses[::2], losses[1::2])), 8 * len(set(sum(losses, []))) < 14 * len(losses)
        if 8 * equal <= len(losses) and not (counts and c.epsilon < 4 * c.learning_rate / math.sqrt(c.directions)):
            return raw
        c.epsilon *= 2


def _tried(r, loss):
    """The losses of 16 trials or more."""
    losses, c = [], r.config
    for r.step in range(-(-16 // c.processors)):
        losses += [r.losses([k], loss)[0] for k in range(c.processors)]
    r.weights.write()
    return losses


def train(raw, parts, loss, log=None, after_block=None, at_once=1):
    """Runs all processors of a run in this process, at_once ranks in a pass, and returns the replica. raw: the header, from prepare(). log: a file for
    the log. loss, after_block: as of join(). What loss calls must be what torch.vmap can trace if at_once is above 1."""
    r = Replica(raw, parts)
    with open(log, "wb") if log else contextlib.nullcontext() as f:
        if f:
            f.write(record.start(raw))
        while not r.over():
            ranks, losses = list(range(r.config.processors)), []
            for k in range(0, len(ranks), at_once):
                losses += r.losses(ranks[k : k + at_once], loss)
            frames = [rounds.frame(r.step, k, rounds.LOSSES, l) for k, l in enumerate(losses)]
            for k, frame in enumerate(frames):
                block = r.put(k, frame)
            if isinstance(block, bytes):
                if f:
                    f.write(block)
                    f.flush()
                if after_block:
                    r.weights.write()
                    if after_block(r) is True and not r.over():
                        r.put(0, rounds.frame(r.step, 0, rounds.STOP))
    r.finish()
    return r


def replay(path, parts, steps=None):
    """Sets the parts' parameters to the weights after some steps of a log (a multiple of 64), or after all. Compares the hash of every block. Returns
    the replica."""
    if steps is not None and (steps < 0 or steps % rounds.BLOCK):
        raise headers.Refused(f"steps is {steps}, must be a multiple of {rounds.BLOCK}")
    with open(path, "rb") as f:
        data = f.read()
    try:
        raw, at = record.read_start(data)
        r = Replica(raw, parts)
        while at < len(data) and (steps is None or r.step < steps):
            n = record.length(data[at : at + (1 << 21)])
            if n is None:
                break  # the log is complete up to the last block
            r.apply(data[at : at + n])
            at += n
        if steps is not None and r.step < steps:
            raise headers.Refused(f"steps is {steps}, but the log ends after step {r.step}")
    except headers.Refused as e:
        raise headers.Refused(f"{path}: {e}") from None
    r.weights.write()
    return r
