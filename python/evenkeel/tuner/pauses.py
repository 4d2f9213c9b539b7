"""Pauses that a rank announces: it saves, evaluates or does something else between two rounds, and begins the second one late. That round's samples are
divided so that all ranks end together nonetheless. A pause is over with the round, so it is worth at most the rank's part of that one."""

from collections.abc import Sequence

from .local import fill


class Pauses:
    """One rank's. How long each kind takes is measured, and expected the next time."""

    def __init__(self) -> None:
        self._coming: dict[int, str] = {}  # by the round that begins after it
        self._seconds: dict[str, float] = {}  # of each kind, the newest
        self._usual = 0.0  # seconds between rounds without one; short ones, as some are not announced

    def expect(self, kind: str, before: int, seconds: float) -> None:
        """seconds: of the first one of this kind; later ones are measured."""
        self._coming[before] = kind
        self._seconds.setdefault(kind, seconds)

    def next(self, number: int) -> tuple[float, int]:
        """Seconds of the nearest pause after a round, and the round that begins after it; 0, 0: none."""
        at = min((n for n in self._coming if n > number), default=0)
        return (self._seconds[self._coming[at]], at) if at else (0.0, 0)

    def began(self, number: int, gap: float) -> None:
        """A round begins, so many seconds after the end of the one before."""
        kind = self._coming.pop(number, None)
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
