"""Evenkeel for PyTorch: thin, the standard library and torch."""
from .schedule import ScheduleSampler

__all__ = ["ScheduleSampler"]
