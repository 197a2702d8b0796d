"""What transfers cost: bytes over routes, contiguous pieces, zero-filled tails, gathers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npurt.abi.dtypes import DType
from npurt.abi.records import BaseKind, DmaOp, Queue
from npurt.target.model import Route, Target

_BY_CODE = {int(dtype): dtype.bits for dtype in DType}
ITEM_BITS = np.array([_BY_CODE.get(code, 0) for code in range(max(DType) + 1)], np.int64)
ITEM_BYTES = ITEM_BITS // 8


@dataclass(frozen=True)
class Moves:
    """Transfers by columns, [n] each, views [n, rank]; extents in elements, strides in bytes.

    size: the whole of the destination; valid: what is read. has_source: False for fills. clears: what is not valid is
    zero-filled. gathered: rows of a gather, 0 for other transfers. route: number among `routes`.
    """

    size: np.ndarray
    valid: np.ndarray
    source_stride: np.ndarray
    sink_stride: np.ndarray
    source_item: np.ndarray
    sink_item: np.ndarray
    has_source: np.ndarray
    clears: np.ndarray
    gathered: np.ndarray
    route: np.ndarray
    routes: tuple[Route, ...]


@dataclass(frozen=True)
class Transfers:
    """Of each transfer: bytes read and written (valid ones alone, as they lie in memory), seconds of latency and of
    transfer at the full rate, and the number of its route among `routes`."""

    read: np.ndarray
    written: np.ndarray
    latency: np.ndarray
    seconds: np.ndarray
    route: np.ndarray
    routes: tuple[Route, ...]


def transfer_costs(moves: Moves, target: Target) -> Transfers:
    """Each at its route's rate, in whole granules; a fill and a cleared tail at the engine's own rate."""
    whole, valid = moves.size.prod(1), moves.valid.prod(1)
    read, written = np.where(moves.has_source, valid * moves.source_item, 0), valid * moves.sink_item
    granule = _of_route(moves, [way.granule for way in moves.routes])
    moved = np.maximum(
        _rounded(moves.valid, moves.source_stride, moves.source_item, granule),
        _rounded(moves.valid, moves.sink_stride, moves.sink_item, granule),
    )
    rate = _of_route(moves, [way.rate for way in moves.routes])
    latency = _of_route(moves, [way.latency for way in moves.routes])
    engines = [target.engines[way.engine] for way in moves.routes]
    fill = _of_route(moves, [engine.fill_rate or way.rate for engine, way in zip(engines, moves.routes, strict=True)])
    cleared = np.where(moves.clears, (whole - valid) * moves.sink_item, 0)
    seconds = np.where(moves.has_source, moved / rate, written / fill) + cleared / fill
    # a gather's first request is a transfer as any other; the next ones go as far as so many may be in flight
    rows = _of_route(moves, [engine.gather_rows for engine in engines])
    requests = np.where((rows > 0) & (moves.gathered > 0), -(-moves.gathered // np.maximum(rows, 1)) - 1, 0)
    flying = _of_route(moves, [engine.outstanding for engine in engines])
    seconds = np.maximum(seconds, requests / np.maximum(flying, 1) * latency)
    largest = _of_route(moves, [engine.max_bytes for engine in engines])
    pieces = np.where(largest > 0, -(-np.maximum(read, written) // np.maximum(largest, 1)), 1)
    return Transfers(read, written, latency * np.maximum(pieces, 1), seconds, moves.route, moves.routes)


def record_moves(records: np.ndarray, kinds: np.ndarray, target: Target) -> Moves:
    """records: [n] DMA with `valid` as it is in this step. kinds: of each base."""
    size = records["size"].astype(np.int64)
    valid = size.copy()
    valid[np.arange(len(records)), records["row_dim"]] = records["valid"]
    indexed = (records["op"] == DmaOp.GATHER) | (records["op"] == DmaOp.SCATTER)
    routes, route = _routes(records, kinds, target)
    return Moves(
        size, valid, records["src_stride"], records["dst_stride"], ITEM_BYTES[records["src_type"]],
        ITEM_BYTES[records["dst_type"]], records["op"] != DmaOp.FILL, records["queue"] == Queue.DMA_IN,
        np.where(indexed, records["valid"], 0).astype(np.int64), route, routes,
    )  # fmt: skip


def _routes(records: np.ndarray, kinds: np.ndarray, target: Target) -> tuple[tuple[Route, ...], np.ndarray]:
    """The routes in use, and the number of each record's. A fill starts in its queue's own source memory."""
    on_chip = np.append(kinds == BaseKind.CMX, False)  # the place of NO_BASE
    last = len(kinds)
    filled, outward = records["op"] == DmaOp.FILL, records["queue"] == Queue.DMA_OUT
    source = np.where(filled, outward, on_chip[np.minimum(records["src_base"], last)])
    code = 2 * source + on_chip[np.minimum(records["dst_base"], last)]
    codes, route = np.unique(code.astype(np.int64), return_inverse=True)
    memories = ("ddr", "cmx")
    return tuple(target.routes[memories[c >> 1], memories[c & 1]] for c in codes.tolist()), route


def _of_route(moves: Moves, values: list[float] | list[int]) -> np.ndarray:
    return np.asarray(np.array(values or [0.0])[moves.route])


def _rounded(size: np.ndarray, stride: np.ndarray, item: np.ndarray, granule: np.ndarray) -> np.ndarray:
    """Bytes of a strided view when each contiguous piece is a multiple of the granule. size, stride: [n, rank]."""
    piece, dense = item.copy(), np.ones(len(size), np.bool_)
    for dim in range(size.shape[1] - 1, -1, -1):
        many = size[:, dim] > 1
        dense &= ~many | (stride[:, dim] == piece)
        piece = np.where(dense & many, piece * size[:, dim], piece)
    count = size.prod(1) * item // np.maximum(piece, 1)
    return np.asarray(count * -(-piece // granule) * granule, np.int64)
