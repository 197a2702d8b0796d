"""What goes wrong while a model is fetched."""


class PullError(Exception):
    """A model cannot be fetched or written, for a reason that the user can change. The message is one line."""
