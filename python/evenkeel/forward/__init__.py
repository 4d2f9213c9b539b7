"""Forward-only training of PyTorch models by processors that each send 16 bytes a step. docs/reference/forward-protocol.md is the protocol."""

from .header import Config, Refused
from .lora import deltas, export, frozen, lora, whole
from .nats import Denied, Disconnected
from .replica import Replica, Validation, alone, prepare, replay
from .run import Result, create, join
from .weights import Part
