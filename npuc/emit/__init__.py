"""Scheduled programs in, one ELF64 blob out: sections, symbols, relocations."""

from npuc.emit.errors import EmitError
from npuc.emit.writer import write_blob

__all__ = ["EmitError", "write_blob"]
