"""The base table: one row per piece of memory, so that binding a buffer patches one record and no task.

Rows: the scratchpad, the weights, the DDR scratch, the step block, the states in order, then the inputs and outputs of
each entry. A row's symbol says who gives the address. `step.n_past` and `step.n_new` are symbols without a row: their
value is the byte offset of the field in the step block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.emit.elf import Symbol
from npuc.emit.errors import EmitError
from npuc.emit.pool import ConstPlan, Placed, const_sizes
from npuc.graph.entry import StateSpec
from npuc.tasks.graph import Buffer, Role
from npuc.tasks.program import EntryProgram
from npurt.abi import blob
from npurt.abi.dtypes import DType
from npurt.abi.records import BASE, STEP_BYTES, BaseKind, Step

CMX, CONST, SCRATCH, STEP, FIRST_STATE = range(5)
STEP_FIELDS = {"n_past": Step.N_PAST, "n_new": Step.N_NEW}
CMX_SYMBOL, WEIGHTS_SYMBOL, SCRATCH_SYMBOL, STEP_SYMBOL = "cmx0", "weights", "scratch", "step"
_PORT_ROLES = {Role.INPUT: BaseKind.INPUT, Role.OUTPUT: BaseKind.OUTPUT}


@dataclass(frozen=True)
class Base:
    """One row before it has a symbol index: size in bytes; 0 for the weights, whose size comes last."""

    symbol: str
    kind: BaseKind
    size: int


@dataclass(frozen=True)
class BaseTable:
    """rows, and for each entry the range of its own ports (first, count)."""

    rows: list[Base]
    ports: list[tuple[int, int]]

    def of(self, buffer: Buffer, offsets: Mapping[Buffer, int], entry: str) -> tuple[int, int]:
        """Row and byte offset of a buffer's first byte; for a CONST the offset is the constant's own, 0."""
        if buffer.role is Role.CONST:
            return CONST, 0
        if buffer.role is Role.STEP:
            return STEP, 0
        if buffer.role is Role.LOCAL:
            if buffer.memory not in _LOCAL:
                raise EmitError(
                    f"entry {entry}, buffer {buffer.name}: memory {buffer.memory!r} has no base in a blob of version "
                    f"{blob.ABI_MAJOR}.{blob.ABI_MINOR}; local buffers lie in {' or '.join(_LOCAL)}"
                )
            return _LOCAL[buffer.memory], offsets[buffer]
        for row, base in enumerate(self.rows):
            if base.symbol == buffer.name:
                if base.size != buffer.nbytes:
                    raise EmitError(
                        f"entry {entry}, buffer {buffer.name}: {buffer.nbytes} bytes in the tasks, "
                        f"{base.size} in states and metadata"
                    )
                return row, 0
        known = ", ".join(base.symbol for base in self.rows[FIRST_STATE:]) or "none"
        raise EmitError(
            f"entry {entry}, buffer {buffer.name}: no {buffer.role.value} of that name in states and metadata; "
            f"there are: {known}"
        )


_LOCAL = {"cmx": CMX, "ddr": SCRATCH}


def plan_bases(programs: Sequence[EntryProgram], states: Sequence[StateSpec], metadata: Mapping[str, Any]) -> BaseTable:
    """The rows. metadata: as `npuc.report.metadata` builds it; its entries stand in the order of the programs."""
    names = [entry["name"] for entry in metadata["entries"]]
    labels = [program.entry for program in programs]
    if names != labels or len(set(labels)) != len(labels):
        raise EmitError(
            f"entries of the metadata: {', '.join(names)}; of the programs: {', '.join(labels)}; "
            "the same were expected, in one order and each once"
        )
    rows = [
        Base(CMX_SYMBOL, BaseKind.CMX, max((program.cmx_peak for program in programs), default=0)),
        Base(WEIGHTS_SYMBOL, BaseKind.CONST, 0),
        Base(SCRATCH_SYMBOL, BaseKind.SCRATCH, max((program.scratch_bytes for program in programs), default=0)),
        Base(STEP_SYMBOL, BaseKind.STEP, STEP_BYTES),
    ]
    rows += [Base(f"state.{s.id}", BaseKind.STATE, _nbytes(s.shape, s.dtype)) for s in states]
    ports = []
    for entry in metadata["entries"]:
        first = len(rows)
        for way, kind, key in (("in", BaseKind.INPUT, "inputs"), ("out", BaseKind.OUTPUT, "outputs")):
            for port in entry[key]:
                size = _nbytes(port["shape"], DType[port["dtype"].upper()])
                rows.append(Base(f"{entry['name']}.{way}.{port['name']}", kind, size))
        ports.append((first, len(rows) - first))
    symbols = [base.symbol for base in rows]
    if len(set(symbols)) != len(symbols):
        twice = sorted({symbol for symbol in symbols if symbols.count(symbol) > 1})
        raise EmitError(f"two states or ports have one name: {', '.join(twice)}")
    return BaseTable(rows, ports)


def symbols_of(table: BaseTable, plan: ConstPlan, placed: Placed) -> list[Symbol]:
    """All symbols, locals first: the two sections and the constants by key; then what device and caller provide."""
    local = [
        Symbol(WEIGHTS_SYMBOL, 0, placed.size, blob.NAME_WEIGHTS, local=True),
        Symbol(SCRATCH_SYMBOL, 0, table.rows[SCRATCH].size, blob.NAME_SCRATCH, local=True),
    ]
    for const, offset, size in zip(plan.consts, placed.offsets.tolist(), const_sizes(plan.consts), strict=True):
        local.append(Symbol(f"const.{const.key}", offset, size, blob.NAME_WEIGHTS, local=True))
    defined = {WEIGHTS_SYMBOL, SCRATCH_SYMBOL}
    bound = [Symbol(base.symbol, 0, base.size) for base in table.rows if base.symbol not in defined]
    fields = [Symbol(f"step.{name}", index * 4, 4, "*ABS*") for name, index in STEP_FIELDS.items()]
    return [*local, *bound, *fields]


def base_rows(table: BaseTable, symbols: Sequence[Symbol], placed: Placed) -> np.ndarray:
    """The table as written; addresses are 0 until relocated."""
    index = {symbol.name: i + 1 for i, symbol in enumerate(symbols)}
    rows = np.zeros(len(table.rows), BASE)
    rows["size"] = [base.size for base in table.rows]
    rows["size"][CONST] = placed.size
    rows["kind"] = [base.kind for base in table.rows]
    rows["symbol"] = [index[base.symbol] for base in table.rows]
    return rows


def _nbytes(shape: Sequence[int], dtype: DType) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.nbytes
