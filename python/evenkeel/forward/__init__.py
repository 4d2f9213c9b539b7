"""Forward-only training of PyTorch models by processors that share 16 bytes a step. The protocol is docs/reference/forward-protocol.md."""

from .header import Config, Refused
from .lora import deltas, export, frozen, lora, sparse, whole
from .nats import Denied, Disconnected
from .replica import Replica, alone, prepare, replay
from .run import Result, create, join
from .weights import Part
