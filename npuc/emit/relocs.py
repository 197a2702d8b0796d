"""Relocations: what the loader patches once (static), when buffers are bound (bind) and before each submit (step)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.emit.bases import CONST, SCRATCH, BaseTable
from npuc.emit.elf import Symbol
from npuc.emit.tables import StepPatch
from npurt.abi.blob import RELA, Reloc
from npurt.abi.records import BASE, DMA

# the field that a step relocation patches
STEP_FIELD = {Reloc.STEP_SRC: "src_offset", Reloc.STEP_DST: "dst_offset", Reloc.STEP_VALID: "valid"}


def static_relocations(table: BaseTable, symbols: Sequence[Symbol]) -> np.ndarray:
    """ABS64 for the bases that lie in a section of the blob."""
    return _base_relocations(table, symbols, [CONST, SCRATCH], Reloc.ABS64)


def bind_relocations(table: BaseTable, symbols: Sequence[Symbol]) -> np.ndarray:
    """BIND64 for every other base: the device gives scratchpad and step block, the caller states and ports."""
    rows = [row for row in range(len(table.rows)) if row not in (CONST, SCRATCH)]
    return _base_relocations(table, symbols, rows, Reloc.BIND64)


def step_relocations(patches: Sequence[StepPatch], dma: np.ndarray, symbols: Sequence[Symbol]) -> np.ndarray:
    """One row per patched field of .npu.dma, in table order. dma: the finished table, whose offsets are the addends."""
    index = _indices(symbols)
    assert DMA.fields is not None
    place = {int(type_): DMA.fields[name][1] for type_, name in STEP_FIELD.items()}
    row = np.array([patch.row for patch in patches], np.int64)
    kind = np.array([patch.type for patch in patches], np.int64)
    field = np.array([place[patch.type] for patch in patches], np.int64)
    symbol = np.array([index[f"step.{patch.step_field}"] for patch in patches], np.int64)
    addend = np.array([patch.add for patch in patches], np.int64)
    for type_ in (Reloc.STEP_SRC, Reloc.STEP_DST):
        chosen = kind == type_
        addend[chosen] = dma[STEP_FIELD[type_]][row[chosen]].astype(np.int64)
    return _rela(row * DMA.itemsize + field, symbol, kind, addend)


def _base_relocations(table: BaseTable, symbols: Sequence[Symbol], rows: list[int], type_: Reloc) -> np.ndarray:
    index = _indices(symbols)
    symbol = np.array([index[table.rows[row].symbol] for row in rows], np.int64)
    zeros = np.zeros(len(rows), np.int64)
    assert BASE.fields is not None
    return _rela(np.array(rows, np.int64) * BASE.itemsize + BASE.fields["address"][1], symbol, zeros + type_, zeros)


def _rela(offset: np.ndarray, symbol: np.ndarray, type_: np.ndarray, addend: np.ndarray) -> np.ndarray:
    rows = np.zeros(len(offset), RELA)
    rows["r_offset"] = offset
    rows["r_info"] = symbol.astype(np.uint64) << np.uint64(32) | type_.astype(np.uint64)
    rows["r_addend"] = addend
    return rows


def _indices(symbols: Sequence[Symbol]) -> dict[str, int]:
    return {symbol.name: i + 1 for i, symbol in enumerate(symbols)}
