"""Loads the samples of a rank in a thread, through torch's DataLoader."""

import collections
import queue
import threading
import time

from torch.utils.data import DataLoader

from .schedule import ScheduleError

CHUNK = 16  # samples that a worker loads at once


class Drawing:
    """The samples that a rank holds or waits for. The event `stop` ends the thread, and close() waits for its end."""

    def __init__(self, loader, stop):
        self.loader, self.stop = loader, stop
        self.feed, self.arrived = queue.SimpleQueue(), queue.SimpleQueue()
        self.issued = self.received = 0
        self.expected = collections.deque()  # (position, told) of samples that were asked for; told: as in draw()
        self.ready = collections.deque()  # (length, labels) of samples of which the other ranks do not know yet
        self.samples = {}
        self.spare = None  # the shortest sample so far: (length, position, sample)
        self.thread = threading.Thread(target=self._fetch, name="evenkeel-drawing", daemon=True)
        self.thread.start()

    def end(self):
        """Ends the thread once it has loaded what was asked for."""
        self.feed.put(None)

    def close(self):
        self.end()
        self.thread.join(timeout=10)

    def take(self, positions):
        """Removes and returns the samples at positions. Without positions it returns a short sample and its position."""
        if positions:
            return positions, [self.samples.pop(i) for i in positions]
        if self.spare is None:
            self.spare = 0, 0, self.loader.dataset[0]
        return [self.spare[1]], [self.spare[2]]

    def _chunks(self):
        """Yields positions to the DataLoader. While it waits for positions it hands out no samples, so it gets an empty list if there are none."""
        while not self.stop.is_set():
            try:
                chunk = self.feed.get(timeout=.02 if self.issued > self.received else None)
            except queue.Empty:
                chunk = []
            if chunk is None:
                return
            self.issued += len(chunk)
            yield chunk

    def _fetch(self):
        try:
            for samples in DataLoader(self.loader.dataset, batch_sampler=self._chunks(), collate_fn=_same, **self.loader._others):
                self.received += len(samples)
                if samples:
                    self.arrived.put(samples)
                if self.stop.is_set():
                    return
        except BaseException as e:
            self.arrived.put(e)

    def draw(self, new, told=None):
        """Asks for the samples at positions. told: their [length, labels] if another rank has processed them before."""
        self.expected.extend(zip(new, told or [None] * len(new)))
        for at in range(0, len(new), CHUNK):
            self.feed.put(new[at:at + CHUNK])

    def drop(self, positions):
        """Drops samples that other ranks take."""
        for i in positions:
            self.samples.pop(i, None)

    def fetch(self, positions):
        """Waits for samples that were asked for."""
        while not self.stop.is_set() and any(i not in self.samples for i in positions):
            self._receive(.1)

    def wait(self, patience, enough):
        """Receives samples until `enough` are ready, none is left to wait for, or patience seconds have passed."""
        deadline = None if patience is None else time.monotonic() + patience
        while self.expected and len(self.ready) < enough and not self.stop.is_set():
            wait = .1 if deadline is None else min(.1, deadline - time.monotonic())
            if wait <= 0:
                break
            self._receive(wait)

    def _receive(self, wait):
        try:
            got = self.arrived.get(timeout=wait)
        except queue.Empty:
            return
        if isinstance(got, BaseException):
            raise got
        for sample in got:
            self._take_in(*self.expected.popleft(), sample)

    def _take_in(self, position, told, sample):
        length = int(self.loader._length(sample))
        labels = int(self.loader._labels(sample)) if self.loader._labels else 0
        if not 0 <= length < 1 << 24 or not 0 <= labels < 1 << 31:
            raise ScheduleError(f"sample {position}: length {length}, {labels} label tokens: out of range")
        self.samples[position] = sample
        if told is None:
            self.ready.append((length, labels))
        elif [length, labels] != told:
            raise ScheduleError(f"sample {position}: length {length} with {labels} label tokens, but length {told[0]} with {told[1]} when it was first "
                                "processed; with pool=True dataset[i] must return the same sample throughout an epoch")
        if self.spare is None or length < self.spare[0]:
            self.spare = length, position, sample


def _same(samples):
    return samples
