"""`npuc disasm`: a blob as text that is stable enough to live in version control."""

from __future__ import annotations

from pathlib import Path

from npuc.report.full import full_lines
from npuc.report.listing import build_listing
from npuc.report.listing_text import listing_lines
from npuc.report.reader import reading


def disasm(path: str | Path, full: bool = False) -> str:
    """The text of a blob, lines ended by a newline. BlobError where the file is none.

    The short form groups tasks and leaves out addresses and barrier numbers, so that a change of one tile size changes
    a few lines; `npuc diff` reads it. The full form has every record, address and instruction.
    """
    with reading(path) as image:
        lines = full_lines(image) if full else listing_lines(build_listing(image))
        return "".join(f"{line}\n" for line in lines)
