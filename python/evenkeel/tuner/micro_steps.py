"""The samples of one rank in one round: where they come from, and in which micro-steps they are computed. Without a deadline the sampler draws each
micro-step as a batch of its own, which reaches the loop as the loader made it. With a deadline the rank takes as many samples from its part of the epoch as
deadline.Accumulation says, and batches are cut."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import client, deadline, structure
from .errors import Usage
from .input_time import InputTime
from .sample_order import Batches, Drawn

LAST = 2.0  # The last round of an epoch ends at so many deadlines. Samples that a slow rank then has left over make another round.


class MicroSteps:
    """One rank's source of micro-steps. cap is the largest micro-batch that fits (0: any), least the smallest; sizes are the only ones allowed (none: any).
    cut(batch, begin, end) cuts batches (None: by the rule of structure.cut). clock returns rising seconds."""

    def __init__(self, batches: Batches, cap: int, least: int, sizes: Sequence[int], clock: Callable[[], float], cut: Callable[[Any, int, int], Any] | None = None):
        self.batches, self._cap, self._least, self._sizes, self._clock = batches, cap or 1 << 30, least, sorted(sizes), clock
        self.own_cut = cut
        batches.divide = lambda plan, share: divide(share, self._node_of(plan, share))
        self.epoch(iter(()))

    def epoch(self, source: Iterator[Any]) -> None:
        """Begins an epoch, or the rest of one, whose batches come from source."""
        self._source, self._deal = source, -1
        self.input = InputTime(getattr(source, "_num_workers", 0))
        self._buffer: list[tuple[Any, int]] = []  # loaded and not used, with the samples that count

    def begin(self) -> None:
        """Begins a round."""
        b = self.batches
        self.began = self._clock()  # before the loader: a deadline does not wait for it
        self.waited = self._charged = 0.0  # seconds for the loader in this round, and those that belong to micro-steps
        self.done = self.total = 0  # samples of this rank, of all ranks; total 0: known when the round is over
        self.work: int | None = None  # those that this rank's share of the work is worth; None: as many as it has
        self._taken: list[tuple[Any, int]] = []
        self.number, self.plan = b.round, b.plan(b.round)
        if b.dealing:
            if self._deal != b.deal:  # what is left over was dealt out anew
                self._deal, self._buffer = b.deal, []
            self.mine = b.own
        else:
            drawn, batch = self._load()
            self._buffer, self.mine, self.work, self.total, self.plan = [(batch, drawn.samples)], drawn.own, drawn.work, drawn.total, drawn.plan
        self._rule()

    def _node_of(self, plan: client.Plan, share: int) -> deadline.Node:
        r = self.batches.rank
        planned = 0 if self.batches.costs is not None else plan.micro_batches[r]  # micro-batches of short samples have more
        limit = max(1, min(planned or share, self._cap))
        shapes = [s for s in self._sizes if s <= limit]
        return deadline.Node(limit, min(plan.least[r] if plan.deadline else self._least, limit), shapes)

    def _rule(self) -> None:
        p, r, b = self.plan, self.batches.rank, self.batches
        self._node = self._node_of(p, self.mine)
        order = deadline.Order(self.mine)
        if b.dealing and (p.deadline or not b.last()):
            share = p.shares[r]  # 0: it is left out, though it may have a part from before
            order = deadline.Order(min(share, self.mine))
            if p.deadline:
                until = p.seconds[r] * (LAST if b.last() else 1)
                order = deadline.Order(share, until, p.micro_step[r] / max(1, p.micro_batches[r]), p.reserve, p.whole, p.overtime)
        if order.deadline == 0:
            self.mine = order.share
        self._accumulation = deadline.Accumulation(self._node, order)

    def _load(self) -> tuple[Drawn, Any]:
        s = self._source
        there = getattr(s, "_num_workers", 0) == 1 and not s._data_queue.empty()  # of several workers, another one's batch may be there
        since = self._clock()
        try:
            batch = next(self._source)
            drawn, now = self.batches.arrived(), self._clock()
        except (StopIteration, IndexError) as e:
            raise Usage("the loader does not hand out the batches of tuner.batches() one by one: give them as batch_sampler to one DataLoader, and iterate that in tuner.steps()") from e
        self.waited += now - since
        self.input.handed(now, 0.0 if there else now - since, drawn.samples)  # a busy machine takes long for a batch that is there, too
        return drawn, batch

    def size(self) -> int:
        """The samples of the next micro-step, 0 if the round is over for this rank. Call it once for each micro-step."""
        left = self.mine - self.done
        if left <= 0:
            return 0
        if not self.batches.dealing:
            if not self._buffer:
                drawn, batch = self._load()
                self._buffer = [(batch, drawn.samples)]
            return divide(self._buffer[0][1], self._node)[0]
        size = min(self._accumulation.next(self._clock() - self.began), left)
        if size or self._accumulation.order.deadline:
            return size
        return min(left, self._node.limit)  # what is left of a share or an epoch, less than any shape

    def last(self, size: int) -> bool:
        """Whether no micro-step comes after one of this size."""
        return self.done + size >= self.mine or self._accumulation.order.deadline > 0 and self._accumulation.ended

    def take(self, size: int) -> tuple[Any, int]:
        """The next samples and their number, which is smaller if they cannot be joined. For none it returns some that do not count, because the
        rank's loop must run."""
        b, parts, need = self.batches, [], size
        if not size:
            if self._buffer:
                return self._buffer.pop(0)[0] if not b.dealing else self._buffer[0][0], 0
            drawn, batch = self._load()
            if drawn.samples and drawn.deal == b.deal:  # of its part, for a later round
                self._buffer = [(batch, drawn.samples)]
            return batch, 0
        while need:
            while not self._buffer:
                drawn, batch = self._load()
                if drawn.samples and drawn.deal == b.deal:  # else it was drawn before what is left was dealt out anew
                    self._buffer = [(batch, drawn.samples)]
            first, has = self._buffer.pop(0)
            n = min(need, has)
            parts.append((self.cut(first, has, 0, n), n))
            if n < has:
                self._buffer.insert(0, (self.cut(first, has, n, has), has - n))
            need -= n
        piece, size = parts[0]
        if len(parts) > 1:
            try:
                if self.own_cut:
                    raise ValueError("only batches that are cut by the rule are joined")
                piece, size = structure.join([p for p, _ in parts], [n for _, n in parts]), sum(n for _, n in parts)
            except ValueError:  # padded to different lengths, say: one of them
                self._buffer[:0] = parts[1:]
        self._taken.append((piece, size))
        return piece, size

    def cut(self, batch: Any, samples: int, begin: int, end: int) -> Any:
        """Samples begin to end of a batch of so many."""
        if self.own_cut and (begin, end) != (0, samples):
            return self.own_cut(batch, begin, end)
        return structure.cut(batch, samples, begin, end)

    def did(self, size: int, seconds: float) -> None:
        """Takes in what a micro-step took, beside the time for its data."""
        if size:
            self.done += size
            self._accumulation.done(size, seconds + self.waited - self._charged)
            self._charged = self.waited

    def again(self, size: int) -> None:
        """A micro-step of this size did not fit into memory: the round's samples come again, in micro-steps half as large."""
        self._cap = size // 2
        self._buffer[:0], self._taken, self.done = self._taken, [], 0
        self._rule()


def divide(share: int, node: deadline.Node) -> list[int]:
    """The micro-steps of a share: full ones and a rest. A rest below the smallest micro-batch is filled up by the one before it."""
    sizes = []
    while share > 0:
        sizes.append(node.floor(share) or min(share, node.limit))
        share -= sizes[-1]
    if len(sizes) > 1 and not node.shapes and sizes[-1] < node.least:
        both = sizes[-2] + sizes[-1]
        sizes[-2:] = [both - both // 2, both // 2] if both < 2 * node.least else [both - node.least, node.least]
    return sizes


def chunk(plan: client.Plan, rank: int, cap: int) -> int:
    """The samples of one batch of the loader, if the order is dealt out."""
    return max(1, min(plan.micro_batches[rank] or 1, cap or 1 << 30))
