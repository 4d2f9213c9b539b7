"""The checkpoint file, underneath evenkeel.checkpoint: docs/reference/formats/checkpoint.md describes it."""
