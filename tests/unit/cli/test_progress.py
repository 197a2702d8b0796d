"""When a command shows how far it is, and what it looks like in a log, on a terminal, with and without rich."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from npuc.cli import progress as module
from npuc.cli.progress import BarPainter, LinePainter, LogPainter, Progress, painter_for, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, steps: list[tuple[float, str, float | None]]) -> str:
    """What is written for steps that are said at these seconds; a step "" is a mere tick."""
    now = [100.0]
    painter = LinePainter if isinstance(stream, Terminal) else LogPainter
    told = Progress(stream, lambda: now[0], painter)
    for seconds, step, share in steps:
        now[0] = 100.0 + seconds
        if step:
            told(step, share)
        else:
            told.tick()
    told.close()
    return stream.getvalue()


def test_a_quick_command_shows_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        assert shown(stream, [(0.0, "reading", None), (1.9, "writing", 0.9)]) == ""


def test_a_log_gets_plain_lines_now_and_then() -> None:
    steps = [(2.5, "reading", None), (3.0, "writing", 0.0), (7.4, "writing", 0.4), (7.6, "writing", 0.5)]
    assert shown(io.StringIO(), steps) == "reading, 2 s\nwriting  50%, 8 s\n"


def test_seconds_go_on_while_a_step_says_nothing() -> None:
    assert shown(io.StringIO(), [(1.0, "graph", None), (2.1, "", None), (7.2, "", None)]) == "graph, 2 s\ngraph, 7 s\n"


def test_a_terminal_has_one_line_that_goes_away() -> None:
    steps = [(3.0, "writing", 0.25), (3.05, "writing", 0.26), (3.2, "writing", 0.3)]
    assert shown(Terminal(), steps) == "\r\x1b[Kwriting  25%, 3 s\r\x1b[Kwriting  30%, 3 s\r\x1b[K"


def test_a_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    assert shown(Terminal(), [(3.0, "a long step", None)]) == "\r\x1b[Ka long st\r\x1b[K"


def test_a_line_that_stays_comes_between() -> None:
    now, stream = [3.0], Terminal()
    told = Progress(stream, lambda: now[0], LinePainter)
    told.say("note: at once")
    now[0] = 6.0
    told("writing", None)
    told.say("note: later")
    assert stream.getvalue() == "note: at once\n\r\x1b[Kwriting, 3 s\r\x1b[Knote: later\n"


def test_after_the_end_nothing_is_shown() -> None:
    now, stream = [0.0], io.StringIO()
    told = Progress(stream, lambda: now[0], LogPainter)
    told("prompt", None)
    told.close()
    now[0] = 9.0
    told.tick()
    assert stream.getvalue() == ""


def test_a_painter_fits_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(painter_for(io.StringIO()), LogPainter)
    assert isinstance(painter_for(Terminal()), BarPainter)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(painter_for(Terminal()), LogPainter)


def test_without_rich_a_terminal_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(painter_for(Terminal()), LinePainter)


def test_a_bar_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = BarPainter(stream)
    bar.paint("write [1] of 2 MB", 0.5, 3.0)
    bar.erase()
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", stream.getvalue())
    assert re.search(r"write \[1\] of 2 MB +\S+ +3 s", plain)


def test_a_command_is_watched_from_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said during a long step, and it is shown all the same."""
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(module, "TERMINAL_SECONDS", 0.01)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress() as report:
        report("thinking")
        until = time.monotonic() + 5
        while not stream.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert stream.getvalue() == "thinking, 0 s\n"
