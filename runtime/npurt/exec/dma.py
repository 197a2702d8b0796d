"""Executes DMA records: copies with conversion, fills, gathers, scatters; valid rows and zero-filled tails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.abi.records import DMA, DmaOp, Queue
from npurt.exec.memory import Bases

Array = np.ndarray


def prepare_dma(record: np.void, bases: Bases) -> Callable[[], None]:
    """A call that does what one record of npurt.abi.records.DMA says, on the memory behind `bases`."""
    fields = dict(zip(DMA.names or (), record.tolist(), strict=True))
    size, row_dim, valid = tuple(fields["size"].tolist()), fields["row_dim"], fields["valid"]
    dst_type = DType(fields["dst_type"])
    loads = fields["queue"] == Queue.DMA_IN
    if fields["op"] == DmaOp.SCATTER:
        return _prepare_scatter(fields, bases)
    memory, offset = bases(fields["dst_base"], fields["dst_offset"])
    extent = size if loads else _with(size, row_dim, valid)
    target: Array = np.ndarray(extent, dst_type.storage, memory, offset, tuple(fields["dst_stride"].tolist()))
    head, tail = _split(target, row_dim, valid)
    clears = tail.size > 0

    if fields["op"] == DmaOp.FILL:
        bits = np.array([fields["fill"], 0], "<u4").view(dst_type.storage)[0]

        def fill() -> None:
            head[...] = bits
            if clears:
                tail[...] = 0

        return fill

    src_type = DType(fields["src_type"])
    rows = fields["index_bound"] if fields["op"] == DmaOp.GATHER else valid
    memory, offset = bases(fields["src_base"], fields["src_offset"])
    source: Array = np.ndarray(
        _with(size, row_dim, rows), src_type.storage, memory, offset, tuple(fields["src_stride"].tolist())
    )
    if fields["op"] == DmaOp.GATHER:
        memory, offset = bases(fields["index_base"], fields["index_offset"])
        index: Array = np.ndarray((valid,), np.dtype("<i4"), memory, offset)
        return _gather(source, index, src_type, head, tail, dst_type, row_dim)
    if src_type is dst_type and not clears:
        return lambda: np.copyto(head, source)
    if src_type is dst_type:

        def copy() -> None:
            np.copyto(head, source)
            tail[...] = 0

        return copy

    def convert() -> None:
        head[...] = numerics.store(numerics.load(source, src_type), dst_type)
        if clears:
            tail[...] = 0

    return convert


def _gather(
    source: Array, index: Array, src_type: DType, head: Array, tail: Array, dst_type: DType, row_dim: int
) -> Callable[[], None]:
    bound = source.shape[row_dim]
    per_row = tuple(-1 if dim == row_dim else 1 for dim in range(source.ndim))

    def gather() -> None:
        inside = (index >= 0) & (index < bound)
        if bound:
            rows = np.take(source, np.where(inside, index, 0), axis=row_dim)
            values = numerics.store(numerics.load(rows, src_type), dst_type)
            head[...] = np.where(inside.reshape(per_row), values, np.zeros((), dst_type.storage))
        else:
            head[...] = 0
        if tail.size:
            tail[...] = 0

    return gather


def _prepare_scatter(fields: dict[str, Any], bases: Bases) -> Callable[[], None]:
    """The first `valid` rows of src to the rows of dst that the index names."""
    size, row_dim, valid = tuple(fields["size"].tolist()), fields["row_dim"], fields["valid"]
    sides: list[Array] = []
    for side, rows in (("src", valid), ("dst", fields["index_bound"])):
        memory, offset = bases(fields[f"{side}_base"], fields[f"{side}_offset"])
        stride = tuple(fields[f"{side}_stride"].tolist())
        sides.append(
            np.ndarray(_with(size, row_dim, rows), DType(fields[f"{side}_type"]).storage, memory, offset, stride)
        )
    source, target = (np.moveaxis(side, row_dim, 0) for side in sides)
    memory, offset = bases(fields["index_base"], fields["index_offset"])
    index: Array = np.ndarray((valid,), np.dtype("<i4"), memory, offset)
    src_type, dst_type = DType(fields["src_type"]), DType(fields["dst_type"])

    def scatter() -> None:
        rows = last_rows(index, target.shape[0])
        values = source[rows]
        if src_type is not dst_type:
            values = numerics.store(numerics.load(values, src_type), dst_type)
        target[index[rows]] = values

    return scatter


def last_rows(index: Array, bound: int) -> Array:
    """The places in an index whose rows stay after a scatter: inside [0, bound), of equal ones the last."""
    places = np.flatnonzero((index >= 0) & (index < bound))[::-1]
    return np.sort(places[np.unique(index[places], return_index=True)[1]])


def _with(size: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    return (*size[:dim], extent, *size[dim + 1 :])


def _split(target: Array, dim: int, valid: int) -> tuple[Array, Array]:
    """The valid rows of a view, and the rest."""
    before = (slice(None),) * dim
    return target[(*before, slice(0, valid))], target[(*before, slice(valid, None))]
