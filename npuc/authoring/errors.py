"""What can be wrong with a kernel that an author names."""


class KernelSourceError(Exception):
    """A kernel that cannot be found, read or used as asked: what, where, and what would work."""
