"""What the scheduler needs to know about a machine, and the options of a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from npurt.target import Target

_UNIT = re.compile(r"(.+)(\.\d+)")


@dataclass(frozen=True, slots=True)
class Ways:
    """Engines that move a buffer from one on-chip memory to DDR (out) and from there (back)."""

    out: str
    back: str


@dataclass(frozen=True)
class Limits:
    """The scheduler's view of a target: one tile or core.

    queues: in-order queue of each engine. memory_bytes: size of each memory whose buffers are placed under a limit.
    barriers: physical barriers. slots: most producers, and most consumers, of one barrier; slots_total: of both
    together. ways: for each memory that can be spilled the engines to DDR and back. code: most bytes of one program,
    of each engine that has a limit.
    """

    queues: Mapping[str, str]
    memory_bytes: Mapping[str, int]
    barriers: int
    slots: int
    slots_total: int
    ways: Mapping[str, Ways] = field(default_factory=dict)
    code: Mapping[str, int] = field(default_factory=dict)

    def queue(self, engine: str) -> str | None:
        """The queue of a task's engine; a numbered unit (vector.1) has its own; None for an unknown engine."""
        if engine in self.queues:
            return self.queues[engine]
        unit = _UNIT.fullmatch(engine)
        return self.queues[unit[1]] + unit[2] if unit and unit[1] in self.queues else None

    def size(self, memory: str) -> int | None:
        """Bytes of a buffer's memory (ub.1: of one unit's instance); None where there is no limit."""
        unit = _UNIT.fullmatch(memory)
        return self.memory_bytes.get(unit[1] if unit and memory not in self.memory_bytes else memory)

    def program_code(self, engine: str) -> int | None:
        """Most bytes of one program of a task's engine (vector.1: as vector); None where there is no limit."""
        unit = _UNIT.fullmatch(engine)
        return self.code.get(unit[1] if unit and engine not in self.queues else engine)


def limits_of(target: Target) -> Limits:
    """The limits of one tile of a target."""
    barriers = target.barriers
    engines = {ends: route.engine for ends, route in target.routes.items()}
    ways = {
        memory: Ways(engines[memory, "ddr"], engines["ddr", memory])
        for memory in target.on_chip
        if (memory, "ddr") in engines and ("ddr", memory) in engines
    }
    code = {name: engine.program_code for name, engine in target.engines.items() if engine.program_code}
    return Limits(target.queues, target.on_chip, barriers.per_tile, barriers.most_each, barriers.slot_sum, ways, code)


@dataclass(frozen=True)
class ScheduleOptions:
    """How much memory is spent so that queues run beside each other.

    prefetch: by how many tasks in trace order a buffer that a transfer fills gets its memory before the transfer;
    overlap: the same for buffers that are computed. Where memory is short, less is taken there. With the defaults,
    streams of matrix products of one and of 128 rows came within 2 % of the busiest queue's own work, on a rough cost
    model without CMX pressure; more gained nothing.
    """

    prefetch: int = 12
    overlap: int = 6
