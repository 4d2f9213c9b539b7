"""The tuner of a PyTorch job: each rank takes as many samples as let all ranks finish together.

evenkeel.Tuner is the loop's side of it (tuner.py). For trainers with a loop of their own, evenkeel.tuner.deadline decides the micro-steps of rounds
that end at a deadline; it needs neither torch nor numpy.
"""

from typing import TYPE_CHECKING, Any

from .errors import Usage

if TYPE_CHECKING:
    from .step_sampler import Steps
    from .tuner import Tuner

__all__ = ["Steps", "Tuner", "Usage"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch only when it is used."""
    if name == "Tuner":
        from .tuner import Tuner

        return Tuner
    if name == "Steps":
        from .step_sampler import Steps

        return Steps
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
