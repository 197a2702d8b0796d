"""The text: the King James Version of the Bible (1611), which the Debian package `bible-kjv` prints verse by verse.

A document is a chapter: its verses, one a line. Whole chapters are held out, chosen by a seed.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

COMMAND = ["bible", "-f", "-l", "10000", "ge1:1-rev22:21"]
"""Prints the whole text on lines of their own: `Ge1:1 In the beginning ...`."""

VERSES = 31_102
"""Verses in the whole text: a shorter one is a broken copy."""

_LINE = re.compile(r"(\d?[A-Za-z]+)(\d+):(\d+) (.+)")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


@dataclass(frozen=True)
class Corpus:
    """Chapters, each a list of verses without line ends."""

    train: list[list[str]]
    held_out: list[list[str]]


def raw_text(path: Path | None = None) -> str:
    """The output of `COMMAND`, or the contents of a file that holds it."""
    if path is not None:
        return path.read_text(encoding="ascii")
    try:
        return subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise SystemExit("the text is missing: run `apt-get install bible-kjv`, or give --text FILE") from None


def chapters(raw: str, verses: int = VERSES) -> list[list[str]]:
    """Splits the printed text at its chapters; checks that no verse is missing."""
    out: list[list[str]] = []
    last: tuple[str, str] | None = None
    for number, line in enumerate(raw.splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"line {number} is no verse: {line[:60]!r}")
        book, chapter, _, verse = match.groups()
        if (book, chapter) != last:
            out.append([])
            last = book, chapter
        out[-1].append(" ".join(verse.split()))
    found = sum(map(len, out))
    if found != verses:
        raise ValueError(f"{found} verses found, {verses} expected")
    return out


def split(documents: list[list[str]], share: float = 0.05, seed: int = 1611) -> Corpus:
    """Holds out `share` of the chapters, chosen by `seed`; both parts keep the order of the text."""
    order = list(range(len(documents)))
    random.Random(seed).shuffle(order)
    held = set(order[: round(share * len(order))])
    return Corpus(
        train=[d for i, d in enumerate(documents) if i not in held],
        held_out=[d for i, d in enumerate(documents) if i in held],
    )


def words(text: str) -> list[str]:
    """The words of a text, in small letters; `Aaron's` is one word."""
    return _WORD.findall(text.lower())


def lines(documents: list[list[str]]) -> str:
    """One string: a verse a line."""
    return "".join(verse + "\n" for verses in documents for verse in verses)
