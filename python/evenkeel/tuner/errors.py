"""What the tuner raises."""


class Usage(Exception):
    """A call out of order, or with arguments that cannot be right. The message says what to do instead."""
