"""Reads the text form of a task graph (npuc.tasks.text has the grammar)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from npuc.tasks.assemble import ListingError, assemble
from npuc.tasks.graph import (
    Buffer,
    CallOp,
    Const,
    CopyOp,
    FillOp,
    Flag,
    GatherOp,
    MmaOp,
    Origin,
    Region,
    Role,
    ScatterOp,
    StepValue,
    Task,
    TaskGraph,
    TaskOp,
    When,
)
from npuc.tasks.words import Cursor, TaskTextError
from npurt.abi.dtypes import DType

_LABELS = {dtype.label: dtype for dtype in DType}
_ROLES = {role.value: role for role in Role}

ConstBytes = Callable[[str], np.ndarray]


def parse_tasks(text: str, consts: ConstBytes | None = None) -> TaskGraph:
    """The graph of a text. consts: array of a constant's key, called when the constant is produced; the text has only
    names.

    Raises TaskTextError with the number of the line.
    """
    reader = _Reader(consts or _no_bytes)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            reader.line(number, line)
    return reader.graph()


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def _no_bytes(key: str) -> np.ndarray:
    raise LookupError(
        f"constant {key} was read from a text, which has no bytes: give parse_tasks a function that finds them"
    )


@dataclass
class _Reader:
    """What has been read so far."""

    consts: ConstBytes
    head: tuple[str, int, int] | None = None
    buffers: dict[str, Buffer] = field(default_factory=dict)
    codes: dict[str, bytes] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    open_code: str = ""
    code_lines: list[tuple[int, str]] = field(default_factory=list)

    def line(self, number: int, text: str) -> None:
        if self.open_code and text.startswith("  "):
            self.code_lines.append((number, text[2:]))
            return
        self._close_code()
        cursor = Cursor(number, text)
        kind = cursor.name()
        if kind == "entry" and self.head is None:
            entry = cursor.name()
            cursor.expect("rows")
            rows = cursor.integer()
            cursor.expect("capacity")
            self.head = entry, rows, cursor.integer()
        elif kind == "code" and self.head:
            self.open_code = cursor.name()
            if self.open_code in self.codes:
                raise cursor.error(f"code {self.open_code} stands here twice")
        elif kind == "buffer" and self.head:
            self._buffer(cursor)
        elif kind == "task" and self.head:
            self._task(cursor)
        else:
            raise cursor.error(
                f"{kind} is not expected here: one entry line comes first, then code, buffer and task lines"
            )
        if not cursor.done:
            raise cursor.error(f"{cursor.rest()} is left over")

    def graph(self) -> TaskGraph:
        self._close_code()
        if self.head is None:
            raise TaskTextError(1, "there is no entry line")
        return TaskGraph(self.head[0], self.tasks, self.head[1], self.head[2])

    def _close_code(self) -> None:
        if not self.open_code:
            return
        lines = [text for _, text in self.code_lines]
        first = self.code_lines[0][0] if lines else 0
        try:
            if all(text.startswith("hex ") for text in lines):
                self.codes[self.open_code] = bytes.fromhex("".join(text[4:] for text in lines))
            else:
                self.codes[self.open_code] = assemble(lines)
        except ListingError as error:
            raise TaskTextError(self.code_lines[error.line][0], f"code {self.open_code}: {error}") from None
        except ValueError as error:
            raise TaskTextError(first, f"code {self.open_code}: {error}") from None
        self.open_code, self.code_lines = "", []

    def _buffer(self, cursor: Cursor) -> None:
        name, memory, role = cursor.name(), cursor.name(), cursor.name()
        if name in self.buffers:
            raise cursor.error(f"buffer {name} stands here twice")
        if role not in _ROLES:
            raise cursor.error(f"{role} is no role; there are {', '.join(_ROLES)}")
        buffer = Buffer(name, memory, cursor.integer(), _ROLES[role])
        if cursor.accept("align"):
            buffer.align = cursor.integer()
        if cursor.accept("at"):
            buffer.pinned = cursor.integer()
        if cursor.accept("key"):
            key, dtype = cursor.name(), _dtype(cursor)
            buffer.const = Const(key, dtype, cursor.integers(), lambda: self.consts(key))
        if cursor.accept("where"):
            buffer.where = cursor.name()
        self.buffers[name] = buffer

    def _task(self, cursor: Cursor) -> None:
        index = cursor.integer()
        if index != len(self.tasks):
            raise cursor.error(f"task {index} stands where task {len(self.tasks)} is due")
        engine = cursor.name()
        op = self._op(cursor)
        cursor.expect(":")
        reads = self._regions(cursor, "->")
        writes = self._regions(cursor, ";")
        words: dict[str, str] = {}
        coord: tuple[int, ...] = ()
        when, flag = None, None
        while not cursor.done:
            word = cursor.name()
            if word in ("entry", "node", "kernel", "stage") and word not in words:
                words[word] = cursor.name()
            elif word == "coord":
                coord = cursor.integers()
            elif word == "when":
                step = cursor.name()
                cursor.expect(">")
                above = cursor.integer()
                when = When(step, above, cursor.integer() if cursor.accept("most") else None)
            elif word == "flag":
                taken = not cursor.accept("untaken")
                if taken:
                    cursor.expect("taken")
                flag = Flag(cursor.integers(), taken)
            else:
                raise cursor.error(f"{word} is not expected after ';'")
        origin = Origin(
            words.get("entry", ""), words.get("node", ""), words.get("kernel", ""), coord, words.get("stage", "")
        )
        self.tasks.append(Task(engine, op, reads, writes, origin, when, flag))

    def _op(self, cursor: Cursor) -> TaskOp:
        kind = cursor.name()
        if kind == "copy":
            row_dim = cursor.integer() if cursor.accept("row_dim") else 0
            valid = StepValue(cursor.name(), cursor.integer()) if cursor.accept("valid") else None
            shift_src = cursor.name() if cursor.accept("shift_src") else None
            shift_dst = cursor.name() if cursor.accept("shift_dst") else None
            return CopyOp(row_dim, valid, shift_src, shift_dst, cursor.name() if cursor.accept("layout") else "")
        if kind == "fill":
            return FillOp(cursor.integer())
        if kind in ("gather", "scatter"):
            cursor.expect("bound")
            bound = cursor.integer()
            row_dim = cursor.integer() if cursor.accept("row_dim") else 0
            return (GatherOp if kind == "gather" else ScatterOp)(bound, row_dim)
        if kind == "call":
            name, label = cursor.name(), cursor.name()
            if label not in self.codes:
                raise cursor.error(f"code {label} does not stand above")
            return CallOp(name, self.codes[label], _arguments(cursor))
        if kind == "mma":
            accumulate, b_kn, table = cursor.accept("accumulate"), cursor.accept("b_kn"), cursor.accept("table")
            scale = cursor.real() if cursor.accept("scale") else 1.0
            clamp = (cursor.real(), cursor.real()) if cursor.accept("clamp") else None
            codes = _dtype(cursor) if cursor.accept("codes") else None
            zero = cursor.integer() if cursor.accept("zero") else 0
            scales = cursor.accept("scales")
            group = cursor.integer() if scales else 0
            return MmaOp(accumulate, b_kn, table, scale, clamp, codes, zero, scales, group)
        raise cursor.error(f"{kind} is no operation; there are copy, fill, gather, scatter, mma, call")

    def _regions(self, cursor: Cursor, end: str) -> tuple[Region, ...]:
        """Regions up to the mark `end`; the end of the line serves for ';'."""
        regions: list[Region] = []
        while not cursor.accept(end):
            if cursor.done and end == ";":
                break
            if regions:
                cursor.expect(",")
            name = cursor.name()
            if name not in self.buffers:
                raise cursor.error(f"buffer {name} does not stand above")
            offset = cursor.integer() if cursor.peek_signed() else 0
            dtype = _dtype(cursor)
            shape = cursor.integers()
            stride = contiguous(shape, dtype.nbytes)
            if cursor.accept("["):
                stride = cursor.integers_after_bracket()
            if len(stride) != len(shape):
                raise cursor.error(f"{name} has {len(shape)} dimensions and {len(stride)} strides")
            regions.append(Region(self.buffers[name], offset, dtype, shape, stride))
        return tuple(regions)


def _dtype(cursor: Cursor) -> DType:
    label = cursor.name()
    if label not in _LABELS:
        raise cursor.error(f"{label} is no element type; there are {', '.join(_LABELS)}")
    return _LABELS[label]


def _arguments(cursor: Cursor) -> tuple[tuple[str, int | str], ...]:
    cursor.expect("(")
    args: list[tuple[str, int | str]] = []
    while not cursor.accept(")"):
        kind = cursor.name()
        if kind not in ("r", "w", "i", "s"):
            raise cursor.error(f"{kind} is no kind of argument; there are r, w, i, s")
        args.append((kind, cursor.name() if kind == "s" else cursor.integer()))
    return tuple(args)
