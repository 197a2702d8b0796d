"""Stop strings over a stream of text: text that may be the start of one is held back until that is decided."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import OptionError


class StopStrings:
    """Passes text on until one of `stops` appears; the stop string itself and all after it are cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise OptionError("--stop is empty: give at least one character")
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string has ended the answer."""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            shown, self._held = self._held[: min(places)], ""
            return shown, True
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        """What is still held back at the end of the answer: it was no stop string."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that are a beginning of `stop` (not the whole of it)."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
