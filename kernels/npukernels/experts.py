"""Mixtures of experts: the chosen experts' weights by indexed loads, or every expert over all rows."""

from collections.abc import Callable, Iterator

from npuc import tile as t
from npukernels.normalise import softmax_rows

Activation = Callable[[t.Tile, t.Tile | None], t.Tile]
"""Of the first products of an expert the hidden layer: gate and up [.., F] f32, no up where there is but one."""


@t.kernel
def topk(x: t.Array, values: t.Array | None, indices: t.Array | None, *, tile: tuple[int, ...]) -> None:
    """values[.., k], indices[.., k] i32: the k largest of each row of x[.., N], in falling order, the lowest of ties.

    tile: block sizes; the last axis is taken whole.
    """
    sizes = (*tile[:-1], x.shape[-1])
    ids = t.programs(*(t.cdiv(extent, size) for extent, size in zip(x.shape, sizes, strict=True)))
    index = tuple(number * size for number, size in zip(ids, sizes, strict=True))
    outputs = [array for array in (values, indices) if array is not None]
    found = t.topk(t.load(x, index, sizes), outputs[0].shape[-1], x.rank - 1)
    for array, result in zip((values, indices), found, strict=True):
        if array is not None:
            t.store(array, (*index[:-1], 0), result)


@t.kernel
def route(x: t.Array, weights: t.Array, indices: t.Array, *, before: bool, after: str, tile: tuple[int, ...]) -> None:
    """indices[T, k] i32: the k largest of each row of x[T, E]; weights[T, k]: their scores.

    before: scores are the softmax of the row, else the row. after: "softmax" of the k scores, "sum": divided by it, ""
    as they are. tile: block sizes; the last axis is taken whole.
    """
    (i,) = t.programs(t.cdiv(x.shape[0], tile[0]))
    rows = t.load(x, (i * tile[0], 0), (tile[0], x.shape[1]))
    best, places = t.topk(softmax_rows(rows) if before else rows, indices.shape[1], 1)
    if after:
        best = softmax_rows(best) if after == "softmax" else best / t.sum(best, 1)
    t.store(weights, (i * tile[0], 0), best)
    t.store(indices, (i * tile[0], 0), places)


@t.kernel
def argmax(x: t.Array, out: t.Array, *, tile: tuple[int, ...], least: bool = False) -> None:
    """out[.., 1] i32: the place of the largest (least: of the smallest) of each row of x[.., N], the lowest of ties."""
    sizes = (*tile[:-1], x.shape[-1])
    ids = t.programs(*(t.cdiv(extent, size) for extent, size in zip(x.shape, sizes, strict=True)))
    index = tuple(number * size for number, size in zip(ids, sizes, strict=True))
    t.store(out, index, (t.argmin if least else t.argmax)(t.load(x, index, sizes), x.rank - 1))


@t.kernel
def moe_chosen(
    x: t.Array, indices: t.Array, weights: t.Array, gate: t.Array, up: t.Array | None, down: t.Array,
    gate_bias: t.Array | None, up_bias: t.Array | None, down_bias: t.Array | None, out: t.Array,
    *, activation: Activation, bf: int, bn: int,
) -> None:  # fmt: skip
    """out[T, N] = sum over j of weights[T, k] * expert(indices[T, k])(x[T, K]), a program for each row.

    gate, up [E, F, K], down [E, N, F], biases f32. Only the chosen experts' weights are loaded, those of all k experts
    with one transfer for each block: bf rows of gate and up, bn of down.
    """
    (i,) = t.programs(x.shape[0])
    k, width, columns = indices.shape[1], gate.shape[2], down.shape[1]
    row = t.reshape(t.load(x, (i, 0), (1, width)).cast(gate.dtype), (1, 1, width))
    chosen = t.reshape(t.load(indices, (i, 0), (1, k)), (k,))

    def layer(a: t.Tile, stack: t.Array, bias: t.Array | None, block: int) -> t.Tile:
        """The products of `a` with the chosen matrices [k, 1, rows of a matrix], f32."""
        results = t.scratch((k, 1, stack.shape[1]))
        for first in t.range(0, stack.shape[1], block, stages=2):
            rows = t.clipped(stack, (0, first, 0), (1, block, stack.shape[2]))[1]
            t.store(results, (0, 0, first), t.mma(a, t.load(stack, (chosen, first, 0), (k, rows, stack.shape[2]))))
        made = t.load(results, (0, 0, 0), results.shape)
        if bias is None:
            return made
        return made + t.reshape(t.load(bias, (chosen, 0), (k, stack.shape[1])), results.shape)

    first = layer(row, gate, gate_bias, bf)
    hidden = activation(first, None if up is None else layer(row, up, up_bias, bf)).cast(down.dtype)
    results = layer(hidden, down, down_bias, bn)
    share = t.reshape(t.load(weights, (i, 0), (1, k)), (k, 1, 1))
    t.store(out, (i, 0), t.reshape(t.sum(results * share, 0), (1, columns)))


@t.kernel
def moe_all(
    x: t.Array, indices: t.Array, weights: t.Array, gate: t.Array, up: t.Array | None, down: t.Array,
    gate_bias: t.Array | None, up_bias: t.Array | None, down_bias: t.Array | None, out: t.Array,
    *, activation: Activation, skip: bool, cut: bool, bm: int, bf: int, bn: int,
) -> None:  # fmt: skip
    """As moe_chosen: every expert over blocks of bm rows, where the other rows have the share 0.

    skip: an expert that no row has chosen does nothing, by a flag on the device. cut: rows from step.n_new on are
    padding and choose no expert (their results are of no use to anybody).
    """
    (i,) = t.programs(t.cdiv(x.shape[0], bm))
    i, (experts, depth, width), columns = i * bm, gate.shape, down.shape[1]
    bm = t.clipped(x, (i, 0), (bm, width))[0]
    rows = t.load(x, (i, 0), (bm, width)).cast(gate.dtype)
    shares, flags = t.scratch((bm, experts)), t.scratch((1, experts), t.i32)
    share, used = _shares(indices, weights, i, bm, experts, cut)
    t.store(shares, (0, 0), share)
    if skip:
        t.store(flags, (0, 0), used)
    sums = [t.accumulator((bm, size), init=0) for _, size in _blocks(columns, bn)]

    def expert(e: int) -> None:
        hidden = activation(layer(e, gate, gate_bias), None if up is None else layer(e, up, up_bias))
        part = t.load(shares, (0, e), (bm, 1))
        mine = t.where(part != 0.0, hidden * part, 0.0).cast(down.dtype)  # what others overflow to must not leak
        for total, (first, size) in zip(sums, _blocks(columns, bn), strict=True):
            t.mma(mine, t.reshape(t.load(down, (e, first, 0), (1, size, depth)), (size, depth)), acc=total)

    def layer(e: int, stack: t.Array, bias: t.Array | None) -> t.Tile:
        results = t.scratch((bm, depth))
        for first, size in _blocks(depth, bf):
            part = t.reshape(t.load(stack, (e, first, 0), (1, size, width)), (size, width))
            t.store(results, (0, first), t.mma(rows, part))
        made = t.load(results, (0, 0), (bm, depth))
        return made if bias is None else made + t.load(bias, (e, 0), (1, depth))

    for e in range(experts):
        if skip:
            with t.when(t.load(flags, (0, e), (1, 1))):
                expert(e)
        else:
            expert(e)
    for total, (first, size) in zip(sums, _blocks(columns, bn), strict=True):
        made = total.read()
        if down_bias is not None:
            made = made + t.mma(
                t.load(shares, (0, 0), shares.shape), t.load(down_bias, (0, first), (experts, size)), kn=True
            )
        t.store(out, (i, first), made)


def _blocks(extent: int, block: int) -> Iterator[tuple[int, int]]:
    """First and size of each block."""
    return ((first, min(block, extent - first)) for first in range(0, extent, block))


def _shares(indices: t.Array, weights: t.Array, i: t.Index, bm: int, experts: int, cut: bool) -> tuple[t.Tile, t.Tile]:
    """f32 [bm, E]: what share of a row each expert has; i32 [1, E]: whether any row has chosen it."""
    k = indices.shape[1]
    numbers = t.reshape(t.load(indices, (i, 0), (bm, k)), (bm, k, 1))
    hits = numbers == t.iota((1, 1, experts), 2)
    share = t.sum(t.where(hits, t.reshape(t.load(weights, (i, 0), (bm, k)), (bm, k, 1)), 0.0), 1)
    if cut:
        hits = hits & (t.iota((bm, 1, 1), 0) + i < t.step.n_new)
    used = t.max(t.reshape(hits.cast(t.i32), (bm * k, experts)), 0)
    return t.reshape(share, (bm, experts)), used
