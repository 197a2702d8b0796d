"""When a line shows how far a command is."""

from __future__ import annotations

import io

from npuc.models.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, steps: list[tuple[float, str, float | None]]) -> str:
    now = [100.0]
    progress = Progress(stream, lambda: now[0])
    for seconds, step, share in steps:
        now[0] = 100.0 + seconds
        progress(step, share)
    progress.close()
    return stream.getvalue()


def test_a_quick_command_shows_nothing():
    for stream in (io.StringIO(), Terminal()):
        assert shown(stream, [(0.0, "reading", None), (1.9, "writing", 0.9)]) == ""


def test_a_log_gets_plain_lines_now_and_then():
    steps = [(2.5, "reading", None), (3.0, "writing", 0.0), (7.9, "writing", 0.4), (8.1, "writing", 0.5)]
    assert shown(io.StringIO(), steps) == "reading, 2 s\nwriting   0%, 3 s\nwriting  50%, 8 s\n"


def test_a_terminal_has_one_line_that_goes_away():
    steps = [(3.0, "writing", 0.25), (3.05, "writing", 0.26), (3.2, "writing", 0.3)]
    assert shown(Terminal(), steps) == "\r\x1b[Kwriting  25%, 3 s\r\x1b[Kwriting  30%, 3 s\r\x1b[K"
