"""Showing how far a long command is: nothing for two seconds, then a line that changes, or plain lines in a log."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

QUIET_SECONDS = 2.0
"""A command that is done by then shows nothing."""

TERMINAL_SECONDS, LOG_SECONDS = 0.1, 5.0
"""Least time between two lines, where the line is rewritten and where each one stays."""


class Painter(Protocol):
    """Where progress is seen. pause: least seconds between two paints. seconds: since the command began."""

    pause: float

    def paint(self, step: str, share: float | None, seconds: float) -> None: ...

    def erase(self) -> None: ...


class LogPainter:
    """Plain lines, which stay."""

    pause = LOG_SECONDS

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def paint(self, step: str, share: float | None, seconds: float) -> None:
        self._stream.write(f"{_words(step, share, seconds)}\n")
        self._stream.flush()

    def erase(self) -> None:
        return


class LinePainter:
    """One line of a terminal, rewritten in its place. It is cut at the terminal's width: a wrapped one would stay."""

    pause = TERMINAL_SECONDS

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def paint(self, step: str, share: float | None, seconds: float) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{_words(step, share, seconds)[:width]}")
        self._stream.flush()

    def erase(self) -> None:
        self._stream.write("\r\x1b[K")
        self._stream.flush()


class BarPainter:
    """A bar of the package rich, in its place. Errors: ImportError without that package."""

    pause = TERMINAL_SECONDS

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        step, seconds = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[seconds]:.0f} s")
        self._bars: RichProgress = Progress(
            step, BarColumn(), seconds, console=Console(file=stream), auto_refresh=False, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._task = self._bars.add_task("", total=None, seconds=0.0)

    def paint(self, step: str, share: float | None, seconds: float) -> None:
        total = None if share is None else 1.0
        self._bars.update(self._task, description=step, total=total, completed=share or 0.0, seconds=seconds)
        self._bars.start()
        self._bars.refresh()

    def erase(self) -> None:
        self._bars.stop()


def _words(step: str, share: float | None, seconds: float) -> str:
    done = "" if share is None else f" {share:4.0%}"
    return f"{step}{done}, {seconds:.0f} s"


def painter_for(stream: TextIO) -> Painter:
    """A bar on a terminal where rich is installed, else a line that changes; lines that stay everywhere else."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return LogPainter(stream)
    try:
        return BarPainter(stream)
    except ImportError:
        return LinePainter(stream)


class Progress:
    """Shows the steps of one command on `stream`; is itself the callback (`npuc.progress.Report`).

    The last step is shown even if nothing new is said, as long as `tick` is called. clock: seconds, never going back.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        painter: Callable[[TextIO], Painter] = painter_for,
    ) -> None:
        self._stream, self._clock, self._make = stream, clock, painter
        self._start = clock()
        self._step: tuple[str, float | None] | None = None
        self._painter: Painter | None = None  # made when there is something to show: rich takes a while to import
        self._painted = self._start
        self._lock = threading.Lock()

    def __call__(self, step: str, share: float | None = None) -> None:
        """Says what is being done, and which share of it is done (0 to 1), where that is known."""
        self._step = step, share
        self.tick()

    def tick(self) -> None:
        """Shows the last step, if it is time to."""
        with self._lock:
            now = self._clock()
            if self._step is None or now - self._start < QUIET_SECONDS:
                return
            if self._painter is None:
                self._painter = self._make(self._stream)
            elif now - self._painted < self._painter.pause:
                return
            self._painted = now
            self._painter.paint(*self._step, now - self._start)

    def say(self, text: str) -> None:
        """A line that stays, between the changing ones."""
        with self._lock:
            if self._painter is not None:
                self._painter.erase()
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def close(self) -> None:
        """Erases what changes; nothing more is shown until the next step is said."""
        with self._lock:
            self._step = None
            if self._painter is not None:
                self._painter.erase()


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on stderr for as long as the block lasts; seconds go on while a step says nothing."""
    shown = Progress(sys.stderr)
    over = threading.Event()

    def tick() -> None:
        while not over.wait(TERMINAL_SECONDS):
            shown.tick()

    thread = threading.Thread(target=tick, name="progress", daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        over.set()
        thread.join()
        shown.close()
