"""Pauses that a rank announces: it saves, evaluates or does something else between two rounds, and begins the second one late. That round's samples are
divided so that the ranks end together, as far as the rank's part of it lasts: a pause is over with the round."""

from collections.abc import Sequence

from .errors import Usage
from .local import fill


class Pauses:
    """One rank's. How long each kind takes is measured, and expected the next time."""

    def __init__(self) -> None:
        self._coming: dict[int, str] = {}  # by the round that begins after it
        self._seconds: dict[str, float] = {}  # of each kind, the newest
        self._usual = 0.0  # seconds between rounds without one; short ones, as some are not announced
        self._ended: float | None = None  # when the round before did

    def expect(self, kind: str, number: int, after: int, seconds: float) -> None:
        """In so many rounds after the round of that number, the present one. seconds: of the first one of this kind; later ones are measured."""
        if after < 0 or not 0 <= seconds < float("inf"):
            raise Usage(f"expect({kind!r}, after={after!r}, seconds={seconds!r}): give numbers from 0")
        self._coming[number + 1 + after] = kind
        self._seconds.setdefault(kind, float(seconds))

    def next(self, number: int) -> tuple[float, int]:
        """Seconds of the nearest pause after a round, and the round that begins after it; 0, 0: none."""
        at = min((n for n in self._coming if n > number), default=0)
        return (self._seconds[self._coming[at]], at) if at else (0.0, 0)

    def ended(self, now: float) -> None:
        """A round ends."""
        self._ended = now

    def began(self, number: int, now: float) -> None:
        """A round begins."""
        kind = self._coming.pop(number, None)
        if self._ended is None:
            return
        gap = now - self._ended
        if kind is not None:
            self._seconds[kind] = max(gap - self._usual, 0.0)
        else:
            self._usual = min(gap, 1.2 * self._usual) if self._usual else gap
        self._coming = {n: k for n, k in self._coming.items() if n > number}


def delayed(shares: Sequence[int], late: Sequence[float], most: Sequence[int] = ()) -> list[int]:
    """Shares with the same sum, of ranks that begin late by the time of so many samples each. Who has a share keeps one sample at least, and gets no more
    than its most, or what it has where that is 0; without any most there is no limit."""
    some = [r for r, s in enumerate(shares) if s]
    limits = [max(most[r], shares[r]) if most else 0 for r in some]
    filled = dict(zip(some, fill(sum(shares), [1 / shares[r] for r in some], 1, limits, [late[r] / shares[r] for r in some])))
    return [filled.get(r, 0) for r in range(len(shares))]
