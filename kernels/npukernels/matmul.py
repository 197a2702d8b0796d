"""Matrix products: linear layers, pairs of them that share their input, and products of activations."""

from npuc import tile as t
from npukernels.blocks import blocks, load_block


class _Rows:
    """Blocks of rows of an array over all its columns. The last one is kept, so a walk along the other operand is free."""

    def __init__(self, array, size):
        self.array, self.size, self.first = array, size, None

    def at(self, first):
        if first is not self.first:
            self.first, self.tile = first, t.load(self.array, (first, 0), (self.size, self.array.shape[1]))
        return self.tile


def _summed(x, w, i, j, bm, bn, bk):
    """The block of x w^T at row i, column j in steps of bk along K, summed on-chip."""
    acc = None
    for first in t.range(0, x.shape[1], bk, stages=2):
        a = t.load(x, (i, first), (bm, bk))
        b = t.load(w, (j, first), (bn, bk))
        acc = acc or t.accumulator((a.shape[0], b.shape[0]))
        t.mma(a, b, acc=acc)
    return acc.read()


def _products(x, weights, tables, bm, bn, bk, outer):
    """For each block of this program: its row and column, and the block of x w^T for each w.

    outer: "n" walks along the rows of x with a block of each w at hand, "m" along the columns with a block of x.
    """
    m, n = x.shape[0], weights[0].shape[0]
    (p,) = t.programs(t.cdiv(n, bn) if outer == "n" else t.cdiv(m, bm))
    start = p * (bn if outer == "n" else bm)
    x_rows, w_rows = _Rows(x, bm), [_Rows(w, bn) for w in weights]
    tables = [None if table is None else _Rows(table, bn) for table in tables]
    for i, j in [(i, start) for i in range(0, m, bm)] if outer == "n" else [(start, j) for j in range(0, n, bn)]:
        results = []
        for w, rows, table in zip(weights, w_rows, tables, strict=True):
            scale_bias = None if table is None else table.at(j)
            if bk >= x.shape[1]:
                results.append(t.mma(x_rows.at(i), rows.at(j), table=scale_bias))
                continue
            total = _summed(x, w, i, j, bm, bn, bk)
            if table is not None:
                total = total * t.transpose(scale_bias[:, 0:1], (1, 0)) + t.transpose(scale_bias[:, 1:2], (1, 0))
            results.append(total)
        yield i, j, results


def _finish(result, epilogue, extra, index, size):
    return result if epilogue is None else epilogue(result, *(load_block(array, index, size) for array in extra))


@t.kernel
def matmul(x, w, out, table=None, *extra, bm, bn, bk, epilogue=None, outer="n"):
    """out[M, N] = epilogue(x[M, K] w[N, K]^T, *extra).

    table: f32 [N, 2], scale and bias of each column. extra: arrays that broadcast to [M, N], passed to `epilogue` as
    tiles after the product. bm, bn, bk: block sizes. outer: see _products.
    """
    for i, j, (result,) in _products(x, [w], [table], bm, bn, bk, outer):
        t.store(out, (i, j), _finish(result, epilogue, extra, (i, j), (bm, bn)))


@t.kernel
def matmul_pair(x, w0, w1, out, table0=None, table1=None, *extra, bm, bn, bk, epilogue, outer="n"):
    """out[M, N] = epilogue(x w0^T, x w1^T, *extra): a gated layer in one pass, with the two products on-chip."""
    for i, j, pair in _products(x, [w0, w1], [table0, table1], bm, bn, bk, outer):
        t.store(out, (i, j), epilogue(*pair, *(load_block(array, (i, j), (bm, bn)) for array in extra)))


@t.kernel
def bmm_nk(a, b, out, *extra, bb, bm, bn, scale=1.0, epilogue=None):
    """out[B, M, N] = epilogue(scale * a[B, M, K] x b[B, N, K], *extra). A batch of 1 repeats."""
    p, i, j = blocks(out.shape, (bb, bm, bn))
    left = load_block(a, (p, i, 0), (bb, bm, a.shape[2]))
    right = load_block(b, (p, j, 0), (bb, bn, b.shape[2]))
    result = t.mma(left, right, scale=scale)
    t.store(out, (p, i, j), _finish(result, epilogue, extra, (p, i, j), (bb, bm, bn)))


@t.kernel
def bmm_kn(a, b, out, *extra, bb, bm, bn, scale=1.0, epilogue=None):
    """As bmm_nk, with b[B, K, N]."""
    p, i, j = blocks(out.shape, (bb, bm, bn))
    left = load_block(a, (p, i, 0), (bb, bm, a.shape[2]))
    right = load_block(b, (p, 0, j), (bb, b.shape[1], bn))
    result = t.mma(left, right, kn=True, scale=scale)
    t.store(out, (p, i, j), _finish(result, epilogue, extra, (p, i, j), (bb, bm, bn)))
