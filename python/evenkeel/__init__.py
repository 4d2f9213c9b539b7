"""Evenkeel for PyTorch. It needs only the standard library and torch."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Tuner":  # evenkeel.deadline needs no torch
        from .tuner import Tuner

        return Tuner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
