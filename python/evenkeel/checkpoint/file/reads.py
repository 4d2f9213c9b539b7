"""Reads arrays with several threads: one hashes while another waits for the disk."""

import contextlib
import itertools
import threading
from concurrent import futures

from .transfer import background

_MOST = 1024  # futures, which take more memory than a small array
_PATIENCE = 1.0  # seconds for which `later` leaves CPU and disk to the forward pass


def _all(reads):
    for read in reads:
        read()


class Reads:
    """Reads arrays in the background, in order."""

    def __init__(self, reads, later=()):
        """reads, later: name -> function that reads and verifies an array. A thread of low priority reads `later` after `reads`."""
        self.go = threading.Event()  # set when the forward pass is done: `later` may begin
        self._threads = futures.ThreadPoolExecutor(3), futures.ThreadPoolExecutor(1, initializer=self._hold)
        each = list(reads.values())
        self._first = [self._threads[0].submit(_all, each[i::_MOST]) for i in range(min(len(each), _MOST))]
        self._later = dict(later)
        self._reads = {**dict(zip(reads, itertools.cycle(self._first))), **{name: self._threads[1].submit(read) for name, read in self._later.items()}}

    def _hold(self):
        background()
        for read in self._first:
            with contextlib.suppress(futures.CancelledError):
                read.exception()  # waits
        self.go.wait(_PATIENCE)

    def wait(self, *names):
        """Waits until these arrays, or all, are read and verified. Raises their first error."""
        if not names:
            self.go.set()
            for name, read in self._later.items():
                if self._reads[name].cancel():  # it has not begun, and is urgent now
                    self._reads[name] = self._threads[0].submit(read)
            self._later = {}
        try:
            for name in names or self._reads:
                self._reads[name].result()
        except futures.CancelledError:
            raise RuntimeError("the restore was given up") from None

    def close(self):
        """Ends the threads. Waiting threads get an error."""
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)
        self.go.set()
        for threads in self._threads:
            threads.shutdown()
