"""How long a rank's rounds take because of its data. Time in which the loop waits for the loader is not that by itself: a loader with workers reads on while
the rank computes or waits for others, so a smaller share makes the wait vanish, and a larger one brings it back at once. What stays is the loader's pace:
the time between its batches, as long as the loop waits for them."""

_BLOCKED = 0.2  # share of the time in which the loop waits for the loader if that is what holds it up; it is some milliseconds even for a batch that is there


class InputTime:
    """One epoch of one rank. workers are the processes in which the loader reads ahead; 0: it reads while the loop waits."""

    def __init__(self, workers: int):
        self._workers = workers
        self._fading = 1 - 1 / (4 * workers + 4)  # workers end in no even rhythm
        self._last: float | None = None  # when the loader handed out its newest batch
        self._seconds = self._waited = self._samples = 0.0  # newest batches count most
        self._pace = 0.0  # seconds that the loader needs for a sample

    def handed(self, now: float, waited: float, samples: int) -> None:
        """The loader has handed out a batch of so many samples, for which the loop waited so many seconds."""
        last, self._last = self._last, now
        if last is None or not samples:
            return  # workers that start say nothing of their pace
        self._seconds = self._seconds * self._fading + now - last
        self._waited = self._waited * self._fading + waited
        self._samples = self._samples * self._fading + samples
        pace = self._seconds / self._samples
        self._pace = pace if self._waited > _BLOCKED * self._seconds else min(self._pace, pace)

    def beyond(self, samples: int, waited: float, computed: float) -> float:
        """Seconds that a round of so many samples takes beyond what was computed, as far as the rank's own data are the reason."""
        return max(self._pace * samples - computed, 0.0) if self._workers else waited
