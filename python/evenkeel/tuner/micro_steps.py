"""The samples of one rank in one round: where they come from, and in which micro-steps they are computed. Without a deadline a batch of the loader is
the rank's share. With a deadline the rank takes as many samples from its part of the epoch as deadline.Accumulation says."""

from typing import Any, Callable, Iterator, List, Sequence

from . import batch_slices, client, deadline
from .errors import Usage
from .sample_order import Batches, Drawn

LAST = 2.0  # The last round of an epoch ends at so many deadlines. Samples that a slow rank then has left over make another round.


class MicroSteps:
    """One rank's source of micro-steps. cap is the largest micro-batch that fits (0: any), least the smallest; sizes are the only ones allowed (none: any).
    clock returns rising seconds."""

    def __init__(self, batches: Batches, cap: int, least: int, sizes: Sequence[int], clock: Callable[[], float]):
        self.batches, self._cap, self._least, self._sizes, self._clock = batches, cap or 1 << 30, least, sorted(sizes), clock
        self.epoch(iter(()))

    def epoch(self, source: Iterator[Any]) -> None:
        """Begins an epoch, or the rest of one, whose batches come from source."""
        self._source, self._deal = source, -1
        self._buffer: List[Any] = []  # loaded and not used

    def begin(self) -> None:
        """Begins a round."""
        b = self.batches
        self.began = self._clock()  # before the loader: a deadline does not wait for it
        self.done = self.total = 0  # samples of this rank, of all ranks; total 0: known when the round is over
        self._taken: List[Any] = []
        self.number, self.plan = b.round, b.plan(b.round)
        if b.dealing:
            if self._deal != b.deal:  # what is left over was dealt out anew
                self._deal, self._buffer = b.deal, []
            self.mine = b.own
        else:
            drawn, batch = self._load()
            self._buffer, self.mine, self.total, self.plan = [batch], drawn.samples, drawn.total, drawn.plan
        self._rule()

    def _rule(self) -> None:
        p, r, b = self.plan, self.batches.rank, self.batches
        limit = max(1, min(p.micro_batches[r] or self.mine, self._cap))
        shapes = [s for s in self._sizes if s <= limit]
        self._node = deadline.Node(limit, min(p.least[r] if p.deadline else self._least, limit), shapes)
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

    def _load(self) -> "tuple[Drawn, Any]":
        try:
            batch = next(self._source)
            return self.batches.arrived(), batch
        except (StopIteration, IndexError) as e:
            raise Usage("the loader does not hand out the batches of tuner.batches() one by one: give them as batch_sampler to one DataLoader, and iterate that in tuner.steps()") from e

    def size(self) -> int:
        """The samples of the next micro-step, 0 if the round is over for this rank. Call it once for each micro-step."""
        left = self.mine - self.done
        if left <= 0:
            return 0
        size = min(self._accumulation.next(self._clock() - self.began), left)
        if size or self._accumulation.order.deadline:
            return size
        return min(left, self._node.limit)  # what is left of a share or an epoch, less than any shape

    def last(self, size: int) -> bool:
        """Whether no micro-step comes after one of this size."""
        return self.done + size >= self.mine or self._accumulation.order.deadline > 0 and self._accumulation.ended

    def take(self, size: int) -> "tuple[Any, int]":
        """The next samples and their number, which is smaller if they cannot be joined. For none it returns one that does not count, because the
        rank's loop must run."""
        b, parts, need = self.batches, [], size
        if not size:
            if self._buffer:
                return batch_slices.cut(self._buffer[0], 0, 1), 0
            drawn, batch = self._load()
            if drawn.samples and drawn.deal == b.deal:  # of its part, for a later round
                self._buffer = [batch]
            return batch_slices.cut(batch, 0, 1), 0
        while need:
            while not self._buffer:
                drawn, batch = self._load()
                if drawn.samples and drawn.deal == b.deal:  # else it was drawn before what is left was dealt out anew
                    self._buffer = [batch]
            first = self._buffer.pop(0)
            has = batch_slices.count(first)
            if has < 1:
                raise Usage("the loader's batches are not made of tensors along their first dimension, so they cannot be cut into micro-steps: return such from collate_fn")
            n = min(need, has)
            parts.append(batch_slices.cut(first, 0, n))
            if n < has:
                self._buffer.insert(0, batch_slices.cut(first, n, has))
            need -= n
        try:
            piece = batch_slices.join(parts)
        except ValueError:  # padded to different lengths: one of them
            piece, self._buffer[:0] = parts[0], parts[1:]
        self._taken.append(piece)
        return piece, batch_slices.count(piece)

    def did(self, size: int, seconds: float) -> None:
        """Takes in what a micro-step took."""
        if size:
            self.done += size
            self._accumulation.done(size, seconds)

    def again(self, size: int) -> None:
        """A micro-step of this size did not fit into memory: the round's samples come again, in micro-steps half as large."""
        self._cap = size // 2
        self._buffer[:0], self._taken, self.done = self._taken, [], 0
        self._rule()


def chunk(plan: client.Plan, rank: int, cap: int) -> int:
    """The samples of one batch of the loader, if the order is dealt out."""
    return max(1, min(plan.micro_batches[rank] or 1, cap or 1 << 30))
