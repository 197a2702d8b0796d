"""The recorder: runs a kernel's function once for a class of programs and keeps its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from npuc.tile.affine import Affine, Index
from npuc.tile.errors import Loc, refused
from npuc.tile.trace import AnyCondition, Memory, Recorded, TraceOp, Value, executing
from npuc.tile.types import ArrayType
from npuc.tile.watch import Watch
from npurt.abi.dtypes import DType


class Recorder:
    """Keeps the operations of one class of programs.

    ranges: first and last id of each grid axis; None where only the grid is to be learnt.
    """

    def __init__(self, ranges: tuple[tuple[int, int], ...] | None) -> None:
        self.ranges = ranges
        self.when: AnyCondition | None = None
        self.ops: list[Recorded] = []
        self.locals: list[Memory] = []
        self.grid: tuple[int, ...] | None = None
        self._values = 0
        self._watch = Watch()

    @property
    def started(self) -> bool:
        return bool(self.ops)

    def programs(self, extents: tuple[int, ...]) -> tuple[Index, ...]:
        self.grid = extents
        if self.ranges is None:
            raise GridFound(extents)
        return tuple(Affine(0, ((axis, 1),), self.ranges) for axis in range(len(extents)))

    def step(self, field: str) -> Index:
        return Affine(0, ((field, 1),), self.ranges or ())

    def value(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        self._values += 1
        return Value(self._values - 1, dtype, shape)

    def allocate(self, type_: ArrayType, loc: Loc) -> Memory:
        memory = Memory(type_, len(self.locals), True, loc)
        self.locals.append(memory)
        return memory

    def emit(self, op: TraceOp) -> None:
        self._watch.see(op)
        self.ops.append(Recorded(op, self.when))

    @property
    def predicated(self) -> bool:
        return self.when is not None

    @contextmanager
    def predicate(self, condition: AnyCondition) -> Iterator[None]:
        self.when = condition
        yield
        self.when = None

    def data(self, value: Value) -> Any:
        raise refused("a traced tile holds no numbers; run kernel.eager(...) to look at values")


class GridFound(Exception):
    """The kernel has named its grid; the recorder that only wanted to know it stops here."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        self.grid = grid
        super().__init__(f"grid {grid}")


@dataclass(frozen=True)
class ClassTrace:
    """The operations shared by every program whose ids lie in `ranges` (first and last id of each grid axis)."""

    ranges: tuple[tuple[int, int], ...]
    ops: tuple[Recorded, ...]
    locals: tuple[Memory, ...]


def record(body: Callable[[], None], ranges: tuple[tuple[int, int], ...]) -> ClassTrace:
    """Runs `body` once and keeps what it does."""
    recorder = Recorder(ranges)
    with executing(recorder):
        body()
    return ClassTrace(ranges, tuple(recorder.ops), tuple(recorder.locals))


def grid_of(body: Callable[[], None]) -> tuple[int, ...]:
    """The grid that `body` asks for with programs(); () where it does not ask."""
    recorder = Recorder(None)
    try:
        with executing(recorder):
            body()
    except GridFound as found:
        return found.grid
    return ()
