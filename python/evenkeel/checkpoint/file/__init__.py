"""The checkpoint file: docs/reference/formats/checkpoint.md describes it."""
