"""Showing how far a long command is: nothing for two seconds, then a line that changes, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

QUIET_SECONDS = 2.0
"""A command that is done by then shows nothing."""

TERMINAL_SECONDS, LOG_SECONDS = 0.1, 5.0
"""Least time between two lines of the same step, where the line is rewritten and where each one stays."""


class Progress:
    """Prints the steps of one command on `stream`.

    On a terminal one line is rewritten and erased in the end. Elsewhere each new step is a line, and a step that goes
    on repeats it every five seconds. clock: seconds, never going back.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._terminal = stream.isatty()
        self._start = clock()
        self._last: tuple[str, float] | None = None

    def __call__(self, step: str, share: float | None = None) -> None:
        """Says what is being done, and which share of it is done (0 to 1), where that is known."""
        now = self._clock()
        if now - self._start < QUIET_SECONDS:
            return
        pause = TERMINAL_SECONDS if self._terminal else LOG_SECONDS
        if self._last is not None and self._last[0] == step and now - self._last[1] < pause:
            return
        self._last = step, now
        done = "" if share is None else f" {share:4.0%}"
        text = f"{step}{done}, {now - self._start:.0f} s"
        self._stream.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Erases the changing line of a terminal."""
        if self._terminal and self._last is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
