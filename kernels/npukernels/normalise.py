"""Functions of whole rows: softmax, RMS norm and layer norm over the last axis. All compute in f32."""

from npuc import tile as t
from npukernels.blocks import blocks, load_block

Block = tuple[int, ...]


def softmax_rows(x: t.Tile, sink: t.Tile | None = None) -> t.Tile:
    """Softmax over the last axis; a row of -inf gives zeros. sink: score of a further column, not returned."""
    last = x.rank - 1
    top = t.max(x, last)
    if sink is not None:
        top = t.where(sink > top, sink, top)
    top = t.where(top == float("-inf"), 0.0, top)
    weights = t.exp(x - top)
    total = t.sum(weights, last)
    if sink is not None:
        total = total + t.exp(sink - top)
    return weights / t.where(total == 0.0, 1.0, total)


@t.kernel
def softmax(x: t.Array, out: t.Array, *, tile: Block, log: bool = False) -> None:
    """out = softmax of x over the last axis, or its logarithm. tile: block sizes; the last axis is taken whole."""
    index = blocks(x.shape, (*tile[:-1], x.shape[-1]))
    rows = t.load(x, index, (*tile[:-1], x.shape[-1]))
    if log:
        shifted = rows - t.max(rows, rows.rank - 1)
        t.store(out, index, shifted - t.log(t.sum(t.exp(shifted), rows.rank - 1)))
    else:
        t.store(out, index, softmax_rows(rows))


@t.kernel
def rmsnorm(
    x: t.Array, weight: t.Array, out: t.Array, residual: t.Array | None = None, total: t.Array | None = None,
    *, eps: float, tile: Block,
) -> None:  # fmt: skip
    """out = y * rsqrt(mean(y^2) + eps) * weight[N] over the last axis of y = x + residual.

    residual, total: arrays like x, or both None; y, rounded to total's type, is stored in `total` and normalised.
    tile: block sizes; the last axis is taken whole.
    """
    width = x.shape[-1]
    size = (*tile[:-1], width)
    index = blocks(x.shape, size)
    rows = t.load(x, index, size)
    if residual is not None and total is not None:
        rows = (rows + t.load(residual, index, size)).cast(total.dtype)
        t.store(total, index, rows)
    scaled = rows * t.rsqrt(t.sum(rows * rows, rows.rank - 1) / float(width) + eps)
    t.store(out, index, scaled * load_block(weight, index, size))


def _layernorm(x: t.Array, weight: t.Array, bias: t.Array | None, out: t.Array, eps: float, tile: Block) -> None:
    width = x.shape[-1]
    size = (*tile[:-1], width)
    index = blocks(x.shape, size)
    rows = t.load(x, index, size)
    centred = rows - t.sum(rows, rows.rank - 1) / float(width)
    result = centred * t.rsqrt(t.sum(centred * centred, rows.rank - 1) / float(width) + eps)
    result = result * load_block(weight, index, size)
    t.store(out, index, result if bias is None else result + load_block(bias, index, size))


@t.kernel
def layernorm(x: t.Array, weight: t.Array, bias: t.Array, out: t.Array, *, eps: float, tile: Block) -> None:
    """out = (x - mean) * rsqrt(variance + eps) * weight[N] + bias[N] over the last axis."""
    _layernorm(x, weight, bias, out, eps, tile)


@t.kernel
def layernorm_plain(x: t.Array, weight: t.Array, out: t.Array, *, eps: float, tile: Block) -> None:
    """layernorm without a bias."""
    _layernorm(x, weight, None, out, eps, tile)
