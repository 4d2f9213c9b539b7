"""Reads arrays with several threads: one hashes while another waits for the disk."""

import collections
import threading

from .transfer import background

_PATIENCE = 1.0  # seconds for which `later` leaves CPU and disk to the forward pass


class Reads:
    """Reads arrays in the background, in order. Arrays that a thread waits for come first."""

    def __init__(self, reads, later=(), threads=2):
        """reads, later: name -> function that reads and verifies an array. A thread of low priority reads `later` after `reads`."""
        self._todo, self._later = collections.OrderedDict(reads), collections.OrderedDict(later)
        self._left = {*self._todo, *self._later}
        self._wanted = collections.deque()
        self._changed = threading.Condition()
        self._error, self._stopped = None, False
        self.go = threading.Event()  # set when the forward pass is done: `later` may begin
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(min(threads, len(self._todo)))]
        if self._later:
            self._threads.append(threading.Thread(target=self._run_later, daemon=True))
        for t in self._threads:
            t.start()

    def _next(self, later):
        with self._changed:
            if self._error or self._stopped:
                return None, None
            while self._wanted:
                name = self._wanted.popleft()
                for some in (self._todo, self._later):
                    if name in some:
                        return name, some.pop(name)
            some = self._later if later else self._todo
            return some.popitem(last=False) if some else (None, None)

    def _run_later(self):
        background()
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._stopped or self._left <= self._later.keys())
        self.go.wait(_PATIENCE)
        self._run(later=True)

    def _run(self, later=False):
        while True:
            name, read = self._next(later)
            if read is None:
                return
            error = None
            try:
                read()
            except BaseException as e:  # wait() raises it
                error = e
            read = None  # keep no reference to a tensor
            with self._changed:
                if error is None:
                    self._left.discard(name)
                else:
                    self._error = self._error or error
                self._changed.notify_all()

    def wait(self, *names):
        """Waits until these arrays, or all, are read and verified. Raises the first error of any array."""
        if names and self._left.isdisjoint(names):  # this needs no lock
            return
        if not names:
            self.go.set()
            self._run()  # the waiting thread helps
            self._run(later=True)
        with self._changed:
            self._wanted.extend(n for n in names if n in self._todo or n in self._later)
            self._changed.wait_for(lambda: self._error or self._stopped or (self._left.isdisjoint(names) if names else not self._left))
            if self._error:
                raise self._error
            if self._stopped:
                raise RuntimeError("the restore was given up")

    def close(self):
        """Ends the threads. Waiting threads get an error."""
        with self._changed:
            self._stopped = self._stopped or bool(self._left)
            self._changed.notify_all()
        self.go.set()
        for t in self._threads:
            t.join()
