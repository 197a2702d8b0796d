"""Errors of kernels, shown at the author's source line."""

from __future__ import annotations

import linecache
import os.path
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).resolve().parent)


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the author's source: line and columns as editors count them, from 1; `end` is one past the last."""

    file: str
    line: int
    column: int
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        """File name without its folder, with the line: what plans and buffers show."""
        return f"{os.path.basename(self.file)}:{self.line}"


class KernelError(Exception):
    """A kernel that cannot be compiled or run: what, where, and what would work.

    ``loc`` is None where no source line is to blame (a wrong argument list).
    """

    def __init__(self, message: str, loc: Loc | None = None) -> None:
        self.reason = message
        self.loc = loc
        super().__init__(message if loc is None else _with_source(message, loc))


def caller() -> Loc:
    """The innermost place outside this package: the kernel's line that called a function of the language."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Loc("<unknown>", 1, 1, 1) if frame is None else _place(frame.f_code.co_filename, frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _place(file: str, code: CodeType, instruction: int) -> Loc:
    """The source of one instruction, which loops reach again and again. file: equal code of two files is equal."""
    line, end_line, column, end = next(islice(code.co_positions(), instruction // 2, None))
    line, column = line or code.co_firstlineno, column or 0
    if end is None or end_line != line:  # a call over several lines: to the end of its first
        end = len(linecache.getline(file, line).rstrip("\n"))
    return Loc(file, line, column + 1, max(end, column + 1) + 1)


def of_author(error: Exception) -> KernelError | None:
    """A fault that Python found in a kernel's own code, such as a wrong argument list, at the line; None where it was
    raised inside this package. A recursion without end is the author's wherever it meets Python's limit.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if isinstance(error, RecursionError) and not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            break
    if trace is None or trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return KernelError(
        f"{type(error).__name__}: {error}",
        _place(trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code, trace.tb_lasti),
    )


@contextmanager
def author_faults() -> Iterator[None]:
    """Around a kernel's own code: Python's errors in it become errors at the author's line. Assertions stay."""
    try:
        yield
    except (KernelError, AssertionError):
        raise
    except Exception as error:
        fault = of_author(error)
        if fault is None:
            raise
        raise fault from error


def refused(message: str) -> KernelError:
    """The error at the kernel's line that called the language."""
    return KernelError(message, caller())


def _with_source(message: str, loc: Loc) -> str:
    source = linecache.getline(loc.file, loc.line).rstrip("\n")
    if not source:
        return f"{loc.file}:{loc.line}: {message}"
    indent = len(source) - len(source.lstrip())
    start = max(loc.column - 1, indent)
    width = max(1, min(loc.end - 1, len(source)) - start)
    return f"{loc.file}:{loc.line}: {message}\n    {source.lstrip()}\n    {' ' * (start - indent)}{'^' * width}"
