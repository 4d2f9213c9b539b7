"""The errors of checkpoints."""


class CheckpointError(Exception):
    """The base class of all errors of evenkeel.checkpoint."""


class Corrupt(CheckpointError):
    """Saved data is missing or does not verify."""


class Format(CheckpointError):
    """The file is not a checkpoint file, or has another version or byte order."""


class Schema(CheckpointError):
    """The tensors of the file and of the program differ. The message names the first difference."""


class Locked(CheckpointError):
    """Another process has the file open for writing."""


class Usage(CheckpointError):
    """A call is wrong or comes at the wrong time."""
