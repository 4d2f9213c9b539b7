"""What can go wrong with a checkpoint file."""


class CheckpointError(Exception):
    """The base of this module's errors."""


class Corrupt(CheckpointError):
    """Something should be there and does not verify."""


class Format(CheckpointError):
    """No checkpoint file, or one of another version or byte order."""


class Schema(CheckpointError):
    """The file has other tensors than the program; the message names the first."""


class Locked(CheckpointError):
    """Another process writes the file."""


class Usage(CheckpointError):
    """Calls out of order."""
