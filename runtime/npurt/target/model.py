"""A machine as data: what a target file says, in SI units (bytes, seconds, hertz, bytes per second)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ASSUMED = "assumed"
OP_CLASSES = ("load", "store", "move", "simple", "special", "reduce")
"""Classes of vector instructions: memory to register and back; elements that only change places; arithmetic,
comparisons and casts; functions such as exp; sums and extremes along an axis."""


@dataclass(frozen=True)
class Memory:
    """One memory. bytes: what a program may use, of one instance; align: of the first byte of a buffer.

    per: "device", or the unit that owns an instance ("tile", "core", "vector core"). on_chip: placed by the scheduler.
    banks: that answer at once; bank_groups: sets of them with ports of their own, between which rows of `bank_row`
    bytes alternate; without groups, banks are equal parts one after the other. bank_rate: bytes per second of one such
    part, for all that use it (0: no limit).
    """

    name: str
    bytes: int
    align: int
    per: str
    on_chip: bool
    banks: int = 1
    bank_groups: int = 1
    bank_row: int = 0
    bank_rate: float = 0.0


@dataclass(frozen=True)
class Engine:
    """One in-order queue and what serves it, in each tile or core.

    kind: "dma", "matrix", "vector", "scalar". count: units of a tile or core; gang: they share each task, else every
    unit has a queue of its own. clock: hertz. reads, writes: the memories of its operands. launch: seconds of fixed
    cost per task. Matrix engines: macs_per_cycle by operand type; operand_rate, bytes per second of all operands
    together (0: no limit); codes, types that the second operand may hold whatever the first one does (integers of up
    to 8 bits and 4-bit floats), widened on the way in. Vector engines: bytes_per_cycle of one instruction and unit,
    and the cycles of an instruction by class (`OP_CLASSES`) for so many bytes; instruction_latency: seconds until the
    next instruction, which needs its result, can begin. DMA engines: destinations that one transfer feeds at once;
    max_bytes of one descriptor (0: no limit); outstanding: transfers in flight; gather_rows: rows of a gather in one
    request (0: one request takes them all); fill_rate: bytes per second written without a source (0: at the rate of
    the route). code: bytes of instructions that stay on chip (0: no limit); function_code: the same of one vector
    function.
    """

    name: str
    queue: str
    kind: str
    count: int
    gang: bool
    clock: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    launch: float
    macs_per_cycle: Mapping[str, float]
    operand_rate: float
    codes: tuple[str, ...]
    bytes_per_cycle: int
    cycles: Mapping[str, float]
    instruction_latency: float
    destinations: int
    max_bytes: int
    outstanding: int
    gather_rows: int
    fill_rate: float
    code: int
    function_code: int

    @property
    def units(self) -> int:
        """Units that work on one task."""
        return self.count if self.gang else 1

    @property
    def program_code(self) -> int:
        """Most bytes of one SHAVE program, 0 for no limit: it is fetched whole before it runs."""
        return self.function_code or self.code


@dataclass(frozen=True)
class Route:
    """A way from one memory to another. rate: bytes per second of one engine; latency: seconds of each transfer.

    granule: contiguous pieces of a transfer move in multiples of so many bytes. pool: name of a `Pool`, "" for none.
    layouts: the changes of layout that the engine makes on the way, such as "nd->nz".
    """

    source: str
    destination: str
    engine: str
    rate: float
    latency: float
    granule: int
    pool: str
    layouts: tuple[str, ...]


@dataclass(frozen=True)
class Pool:
    """Bandwidth that routes share. rate: bytes per second of all engines of one tile or core together.

    `device_rate` is the file's figure: of the whole device where per is "device", then `rate` is an equal share of it.
    """

    name: str
    device_rate: float
    per: str
    rate: float


@dataclass(frozen=True)
class Operands:
    """Where an operation's operands must lie. homes: by operand (memory, layout). engine: who computes.

    accumulator: memory of a running sum; accumulates: its element type; "" where the class has none.
    """

    engine: str
    homes: Mapping[str, tuple[str, str]]
    accumulator: str
    accumulates: str


@dataclass(frozen=True)
class SyncCosts:
    """Seconds: issue, of each task by the scalar part of its engine; latency, from a task's end to the start of one
    that waits for its barrier or flag."""

    issue: float
    latency: float


@dataclass(frozen=True)
class Barriers:
    """Physical barriers. per_tile: ids that one tile may use.

    slot_count, slot_sum: producers and consumers may each be slot_count / 2 at most, and slot_sum together.
    """

    total: int
    per_tile: int
    slot_count: int
    slot_sum: int

    @property
    def most_each(self) -> int:
        """Most producers, and most consumers, of one barrier."""
        return self.slot_count // 2


@dataclass(frozen=True)
class MatrixRules:
    """What the matrix engine asks of an operation.

    channel_multiple: granularity of n and k in elements. row_multiple: rows are computed in groups of so many.
    max_extent: of any dimension. operand_orders: stored orders of the second operand, "nk" and "kn".
    """

    channel_multiple: int
    row_multiple: int
    max_extent: int
    operand_orders: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """One number of a target file as written. key: dotted, such as "engines.dpu.launch". source: "" where none is
    given."""

    key: str
    text: str
    source: str

    @property
    def assumed(self) -> bool:
        """Whether nothing but an assumption stands behind the number."""
        return not self.source or self.source.startswith(ASSUMED)


@dataclass(frozen=True)
class Target:
    """One machine. tiles: tiles or cores of the device. sources: what the letters of the sources mean.

    figures: every number of the file by its key. digest: SHA-256 of the file, hex, for caches.
    """

    name: str
    description: str
    tiles: int
    memories: Mapping[str, Memory]
    engines: Mapping[str, Engine]
    routes: Mapping[tuple[str, str], Route]
    pools: Mapping[str, Pool]
    operands: Mapping[str, Operands]
    sync: SyncCosts
    barriers: Barriers
    matrix: MatrixRules
    sources: Mapping[str, str]
    figures: Mapping[str, Figure]
    digest: str

    @property
    def queues(self) -> dict[str, str]:
        """The in-order queue of each engine."""
        return {name: engine.queue for name, engine in self.engines.items() if engine.kind != "scalar"}

    @property
    def on_chip(self) -> dict[str, int]:
        """Bytes of each memory that the scheduler places buffers in."""
        return {name: memory.bytes for name, memory in self.memories.items() if memory.on_chip}

    def engine_of(self, kind: str) -> Engine:
        """The engine of that kind; every target has one matrix engine and one vector engine."""
        return next(engine for engine in self.engines.values() if engine.kind == kind)

    def assumed(self, prefixes: Iterable[str]) -> tuple[str, ...]:
        """The keys of assumed numbers at or below these prefixes, in the order of the file."""
        chosen = tuple(prefixes)
        return tuple(
            key
            for key, figure in self.figures.items()
            if figure.assumed and any(key == prefix or key.startswith(prefix + ".") for prefix in chosen)
        )
