"""Words of the text form of task graphs: how they are written, and a cursor that reads one line of them."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z_][\w./]*", re.ASCII)
_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<word>[A-Za-z_][\w./]*)"
    r"|(?P<number>[-+]?(?:0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan))"
    r"|(?P<mark>->|[][():;,>]))",
    re.ASCII,
)


class TaskTextError(ValueError):
    """A line of a task list that cannot be read. line: its number, from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def word(text: str) -> str:
    """The text as one word: as it is, or as a JSON string."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class Cursor:
    """Reads the words of one line from left to right; every method raises TaskTextError with the line's number."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        end = 0
        while text[end:].strip():
            found = _TOKEN.match(text, end)
            if found is None:
                raise self.error(f"cannot read {text[end:].strip()!r}")
            self._tokens.append((str(found.lastgroup), found[found.lastgroup or 0]))
            end = found.end()

    def error(self, message: str) -> TaskTextError:
        return TaskTextError(self.line, message)

    @property
    def done(self) -> bool:
        return self._at == len(self._tokens)

    def rest(self) -> str:
        """What has not been read, for messages."""
        return " ".join(text for _, text in self._tokens[self._at :]) or "the end of the line"

    def accept(self, text: str) -> bool:
        """Reads the mark or plain word `text` if it is next."""
        if not self.done and self._tokens[self._at] in (("word", text), ("mark", text)):
            self._at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.rest()}")

    def name(self) -> str:
        """A word, plain or as a string."""
        kind, text = ("", "") if self.done else self._tokens[self._at]
        if kind not in ("word", "string"):
            raise self.error(f"expected a word, found {self.rest()}")
        self._at += 1
        return str(json.loads(text)) if kind == "string" else text

    def integer(self) -> int:
        kind, text = ("", "") if self.done else self._tokens[self._at]
        if kind == "number":
            try:
                value = int(text, 0)
            except ValueError:
                raise self.error(f"{text} is no whole number") from None
            self._at += 1
            return value
        raise self.error(f"expected a whole number, found {self.rest()}")

    def real(self) -> float:
        kind, text = ("", "") if self.done else self._tokens[self._at]
        if kind == "number" or text in ("inf", "nan"):
            self._at += 1
            return float(text)
        raise self.error(f"expected a number, found {self.rest()}")

    def peek_signed(self) -> bool:
        """Whether a number with a sign is next."""
        return not self.done and self._tokens[self._at][0] == "number" and self._tokens[self._at][1][0] in "+-"

    def integers(self) -> tuple[int, ...]:
        """[1,2,3]"""
        self.expect("[")
        return self.integers_after_bracket()

    def integers_after_bracket(self) -> tuple[int, ...]:
        """1,2,3]"""
        values: list[int] = []
        while not self.accept("]"):
            if values:
                self.expect(",")
            values.append(self.integer())
        return tuple(values)
