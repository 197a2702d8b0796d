"""The one way in which npuc says no to a model, and the list that collects what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_SHOWN_PLACES = 3
_SHOWN_PROBLEMS = 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAME = re.compile(r"'[^']*'|(?<=\bnode )\S+")
_NUMBER = re.compile(r"\d+")


class ModelRefused(Exception):
    """The model cannot be compiled. `problems` has a short message for each fault, `source` is the name of its file."""

    exit_code = 3

    def __init__(self, problems: Sequence[str], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__(self.text())

    def text(self) -> str:
        """One line for one problem; for more, a count and a line each."""
        prefix = f"{self.source}: " if self.source else ""
        if len(self.problems) == 1:
            return prefix + self.problems[0]
        lines = [f"{prefix}{len(self.problems)} problems", *(f"  {p}" for p in self.problems[:_SHOWN_PROBLEMS])]
        if len(self.problems) > _SHOWN_PROBLEMS:
            lines.append(f"  and {len(self.problems) - _SHOWN_PROBLEMS} more")
        return "\n".join(lines)


class Problems:
    """Collects faults in the order in which they are found.

    A fault that many places share is told once, and so is one that differs only in the numbers inside of names, as it
    does from layer to layer.
    """

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}
        self.count = 0  # of the calls of add, those that repeat a fault included

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, what: str, where: str = "") -> None:
        """what: the fault, the same text for the same fault. where: the place, for example a node; "" for the model."""
        self.count += 1
        places = self._places.setdefault(what, [])
        if where and where not in places:
            places.append(where)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Adds what a block refuses, instead of refusing it."""
        try:
            yield
        except ModelRefused as refused:
            for problem in refused.problems:
                self.add(problem)

    def messages(self) -> list[str]:
        """One message a fault, with its places in front. Control characters of names become question marks."""
        alike: dict[str, list[str]] = {}
        for what in self._places:
            alike.setdefault(_without_numbers(what), []).append(what)
        return [_CONTROL.sub("?", self._message(whats)) for whats in alike.values()]

    def _message(self, whats: Sequence[str]) -> str:
        """whats: faults that are alike, of which the first is told."""
        places = [place for what in whats for place in self._places[what]]
        if not places:
            return whats[0] if len(whats) == 1 else f"{whats[0]} (and {len(whats) - 1} more like it)"
        return f"{_join(places, _SHOWN_PLACES if len(whats) == 1 else 1)}: {whats[0]}"

    def refuse(self, source: str = "") -> None:
        """Raises ModelRefused if there is any fault."""
        if self:
            raise ModelRefused(self.messages(), source)


def _join(places: Sequence[str], most: int) -> str:
    shown, rest = ", ".join(places[:most]), len(places) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def _without_numbers(text: str) -> str:
    """A text with a sign for each number inside of a name; numbers elsewhere say what the fault is."""
    return _NAME.sub(lambda name: _NUMBER.sub("#", name[0]), text)
