"""Indexed loads and stores as one GATHER or SCATTER each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuc.tasks import CopyOp, GatherOp, ScatterOp
from npuc.tile.moves import adjacent, stored_in_place
from npuc.tile.template import IN, OUT
from npuc.tile.trace import Gather, Scatter
from npuc.tile.views import View

if TYPE_CHECKING:
    from npuc.tile.lower import Lowering


def lower_gather(low: Lowering, op: Gather) -> None:
    """Rows by index, one DMA."""
    rows, table = _operands(low, op, op.out.shape)
    name = low.name(op.memory)
    target = stored_in_place(low, op.out, op.out.dtype, op.out.shape, (table, rows))
    if target is None:
        target = low.buffer(f"{name}{op.out.id}", op.out.dtype, op.out.shape, op.loc)
        low.made_by_task(op.out, target)
    kind = GatherOp(table.shape[op.axis], op.axis)
    low.emit(OUT if table.on_chip else IN, kind, (table, rows), (target,), f"gather {name}", op.loc)


def lower_scatter(low: Lowering, op: Scatter) -> None:
    """Rows by index, one DMA from where the tile lies on-chip."""
    source = low.settle(op.value, op.loc)
    rows, table = _operands(low, op, op.value.shape)
    if source.meets(table):  # rows of the array itself: read all of them before the first is written
        copy = low.buffer(f"scatter{op.value.id}", source.dtype, source.shape, op.loc)
        low.emit(OUT, CopyOp(), (source,), (copy,), "copy rows", op.loc)
        source = copy
    kind = ScatterOp(table.shape[op.axis], op.axis)
    low.emit(OUT, kind, (source, rows), (table,), f"scatter {low.name(op.memory)}", op.loc)


def _operands(low: Lowering, op: Gather | Scatter, shape: tuple[int, ...]) -> tuple[View, View]:
    """The numbers as an adjacent vector, and the part of the array that has all its rows."""
    rows = adjacent(low, low.settle(op.rows, op.loc), "rows", op.loc)
    if len(rows.shape) != 1:
        rows = replace(rows, shape=(1,), stride=(rows.dtype.nbytes,))
    table = low.view(op.memory)
    whole = (*shape[: op.axis], table.shape[op.axis], *shape[op.axis + 1 :])
    return rows, table.part(op.index, whole)
