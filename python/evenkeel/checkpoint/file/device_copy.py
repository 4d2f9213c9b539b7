"""Copies tensors from a GPU to pinned memory on a separate stream while the GPU continues to compute. It has not been run on a GPU."""

import torch


class Staging:
    """One pinned buffer for each tensor. A buffer is reused once the previous save has been written."""

    def __init__(self):
        self._buffers, self._streams, self._events = {}, {}, {}

    def copy(self, name, t):
        """Starts to copy a tensor as it is after the work submitted so far. Returns the buffer and the event of the copy's end."""
        stream = self._streams.get(t.device)
        if stream is None:
            stream = self._streams[t.device] = torch.cuda.Stream(t.device)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != t.shape or buffer.dtype != t.dtype:
            buffer = self._buffers[name] = torch.empty(t.shape, dtype=t.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(t.device))
        with torch.cuda.stream(stream):
            buffer.copy_(t, non_blocking=True)
            event = torch.cuda.Event()
            event.record(stream)
        t.record_stream(stream)  # so that its memory is not reused before the copy is done
        self._events[name] = (event, t.device)
        return buffer, event

    def before_change(self, *names):
        """Makes work submitted later wait for the copies of these tensors, or of all. The CPU does not wait."""
        for name in names or list(self._events):
            event, device = self._events.pop(name, (None, None))
            if event is not None:
                torch.cuda.current_stream(device).wait_event(event)
