"""The tables of docs/ops.md, made from the compiler's own: `python -m npuc.report.ops_page [--check]`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from npuc.report.ops import Op, operators

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
_BLOCK = re.compile(r"(<!-- table: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)
DOMAINS = {"standard": "", "onnxruntime": "com.microsoft", "npuc": "npuc"}


def rendered(text: str) -> str:
    """The document with every block as of today. KeyError names a block that there is no table for."""
    ops = operators()

    def block(match: re.Match[str]) -> str:
        rows = _rows([op for op in ops if op.domain == DOMAINS[match[2]]])
        return match[1] + "".join(f"{line}\n" for line in rows) + match[3]

    return _BLOCK.sub(block, text)


def _rows(ops: Sequence[Op]) -> Iterator[str]:
    yield "| operator | sets | element types | how | limits |"
    yield "| --- | --- | --- | --- | --- |"
    for op in ops:
        how = "<br>".join(f"{' '.join(filter(None, (way['engine'], way['way'])))}: {way['what']}" for way in op.ways)
        cells = (f"`{op.name}`", op.opsets, op.dtypes, how, "<br>".join(op.limits))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites the page, or with --check says whether it is up to date (exit code 1 where not)."""
    parser = argparse.ArgumentParser(prog="python -m npuc.report.ops_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(arguments)
    text = DOCUMENT.read_text(encoding="utf-8")
    if options.check:
        return 0 if rendered(text) == text else 1
    DOCUMENT.write_text(rendered(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
