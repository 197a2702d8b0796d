"""What DMA records cost: bytes over routes, pieces, zero-filled tails, gathers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npurt.abi.dtypes import DType
from npurt.abi.records import BaseKind, DmaOp, Queue
from npurt.target.model import Engine, Route, Target

ITEM_BYTES = np.array([0, *(dtype.nbytes for dtype in DType)], np.int64)


@dataclass(frozen=True)
class Transfers:
    """Of each record: bytes read and written (valid rows alone, as they lie in memory), seconds of latency and of
    transfer at the full rate, and the number of its route among `routes`."""

    read: np.ndarray
    written: np.ndarray
    latency: np.ndarray
    seconds: np.ndarray
    route: np.ndarray
    routes: tuple[Route, ...]


def transfer_costs(records: np.ndarray, kinds: np.ndarray, target: Target, engines: tuple[Engine, Engine]) -> Transfers:
    """records: [n] DMA with `valid` as it is in this step. kinds: of each base. engines: of DMA_IN and DMA_OUT."""
    routes, route = _routes(records, kinds, target, engines)
    size = records["size"].astype(np.int64)
    row, at = records["row_dim"].astype(np.int64), np.arange(len(records))
    whole = size.prod(1)
    valid_size = size.copy()
    valid_size[at, row] = records["valid"]
    valid = valid_size.prod(1)
    source, sink = ITEM_BYTES[records["src_type"]], ITEM_BYTES[records["dst_type"]]
    has_source = records["op"] != DmaOp.FILL
    read, written = np.where(has_source, valid * source, 0), valid * sink
    granule = np.array([way.granule for way in routes])[route]
    moved = np.maximum(
        _rounded(valid_size, records["src_stride"], source, granule),
        _rounded(valid_size, records["dst_stride"], sink, granule),
    )
    rate = np.array([way.rate for way in routes])[route]
    fill = np.array([target.engines[way.engine].fill_rate or way.rate for way in routes])[route]
    cleared = np.where(records["queue"] == Queue.DMA_IN, (whole - valid) * sink, 0)
    seconds = np.where(has_source, moved / rate, written / fill) + cleared / fill
    latency = np.array([way.latency for way in routes])[route]
    largest = np.array([target.engines[way.engine].max_bytes for way in routes])[route]
    pieces = np.where(largest > 0, -(-np.maximum(read, written) // np.maximum(largest, 1)), 1)
    seconds = np.maximum(seconds, _requests(records, routes, route, target) * latency)
    return Transfers(read, written, latency * np.maximum(pieces, 1), seconds, route, routes)


def _routes(
    records: np.ndarray, kinds: np.ndarray, target: Target, engines: tuple[Engine, Engine]
) -> tuple[tuple[Route, ...], np.ndarray]:
    """The routes in use, and the number of each record's. A fill starts in its queue's own source memory."""
    outward = records["queue"] == Queue.DMA_OUT
    on_chip = np.append(kinds == BaseKind.CMX, False)  # the place of NO_BASE
    last = len(kinds)
    filled = records["op"] == DmaOp.FILL
    source = np.where(filled, outward, on_chip[np.minimum(records["src_base"], last)])
    code = 2 * source + on_chip[np.minimum(records["dst_base"], last)]
    memories = ("ddr", "cmx")
    codes, route = np.unique(code.astype(np.int64), return_inverse=True)
    ways = tuple(target.routes[memories[c >> 1], memories[c & 1]] for c in codes.tolist())
    assert all(way.engine in (engines[0].name, engines[1].name) for way in ways)
    return ways, route


def _rounded(size: np.ndarray, stride: np.ndarray, item: np.ndarray, granule: np.ndarray) -> np.ndarray:
    """Bytes of a strided view when each contiguous piece is a multiple of the granule. size, stride: [n, 4]."""
    piece, dense = item.copy(), np.ones(len(size), np.bool_)
    for dim in range(size.shape[1] - 1, -1, -1):
        many = size[:, dim] > 1
        dense &= ~many | (stride[:, dim] == piece)
        piece = np.where(dense & many, piece * size[:, dim], piece)
    count = size.prod(1) * item // piece
    return np.asarray(count * -(-piece // granule) * granule, np.int64)


def _requests(records: np.ndarray, routes: tuple[Route, ...], route: np.ndarray, target: Target) -> np.ndarray:
    """Of each gather: by how many latencies its requests are apart when the engine has all it can in flight."""
    found = np.zeros(len(records))
    for number, way in enumerate(routes):
        engine = target.engines[way.engine]
        if engine.gather_rows:
            chosen = (route == number) & (records["op"] == DmaOp.GATHER)
            found[chosen] = -(-records["valid"][chosen].astype(np.int64) // engine.gather_rows) / engine.outstanding
    return found
