"""The transfers of a program as the columns that `npurt.timing` prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuc.tasks.graph import CopyOp, FillOp, GatherOp, Region, ScatterOp, Task
from npurt.target.model import Route, Target
from npurt.timing.transfers import Moves


def kind_of(name: str, known: Mapping[str, object]) -> str:
    """The name of an engine or a memory without the number of its unit."""
    stem, _, unit = name.rpartition(".")
    return stem if name not in known and unit.isdigit() else name


def moves_of(tasks: Sequence[Task], step: Mapping[str, int], target: Target) -> Moves:
    """The first pair of each: what feeds several destinations moves the same bytes to each of them."""
    rank = max((region.rank for task in tasks for region in (*task.reads, *task.writes)), default=1)
    routes: dict[Route, int] = {}
    views: list[tuple[tuple[int, ...], ...]] = []  # size, valid, strides of the source, of the sink
    rows: list[tuple[int, ...]] = []  # bytes of an element at either end, has_source, clears, gathered, route
    for task in tasks:
        sink = task.writes[0]
        source = sink if isinstance(task.op, FillOp) else task.reads[0]
        op = task.op
        moved = source if isinstance(op, ScatterOp) else sink
        size, valid = list(moved.shape), list(moved.shape)
        if isinstance(op, CopyOp) and op.valid is not None:
            extent = step[op.valid.field] + op.valid.add
            valid[op.row_dim] = min(max(extent, 0), size[op.row_dim])
        strides = [source.stride, sink.stride]
        if isinstance(op, (GatherOp, ScatterOp)):  # of rows chosen one by one no two touch
            side = int(isinstance(op, ScatterOp))
            strides[side] = (*strides[side][: op.row_dim], -1, *strides[side][op.row_dim + 1 :])
        views.append((_padded(size, rank, 1), _padded(valid, rank, 1), *(_padded(each, rank, 0) for each in strides)))
        gathered = moved.shape[op.row_dim] if isinstance(op, (GatherOp, ScatterOp)) else 0
        route = routes.setdefault(_route(task, source, sink, target), len(routes))
        has_source, clears = not isinstance(op, FillOp), sink.buffer.memory != "ddr"
        rows.append((source.dtype.nbytes, sink.dtype.nbytes, has_source, clears, gathered, route))
    size_, valid_, source_stride, sink_stride = np.array(views, np.int64).reshape(-1, 4, rank).swapaxes(0, 1)
    source_item, sink_item, with_source, clearing, gathers, numbers = np.array(rows, np.int64).reshape(-1, 6).T
    return Moves(
        size_, valid_, source_stride, sink_stride, source_item, sink_item, with_source.astype(np.bool_),
        clearing.astype(np.bool_), gathers, numbers, tuple(routes),
    )  # fmt: skip


def _route(task: Task, source: Region, sink: Region, target: Target) -> Route:
    """A fill is priced by its engine's first way to the memory."""
    to = kind_of(sink.buffer.memory, target.memories)
    if isinstance(task.op, FillOp):
        engine = target.engines[kind_of(task.engine, target.engines)]
        return target.routes[engine.reads[0], to]
    return target.routes[kind_of(source.buffer.memory, target.memories), to]


def _padded(values: Sequence[int], rank: int, neutral: int) -> tuple[int, ...]:
    return (neutral,) * (rank - len(values)) + tuple(values)
