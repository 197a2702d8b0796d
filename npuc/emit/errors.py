"""The refusal of the blob writer."""

from __future__ import annotations


class EmitError(Exception):
    """A program, its metadata or the target file does not allow a blob to be written; nothing has been written."""
