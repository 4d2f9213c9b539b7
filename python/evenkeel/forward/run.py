"""A processor of a run over NATS. It reads the stream, computes its losses when they are due, and sends 16 bytes per step."""

import collections
import dataclasses
import json
import logging
import re
import time

from . import header as headers
from . import nats, record, replica, rounds

_LOG = logging.getLogger("evenkeel.forward")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclasses.dataclass
class Result:
    """The result of join()."""

    steps: int
    weights_hash: str
    absent: dict  # pair -> number of followed steps in which it did not count
    left_out: dict  # pair -> number of steps in which it was left out because a loss was not finite, or a spike
    ignored: dict  # rank of the subject -> number of ignored messages
    replica: object = dataclasses.field(repr=False, default=None)


def create(url, run, raw, token="", ca=""):
    """Creates a run. raw: the header, from prepare(). Returns False if the run exists already; it is not changed."""
    _check(run)
    headers.parse(raw)
    c = nats.Connection(url, token, "launch", ca)
    try:
        a = c.api(f"STREAM.CREATE.EVENKEEL_{run}", {"name": f"EVENKEEL_{run}", "subjects": [f"evenkeel.forward.{run}.>"], "storage": "file", "retention": "limits",
                  "max_msgs_per_subject": 2048, "discard": "new", "num_replicas": 1, "max_msgs": -1, "max_bytes": -1, "max_age": 0})  # fmt: skip
        if "error" in a and a["error"].get("err_code") != 10058:  # the stream exists
            raise headers.Refused(f"run {run!r}: {a['error'].get('description', a['error'])}")
        m = c.request(f"evenkeel.forward.{run}.header", record.start(raw), {"Nats-Expected-Last-Sequence": "0"})
        a = json.loads(m.data)
        if "error" in a and a["error"].get("err_code") != 10071:  # the run has a header
            raise headers.Refused(f"run {run!r}: {a['error'].get('description', a['error'])}")
        return "error" not in a
    finally:
        c.close()


def _check(run):
    if not _NAME.fullmatch(run):
        raise headers.Refused(f"run {run!r}: a name has up to 64 letters, digits, - and _")


def join(url, run, rank, loss, parts, token="", ca="", patience=120.0, after_block=None):
    """Takes part in a run as one rank until the run ends. The parameters then have the run's weights.

    loss(batch) gets the indices of examples and returns their mean loss, or a tensor of the loss of each: then one pass does for both inputs. A lost connection is retried for patience seconds. after_block(replica) is
    called every 64 steps with the weights in the parameters. If it returns True, this rank asks all ranks to end after the next 64 steps."""
    _check(run)
    p = _Processor(url, run, rank, loss, parts, token, ca, patience, after_block)
    try:
        return p.run()
    finally:
        p.close()


class _Processor:
    def __init__(self, url, run, rank, loss, parts, token, ca, patience, after_block):
        self._where, self._run, self._rank, self._loss, self._patience, self._after = (url, token, f"rank{rank}", ca), run, rank, loss, patience, after_block
        self._subject = f"evenkeel.forward.{run}."
        self._parts = parts
        self._connection = self._stream = self._replica = None
        self._incoming, self._unacknowledged = collections.deque(), {}
        self._blocks, self._chains = {}, {}  # by number: this rank's blocks, and the chains before them
        self._seen = {}  # by number: blocks of others that came before this rank had its own
        self._missing = {}  # by number, of blocks that are not in the stream yet: when they were ready or published, as (step, time)
        self._last, self._ignored = 0, collections.Counter()
        self._own, self._begun, self._quick, self._said = 0.0, time.monotonic(), None, None
        self._confirmed, self._trouble, self._silent, self._full = -1, None, 0.0, False

    def close(self):
        if self._connection:
            self._connection.close()
        if self._replica:
            self._replica.weights.write()

    # -- connection

    def _open(self):
        """Connects, reads the messages since the last one, and publishes again what was not acknowledged."""
        self._connection = nats.Connection(*self._where)
        self._stream = nats.Stream(self._connection, f"EVENKEEL_{self._run}")
        subject, raw = self._stream.message(1)
        if subject != self._subject + "header":
            raise headers.Refused(f"run {self._run!r}: the stream's first message is not a header")
        raw, _ = record.read_start(raw)
        if self._replica is None:
            self._begin(raw)
        elif raw != self._replica.header.raw:
            raise headers.Refused(f"run {self._run!r} is not the same run as before the connection was lost")
        wait, self._silent = self._stream.read(self._last + 1), 0.0
        until = time.monotonic() + 30
        had = len(self._incoming)
        while len(self._incoming) < had + wait and time.monotonic() < until:
            self._receive(0.5)
        old, self._unacknowledged = list(self._unacknowledged.values()), {}
        for subject, data, _ in old:
            self._publish(subject, data)

    def _begin(self, raw):
        """Starts the replica and applies the blocks of the run so far."""
        r = self._replica = replica.Replica(raw, self._parts)
        if not 0 <= self._rank < r.config.processors:
            raise headers.Refused(f"rank {self._rank}: the run has ranks 0 to {r.config.processors - 1}")
        wait, last, block = self._stream.read(2, self._subject + "block.>"), 0, None
        while wait > 0:
            messages, _ = self._stream.take(10)
            if not messages:
                raise nats.Disconnected("the blocks of the run do not arrive")
            for _, subject, data in messages:
                wait -= 1
                if r.over():
                    continue
                try:
                    block = r.apply(data)
                except headers.Refused as e:
                    self._ignore(subject, e)
                    continue
                last, self._confirmed = block.position, block.number
        self._last = max(1, last)
        self._begun = time.monotonic()

    def _again(self, cause):
        """Connects again. It gives up when nothing was received or acknowledged for patience seconds, or a full broker let no step pass."""
        pause = 0.1 if self._trouble is None else 1.0
        full = isinstance(cause, nats.Full)
        if not full or self._trouble is None:
            _LOG.warning("%s; trying for %.0f s", cause if full else f"connection lost ({cause})", self._patience)
        self._trouble = self._trouble or time.monotonic()
        while True:
            if self._connection:
                self._connection.close()
            if time.monotonic() > self._trouble + self._patience:
                raise nats.Disconnected(f"run {self._run!r}: {cause}; gave up after {self._patience:.0f} s. Start this rank again to continue")
            try:
                time.sleep(pause)
                self._open()
                if not full:
                    _LOG.warning("connected again")
                return
            except nats.Disconnected as e:
                cause = e
            pause = min(2 * pause, 2)

    def _publish(self, subject, data):
        inbox = self._connection.inbox()
        self._unacknowledged[inbox] = (subject, data, time.monotonic())
        self._connection.publish(subject, data, inbox)

    def _receive(self, timeout):
        begun = time.monotonic()
        messages, heard = self._stream.take(timeout)
        self._silent = 0.0 if heard else self._silent + time.monotonic() - begun
        if self._silent > 4 * nats.HEARTBEAT:  # the connection is dead, or the server forgot the consumer
            raise nats.Disconnected(f"the server was silent for {4 * nats.HEARTBEAT:.0f} s")
        for position, subject, data in messages:
            if position <= self._last:
                continue
            if position != self._last + 1:
                raise headers.Refused(f"run {self._run!r}: messages {self._last + 1} to {position - 1} were deleted, because this rank is far behind; start it again to continue")
            self._last, self._trouble = position, self._trouble if self._full else None
            self._incoming.append((position, subject, data))
        now = time.monotonic()
        for inbox, a in self._stream.answers().items():
            if inbox in self._unacknowledged and "error" in a:
                subject, data, _ = self._unacknowledged[inbox]
                why = a["error"].get("description", a["error"])
                if a["error"].get("err_code") in (10023, 10047, 10077):  # resources, storage, the stream's bytes
                    self._full = True
                    raise nats.Full(f"the broker's storage is full ({why}): make room, or export and remove old runs")
                raise nats.Disconnected(f"{subject}: {why}")
            if self._unacknowledged.pop(inbox, None) and not self._full:
                self._trouble = None
        if any(now - at > 10 for _, _, at in self._unacknowledged.values()):
            raise nats.Disconnected("no acknowledgement for 10 s")

    # -- the run

    def run(self):
        try:
            self._open()
        except nats.Disconnected as e:
            self._again(e)
        while True:
            try:
                if self._turn():
                    break
            except nats.Disconnected as e:
                self._again(e)
        r = self._replica
        r.finish()
        result = Result(r.step, r.hash(), dict(r.absent), dict(r.left_out), dict(self._ignored), r)
        told = {"rank": self._rank, "steps": result.steps, "weights_hash": result.weights_hash, "absent": result.absent, "left_out": result.left_out}
        try:
            self._connection.request(f"{self._subject}result.{self._rank}", json.dumps(told).encode())
        except nats.Disconnected as e:
            _LOG.warning("the result is not in the stream (%s); the weights are complete", e)
        return result

    def _turn(self):
        """Handles messages, waits for one, or computes losses. Returns whether the run is over."""
        r = self._replica
        if r.over() and self._confirmed == (r.step - 1) // rounds.BLOCK and not self._unacknowledged:
            return True
        if r.rounds.due(self._rank) == r.step and not r.over():
            self._receive(0)
            if not self._needless(r.step):
                self._compute()
                return False
        if not self._incoming:
            self._receive(self._wait())
            self._go_on()
        self._tell_blocks()
        while self._incoming and (r.over() or r.rounds.due(self._rank) != r.step or self._sent == r.step):
            self._handle(*self._incoming.popleft())
        return False

    _sent = -1  # the newest step whose losses need not be computed any more

    def _needless(self, step):
        """Whether this step's losses were sent already, or belong to a block that has ended in the stream."""
        if self._sent == step:
            return True
        end = step // rounds.BLOCK + 1
        for _, subject, data in self._incoming:
            kind, *ids = subject[len(self._subject) :].split(".")
            f = rounds.read_frame(data) if kind == "frame" else None
            mine = f and ids == [str(self._rank)] and f[0] == step and f[1] == self._rank and f[2] == rounds.LOSSES
            # A rank's own frame of a later block shows that this block has ended. A block in the stream may be forged.
            later = f and f[0] >= end * rounds.BLOCK and ids == [str(f[1])] and f[2] == rounds.LOSSES
            if mine or later:
                self._sent = step
                return True
        return False

    def _compute(self):
        r, begun = self._replica, time.monotonic()
        (losses,) = r.losses([self._rank], self._loss)
        self._own = time.monotonic() - begun
        self._sent = r.step
        self._publish(f"{self._subject}frame.{self._rank}", rounds.frame(r.step, self._rank, rounds.LOSSES, losses))

    def _handle(self, position, subject, data):
        kind, *ids = subject[len(self._subject) :].split(".")
        r = self._replica
        if kind == "frame" and len(ids) == 1 and ids[0].isdigit():
            at = r.step
            out = r.put(int(ids[0]), data, position)
            if r.step != at:
                self._begun, self._quick, self._said, self._trouble, self._full = time.monotonic(), None, None, None, False
            if out is False and not (rounds.read_frame(data) or (0, 0, 0))[2] == rounds.GO_ON:
                self._ignore(subject, "it does not count")
            if isinstance(out, bytes):
                self._ended(out)
        elif kind == "block" and len(ids) == 2 and ids[0].isdigit():
            k = int(ids[0])
            if k in self._blocks:
                self._compare(k, subject, data)
            elif k > self._confirmed and sum(map(len, self._seen.values())) < 4 * r.config.processors:
                self._seen.setdefault(k, []).append((subject, data))
        elif kind not in ("result", "block", "frame"):
            self._ignore(subject, "unknown subject")

    def _ignore(self, subject, why):
        self._ignored[subject.rsplit(".", 1)[-1]] += 1
        _LOG.info("ignored a message on %s: %s", subject, why)

    # -- going on without pairs

    def _wait(self):
        """The seconds to wait for a message."""
        at = self._deadline()
        return 1.0 if at is None else max(0.0, min(1.0, at - time.monotonic()))

    def _deadline(self):
        r = self._replica
        if r.over():
            return time.monotonic() + 0.2
        whole = len(r.rounds.whole())
        if not whole or self._said == r.step:
            return None
        prompt = sum(r.rounds.prompt)
        if whole >= max(1, -(-prompt // 2)):
            self._quick = self._quick or time.monotonic() - self._begun
            return self._begun + max(2 * self._quick, 0.1)
        return self._begun + max(2.0, 4 * self._own)

    def _go_on(self):
        r, at = self._replica, self._deadline()
        if self._incoming or at is None or r.over() or time.monotonic() < at:
            return
        self._said = r.step
        self._publish(f"{self._subject}frame.{self._rank}", rounds.frame(r.step, self._rank, rounds.GO_ON))

    # -- blocks

    def _ended(self, data):
        r = self._replica
        k = int.from_bytes(data[:4], "little")
        self._blocks[k], self._chains[k] = data, r.before
        for old in [b for b in self._blocks if b < k - 4 and b not in self._missing]:
            del self._blocks[old], self._chains[old]
        self._missing[k] = (r.step, time.monotonic())
        for subject, theirs in self._seen.pop(k, []):
            self._compare(k, subject, theirs)
        if k in self._missing and self._rank == r.author:
            self._publish(f"{self._subject}block.{k}.{self._rank}", data)
        if self._after:
            r.weights.write()
            if self._after(r) is True and not r.over():
                self._publish(f"{self._subject}frame.{self._rank}", rounds.frame(r.step, self._rank, rounds.STOP))

    def _compare(self, k, subject, data):
        """Compares a block in the stream with this rank's. A block with the right number and chain confirms it, or shows that weights differ."""
        if k not in self._missing:
            return
        ours = self._blocks[k]
        if data != ours:
            if data[:4] == ours[:4] and len(data) > 24 and record.chain(self._chains[k], data[:-16]) == data[-16:]:
                raise headers.Refused(f"run {self._run!r}: rank {subject.rsplit('.', 1)[-1]} sent another block {k} than this rank computed; their weights differ")
            self._ignore(subject, "it is not a valid block")
            return
        self._confirmed = k
        del self._missing[k]

    def _tell_blocks(self):
        r = self._replica
        for k, (step, at) in list(self._missing.items()):
            if r.step >= step + 16 or (r.over() and time.monotonic() > at + 1):
                self._missing[k] = (r.step, time.monotonic())
                self._publish(f"{self._subject}block.{k}.{self._rank}", self._blocks[k])
