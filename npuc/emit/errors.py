"""The refusals of the blob writer."""

from __future__ import annotations


class EmitError(Exception):
    """A program, its metadata or the target file does not allow a blob to be written; nothing has been written."""


class WriteError(EmitError):
    """The file system does not take the blob; what was at its path is still there."""
