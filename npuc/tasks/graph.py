"""The task graph: what one entry does, in trace order, before anything has an address, an order or a barrier.

The records name engines and memories by the words of the target file ("dma.in", "dpu", "cmx", or "mte2", "cube",
"l0c"), so that machines which differ in kind are said in the same records; a unit that a core has more than once
carries its number ("vector.1", "ub.1"). A task reads and writes strided regions of buffers; all dependencies follow
from the regions. Trace order is a correct sequential execution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from npurt.abi.dtypes import DType


class Role(Enum):
    """Who provides a buffer's memory, and so who may place it."""

    LOCAL = "local"  # placed by the scheduler in its memory for its life
    CONST = "const"  # a weight or table of the blob, read-only
    INPUT = "input"  # bound by the caller
    OUTPUT = "output"  # bound by the caller
    STATE = "state"  # bound once, written in place, shared by all entries
    STEP = "step"  # the step block


@dataclass(frozen=True)
class Const:
    """Bytes of a CONST buffer. Equal keys mean equal bytes: the blob stores each key once.

    ``produce`` returns the packed array (C order, the storage dtype of ``dtype``); it is called when the blob is
    written, so that large weights are never all in memory.
    """

    key: str
    dtype: DType
    shape: tuple[int, ...]
    produce: Callable[[], np.ndarray]


@dataclass(eq=False, slots=True)
class Buffer:
    """A piece of memory, compared by identity. Names are unique in a graph.

    nbytes: size in bytes. align: of its first byte. where: the author's file:line, for the overflow message.
    pinned: bytes from the start of the memory where the buffer must lie (hand-placed machines only).
    """

    name: str
    memory: str
    nbytes: int
    role: Role = Role.LOCAL
    align: int = 64
    const: Const | None = None
    where: str = ""
    pinned: int | None = None

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {self.memory}, {self.nbytes} B, {self.role.value})"


@dataclass(frozen=True, slots=True)
class Region:
    """A strided view of a buffer: offset and strides in bytes, shape in elements, outermost dimension first."""

    buffer: Buffer
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self.elements * self.dtype.nbytes

    @property
    def span(self) -> tuple[int, int]:
        """First byte and one past the last byte that the view can touch, relative to the buffer."""
        if self.elements == 0:
            return self.offset, self.offset
        low = high = self.offset
        for extent, stride in zip(self.shape, self.stride, strict=True):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class StepValue:
    """field + add, where field is "n_past" or "n_new" of the step block."""

    field: str
    add: int = 0


@dataclass(frozen=True, slots=True)
class When:
    """Step predicate: the task acts only where step[field] > above and, where `most` is given, step[field] <= most."""

    field: str
    above: int
    most: int | None = None

    def holds(self, step: Mapping[str, int]) -> bool:
        """Whether the task acts at these values of the step fields."""
        return step[self.field] > self.above and (self.most is None or step[self.field] <= self.most)


@dataclass(frozen=True, slots=True)
class Flag:
    """Device predicate: the task acts only where (any of its reads at these places is not zero) == taken.

    Each of these reads is one int32, which the engine's scalar part fetches from wherever it lies. Like `When`, it
    changes what the task does, never its order or its memory.
    """

    reads: tuple[int, ...]
    taken: bool = True


@dataclass(frozen=True, slots=True)
class CopyOp:
    """Moves reads[i] to writes[i]; equal shapes; element types convert where they differ.

    One pair, but for engines that feed several destinations at once (reads beyond the writes are flags).

    valid: runtime extent of dimension `row_dim`: loads (engine dma.in) zero-fill the destination beyond it, stores
    (dma.out) leave it untouched. shift_src, shift_dst: a step field that is multiplied by that side's row_dim stride
    and added to its address. layout: the engine's mode that reorders elements on the way ("nd2nz", ...), on machines
    that have one; the regions alone say which bytes go where.
    """

    row_dim: int = 0
    valid: StepValue | None = None
    shift_src: str | None = None
    shift_dst: str | None = None
    layout: str = ""


@dataclass(frozen=True, slots=True)
class FillOp:
    """Sets writes[0] to a value of its dtype, given as the element's bits."""

    bits: int = 0


@dataclass(frozen=True, slots=True)
class GatherOp:
    """writes[0][r] = reads[0][index[r]] along dimension `row_dim`, with the int32 index in reads[1]; outside [0, bound)
    the row is zero."""

    bound: int
    row_dim: int = 0


@dataclass(frozen=True, slots=True)
class ScatterOp:
    """writes[0][index[r]] = reads[0][r] along dimension `row_dim`, with the int32 index in reads[1], in rising order
    of r; outside [0, bound) the row is skipped."""

    bound: int
    row_dim: int = 0


@dataclass(frozen=True, slots=True)
class MmaOp:
    """writes[0] [batch?, m, n] (+)= scale * reads[0] [batch?, m, k] x reads[1] [batch?, n, k], or [k, n] with b_kn.

    table: reads[2] is [n] rows of (scale f32, bias f32). accumulate: the destination (f32) is also read.

    codes: the type of the elements that the bytes of reads[1] (u8 [n, bytes]) hold; number(code) - zero enters the sum.
    scales: reads[2] is [n, groups], a factor for the sum over each `group` of k (0: all of k).
    """

    accumulate: bool = False
    b_kn: bool = False
    table: bool = False
    scale: float = 1.0
    clamp: tuple[float, float] | None = None
    codes: DType | None = None
    zero: int = 0
    scales: bool = False
    group: int = 0


@dataclass(frozen=True, slots=True)
class CallOp:
    """Runs vector code. args: for each argument of the bytecode, ("r", i) reads[i], ("w", i) writes[i], ("i", value) an
    int32, ("s", field) a step-block field. code: the program's bytes (npurt.abi.bytecode); name: for people."""

    name: str
    code: bytes
    args: tuple[tuple[str, int | str], ...]


TaskOp = CopyOp | FillOp | GatherOp | ScatterOp | MmaOp | CallOp


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task comes from: the key that people and diffs name it by."""

    entry: str = ""
    node: str = ""
    kernel: str = ""
    coord: tuple[int, ...] = ()
    stage: str = ""


@dataclass(eq=False, slots=True)
class Task:
    """One descriptor of one engine. An in-out region (accumulators) stands in both reads and writes.

    when: step predicate, known at submit. flag: device predicate, decided by values that earlier tasks wrote.
    """

    engine: str
    op: TaskOp
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    origin: Origin = Origin()
    when: When | None = None
    flag: Flag | None = None


@dataclass
class TaskGraph:
    """One entry: tasks in trace order. rows: C of prefill, 1 of generate; capacity: slots of the KV cache (0: none)."""

    entry: str
    tasks: list[Task] = field(default_factory=list)
    rows: int = 0
    capacity: int = 0

    def buffers(self) -> list[Buffer]:
        """Every buffer that a task touches, in order of first use."""
        seen: dict[Buffer, None] = {}
        for task in self.tasks:
            for region in (*task.reads, *task.writes):
                seen.setdefault(region.buffer)
        return list(seen)
