"""Forward-only training of PyTorch models: processors that each send 16 bytes per step. The protocol is docs/reference/forward-protocol.md."""

from .header import Config, Refused
from .nats import Denied, Disconnected
from .replica import Replica, Validation, prepare, replay, train
from .run import Result, create, join
from .trained import trained
from .weights import Part
