"""A machine as data: what a target file says, in SI units (bytes, seconds, hertz, bytes per second)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """One memory. bytes: what a program may use, of one instance; align: of the first byte of a buffer.

    per: "device", or the unit that owns an instance ("tile", "core", "vector core"). on_chip: placed by the scheduler.
    """

    name: str
    bytes: int
    align: int
    per: str
    on_chip: bool


@dataclass(frozen=True)
class Engine:
    """One in-order queue and what serves it, in each tile or core.

    kind: "dma", "matrix", "vector". count: how many units serve the queue at once. clock: hertz. reads, writes: the
    memories of its operands. launch: seconds of fixed cost per task. macs_per_cycle: by operand type, matrix engines.
    bytes_per_cycle: vector engines. max_bytes: of one descriptor (0: no limit). outstanding: requests in flight.
    """

    name: str
    queue: str
    kind: str
    count: int
    clock: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    launch: float
    macs_per_cycle: Mapping[str, int]
    bytes_per_cycle: int
    max_bytes: int
    outstanding: int


@dataclass(frozen=True)
class Route:
    """A way from one memory to another. rate: bytes per second of one engine; latency: seconds of each transfer."""

    source: str
    destination: str
    engine: str
    rate: float
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
class Target:
    """One machine. tiles: tiles or cores of the device. digest: SHA-256 of the file, hex, for caches."""

    name: str
    description: str
    tiles: int
    memories: Mapping[str, Memory]
    engines: Mapping[str, Engine]
    routes: Mapping[tuple[str, str], Route]
    barriers: Barriers
    matrix: MatrixRules
    digest: str

    @property
    def queues(self) -> dict[str, str]:
        """The in-order queue of each engine."""
        return {name: engine.queue for name, engine in self.engines.items()}

    @property
    def on_chip(self) -> dict[str, int]:
        """Bytes of each memory that the scheduler places buffers in."""
        return {name: memory.bytes for name, memory in self.memories.items() if memory.on_chip}
