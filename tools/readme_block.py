"""Prints a named code block of README.md, so that continuous integration runs README's own commands.

A block is named by an HTML comment on the line before its fence: ``<!-- block: install -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
_BLOCK = re.compile(r"^<!-- block: (?P<name>[\w-]+) -->\n+```\w*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> dict[str, str]:
    """The bodies of all named blocks, by name; two blocks of one name are a ValueError."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer(text):
        name = match["name"]
        if name in found:
            raise ValueError(f"two blocks are named {name!r}")
        found[name] = match["body"]
    return found


def main(arguments: list[str]) -> int:
    """The command line: one block name. Exit code 2 where there is no such block."""
    found = blocks(README.read_text(encoding="utf-8"))
    if len(arguments) != 1 or arguments[0] not in found:
        print(f"usage: readme_block.py NAME, one of: {', '.join(found)}", file=sys.stderr)
        return 2
    print(found[arguments[0]], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
