"""Evenkeel for PyTorch: thin, the standard library and torch."""
