"""Texts of programs made by hand: `python -m tests.golden.update` writes them, with `--check` it compares.

They hold the forms of `npuc disasm` still, one task of each kind; compiled models are `tools.golden`'s. Tests use
`assert_golden`; what changed, and whether it was meant, is read in the diff of the commit.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "handmade"
COMMAND = "python -m tests.golden.update"


def _synthetic(full: bool) -> str:
    from npuc.emit import write_blob
    from npuc.report import disasm
    from tests.unit.emit.programs import model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.blob"
        write_blob(*model().arguments(), path)
        return disasm(path, full)


# file name -> its text as of today
CASES: dict[str, Callable[[], str]] = {
    "synthetic.txt": lambda: _synthetic(full=False),
    "synthetic.full.txt": lambda: _synthetic(full=True),
}


def assert_golden(name: str, text: str) -> None:
    """AssertionError, with a diff, where `text` is not what tests/golden/handmade/`name` holds."""
    report = compare(name, text)
    assert report is None, report


def compare(name: str, text: str) -> str | None:
    """None where the golden file holds `text`; else what differs and the command that accepts it."""
    path = FOLDER / name
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if expected == text:
        return None
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), f"tests/golden/handmade/{name}", "today", lineterm="", n=1
    )
    return "\n".join([*lines, f"If the change is meant: {COMMAND}, and read the diff before you commit it."])


def main(arguments: Sequence[str]) -> int:
    """The command line. With --check exit code 1 where a file differs."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of: {', '.join(CASES)} (all)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}")
    failed = 0
    for name in options.names or CASES:
        text = CASES[name]()
        if not options.check:
            (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote tests/golden/handmade/{name}")
        elif report := compare(name, text):
            failed = 1
            print(report)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
