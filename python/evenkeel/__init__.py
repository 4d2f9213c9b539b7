"""Evenkeel for PyTorch. It needs only the standard library, torch and numpy; what needs neither imports neither."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainers.equal_steps import EqualSteps
    from .trainers.group_steps import GroupSteps
    from .trainers.watch import Watch as watch
    from .tuner import Steps, Tuner

__all__ = ["EqualSteps", "GroupSteps", "Steps", "Tuner", "watch"]


def __getattr__(name: str) -> Any:
    """Imports what needs torch only when it is used."""
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("evenkeel-training")
        except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
            return "0+checkout"
    if name == "EqualSteps":
        from .trainers import equal_steps

        return equal_steps.EqualSteps
    if name == "GroupSteps":
        from .trainers import group_steps

        return group_steps.GroupSteps
    if name == "watch":
        from .trainers import watch

        return watch.Watch
    if name in __all__:
        from . import tuner

        return getattr(tuner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return [*globals(), *__all__]
