"""The tables of docs/blob-format.md and docs/bytecode.md, from the definition: `python -m npuc.report.format_tables`.

The documents hold blocks between ``<!-- table: NAME -->`` and ``<!-- end -->``; the command replaces what is between.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np

from npuc.report.format_meaning import ENUMS, MEANING, RECORDS, SECTIONS
from npuc.report.format_opcodes import limit_rows, opcode_rows

DOCUMENTS = tuple(Path(__file__).resolve().parents[2] / "docs" / name for name in ("blob-format.md", "bytecode.md"))
_BLOCK = re.compile(r"(<!-- table: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str) -> str:
    """The document with every block as of today. KeyError names a block that there is no table for."""
    tables: dict[str, Callable[[], Iterator[str]]] = {
        "sections": _sections,
        "opcodes": opcode_rows,
        "limits": limit_rows,
    }
    tables |= {name: partial(_record, dtype, MEANING[name]) for name, dtype in RECORDS.items()}
    tables |= {kind.__name__: partial(_enum, kind) for kind in ENUMS}

    def block(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in tables[match[2]]()) + match[3]

    return _BLOCK.sub(block, text)


def blocks(text: str) -> list[str]:
    """The names of the blocks of a document, in order."""
    return [match[2] for match in _BLOCK.finditer(text)]


def _record(dtype: np.dtype, meaning: dict[str, str]) -> Iterator[str]:
    assert dtype.fields is not None and dtype.names is not None
    yield f"{dtype.itemsize} bytes."
    yield ""
    yield "| offset | field | type | meaning |"
    yield "| ---: | --- | --- | --- |"
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]
        yield f"| {offset} | `{name}` | {_type(field)} | {meaning[name]} |"


def _type(field: np.dtype) -> str:
    base, shape = field.subdtype or (field, ())
    kind = {"u": "u", "i": "i", "f": "f"}[base.kind] + str(8 * base.itemsize)
    return kind + "".join(f"[{n}]" for n in shape)


def _enum(kind: type[Enum]) -> Iterator[str]:
    yield "| value | name |"
    yield "| ---: | --- |"
    for member in kind:
        value = member.value
        yield f"| {value if value < 256 else f'{value:#x}'} | `{member.name}` |"


def _sections() -> Iterator[str]:
    yield "| section | type | memory class | contents |"
    yield "| --- | --- | --- | --- |"
    for name, kind, memory, contents in SECTIONS:
        yield f"| `{name}` | {kind.name} ({kind:#x}) | {memory or 'none'} | {contents} |"


def main(arguments: Sequence[str]) -> int:
    """The command line. With --check nothing is written, and exit code 1 says that the document is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    options = parser.parse_args(arguments)
    outdated = 0
    for document in DOCUMENTS:
        found = document.read_text(encoding="utf-8")
        today = rendered(found)
        if not options.check:
            document.write_text(today, encoding="utf-8", newline="\n")
        elif found != today:
            print(f"{document.name} is out of date: python -m npuc.report.format_tables")
            outdated = 1
    return outdated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
