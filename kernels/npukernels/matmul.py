"""Matrix products: linear layers, pairs of them that share their input, and products of activations."""

from collections.abc import Callable, Iterator, Sequence

from npuc import tile as t
from npukernels.blocks import blocks, load_block

Epilogue = Callable[..., t.Tile]


class _Rows:
    """Blocks of `size` rows of an array. The last one is kept: a walk along the other operand loads it once."""

    def __init__(self, array: t.Array, size: int) -> None:
        self.array, self.size = array, size
        self._first: t.Index | None = None

    def at(self, first: t.Index) -> t.Tile:
        """The rows from `first` on, over all columns."""
        if first is not self._first:
            self._first, self._tile = first, self.part(first, 0, self.array.shape[1])
        return self._tile

    def part(self, first: t.Index, column: int, columns: int) -> t.Tile:
        return t.load(self.array, (first, column), (self.size, columns))

    def count(self, first: t.Index) -> int:
        """Rows of the block from `first` on: fewer at the end of the array."""
        return t.clipped(self.array, (first, 0), (self.size, 1))[0]


def _product(x: _Rows, w: _Rows, table: _Rows | None, i: t.Index, j: t.Index, bk: int) -> t.Tile:
    """The block of x w^T at row i, column j; where bk < K in steps along K, summed on-chip."""
    k = x.array.shape[1]
    channels = None if table is None else table.at(j)
    if bk >= k:
        return t.mma(x.at(i), w.at(j), table=channels)
    acc = t.accumulator((x.count(i), w.count(j)))
    for first in t.range(0, k, bk, stages=2):
        t.mma(x.part(i, first, bk), w.part(j, first, bk), acc=acc)
    if channels is None:
        return acc.read()
    scale, bias = (t.transpose(channels[:, c : c + 1], (1, 0)) for c in (0, 1))
    return acc.read() * scale + bias


def _products(
    x: t.Array,
    weights: Sequence[t.Array],
    tables: Sequence[t.Array | None],
    sizes: tuple[int, int, int],
    outer: str,
) -> Iterator[tuple[tuple[t.Index, t.Index], list[t.Tile]]]:
    """For each block of this program: its row and column, and the block of x w^T for each w.

    outer: "n" walks along the rows of x with a block of each w at hand, "m" along the columns with a block of x.
    """
    bm, bn, bk = sizes
    m, n = x.shape[0], weights[0].shape[0]
    (p,) = t.programs(t.cdiv(n, bn) if outer == "n" else t.cdiv(m, bm))
    start = p * (bn if outer == "n" else bm)
    rows, columns = _Rows(x, bm), [_Rows(w, bn) for w in weights]
    channels = [None if table is None else _Rows(table, bn) for table in tables]
    for step in range(0, m, bm) if outer == "n" else range(0, n, bn):
        i, j = (step, start) if outer == "n" else (start, step)
        yield (i, j), [_product(rows, w, c, i, j, bk) for w, c in zip(columns, channels, strict=True)]


def _finish(
    results: Sequence[t.Tile], epilogue: Epilogue | None, extra: Sequence[t.Array], out: t.Array,
    index: Sequence[t.Index], size: Sequence[int],
) -> t.Tile:  # fmt: skip
    """epilogue(*results, *extra). Products are rounded to out's type first, as a graph stores them: vector code over
    16-bit operands runs in lanes of 16 bit."""
    if epilogue is None:
        return results[0]
    rounded = (result.cast(out.dtype) if out.dtype in (t.f16, t.bf16) else result for result in results)
    return epilogue(*rounded, *(load_block(array, index, size) for array in extra))


@t.kernel
def matmul(
    x: t.Array, w: t.Array, out: t.Array, table: t.Array | None = None, *extra: t.Array,
    bm: int, bn: int, bk: int, epilogue: Epilogue | None = None, outer: str = "n",
) -> None:  # fmt: skip
    """out[M, N] = epilogue(x[M, K] w[N, K]^T, *extra).

    table: f32 [N, 2], scale and bias of each column. extra: arrays that broadcast to [M, N], passed to `epilogue` as
    tiles after the product. bm, bn, bk: block sizes. outer: see _products.
    """
    for index, (result,) in _products(x, [w], [table], (bm, bn, bk), outer):
        t.store(out, index, _finish([result], epilogue, extra, out, index, (bm, bn)))


@t.kernel
def matmul_onto(x: t.Array, w: t.Array, base: t.Array, out: t.Array, *, bm: int, bn: int, bk: int) -> None:
    """out[M, N] = base[M, N] + x[M, K] w[N, K]^T, summed in f32 by the matrix engine. bm, bn, bk: block sizes.

    Vector code has no part in it: base and out are moved beside the products, base a block ahead of them.
    """
    rows, columns = _Rows(x, bm), _Rows(w, bn)
    (m, k), n = x.shape, w.shape[0]
    (i,) = t.programs(t.cdiv(m, bm))
    i = i * bm

    def begun(j: int) -> t.Accumulator:
        return t.accumulator((rows.count(i), columns.count(j)), init=t.load(base, (i, j), (bm, bn)))

    ready = begun(0)
    for j in range(0, n, bn):
        acc = ready
        if j + bn < n:
            ready = begun(j + bn)
        if bk >= k:
            t.mma(rows.at(i), columns.at(j), acc=acc)
        else:
            for first in t.range(0, k, bk, stages=2):
                t.mma(rows.part(i, first, bk), columns.part(j, first, bk), acc=acc)
        t.store(out, (i, j), acc)


@t.kernel
def matmul_pair(
    x: t.Array, w0: t.Array, w1: t.Array, out: t.Array, table0: t.Array | None = None, table1: t.Array | None = None,
    *extra: t.Array, bm: int, bn: int, bk: int, epilogue: Epilogue, outer: str = "n",
) -> None:  # fmt: skip
    """out[M, N] = epilogue(x w0^T, x w1^T, *extra): a gated layer in one pass, with the two products on-chip."""
    for index, pair in _products(x, [w0, w1], [table0, table1], (bm, bn, bk), outer):
        t.store(out, index, _finish(pair, epilogue, extra, out, index, (bm, bn)))


@t.kernel
def bmm_nk(
    a: t.Array, b: t.Array, out: t.Array, *extra: t.Array,
    bb: int, bm: int, bn: int, scale: float = 1.0, epilogue: Epilogue | None = None,
) -> None:  # fmt: skip
    """out[B, M, N] = epilogue(scale * a[B, M, K] x b[B, N, K], *extra). A batch of 1 repeats."""
    p, i, j = index = blocks(out.shape, (bb, bm, bn))
    left = load_block(a, (p, i, 0), (bb, bm, a.shape[2]))
    right = load_block(b, (p, j, 0), (bb, bn, b.shape[2]))
    result = t.mma(left, right, scale=scale)
    t.store(out, index, _finish([result], epilogue, extra, out, index, (bb, bm, bn)))


@t.kernel
def bmm_kn(
    a: t.Array, b: t.Array, out: t.Array, *extra: t.Array,
    bb: int, bm: int, bn: int, scale: float = 1.0, epilogue: Epilogue | None = None,
) -> None:  # fmt: skip
    """As bmm_nk, with b[B, K, N]."""
    p, i, j = index = blocks(out.shape, (bb, bm, bn))
    left = load_block(a, (p, i, 0), (bb, bm, a.shape[2]))
    right = load_block(b, (p, 0, j), (bb, b.shape[1], bn))
    result = t.mma(left, right, kn=True, scale=scale)
    t.store(out, index, _finish([result], epilogue, extra, out, index, (bb, bm, bn)))
