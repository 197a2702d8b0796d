"""Codes of 8 bits: their scale over a whole array, products in whole numbers, and rows that are padding."""

from npuc import tile as t
from npukernels.blocks import blocks


@t.kernel
def code_range(x: t.Array, scale: t.Array, zero: t.Array, *, bm: int) -> None:
    """scale f32 [1, 1] and zero u8 [1, 1] of codes for x[M, K], as ONNX's DynamicQuantizeLinear has them.

    The range is that of x with zero in it; scale = (high - low) / 255, or 1 where x is zero; zero = -low / scale,
    rounded half to even and saturated. bm: rows of a block.
    """
    t.programs(1)
    starts = range(0, x.shape[0], bm)
    ends = t.scratch((2, len(starts)))
    for number, first in enumerate(starts):
        rows = t.load(x, (first, 0), (bm, x.shape[1])).cast(t.f32)
        t.store(ends, (0, number), t.reshape(t.min(t.min(rows, 1), 0), (1, 1)))
        t.store(ends, (1, number), t.reshape(t.max(t.max(rows, 1), 0), (1, 1)))
    both = t.load(ends, (0, 0), ends.shape)
    low = t.minimum(t.min(both[0:1], 1), 0.0)
    high = t.maximum(t.max(both[1:2], 1), 0.0)
    step = (high - low) / 255.0
    step = t.where(step == 0.0, 1.0, step)
    t.store(scale, (0, 0), step)
    t.store(zero, (0, 0), t.maximum(t.minimum(t.round(0.0 - low / step), 255.0), 0.0).cast(t.i32))


@t.kernel
def integer_linear(
    x: t.Array, x_scale: t.Array, x_zero: t.Array, w: t.Array, w_scale: t.Array, w_sum: t.Array, out: t.Array,
    w_zero: t.Array | None = None, *, bm: int, bn: int,
) -> None:  # fmt: skip
    """out[M, N] = (x[M, K] - x_zero) (w[N, K] - w_zero)^T * (x_scale * w_scale), the sums in whole numbers.

    x, w: codes of 8 bits. x_scale f32, x_zero [1, 1]. w_scale f32 [1, N]; w_sum i32 [1, N]: sum of w - w_zero over K;
    w_zero i32 [1, N] or None for zero.
    """
    i, j = blocks(out.shape, (bm, bn))
    codes = t.load(x, (i, 0), (bm, x.shape[1]))
    whole = t.mma(codes, t.load(w, (j, 0), (bn, w.shape[1])))
    whole = whole - t.load(x_zero, (0, 0), (1, 1)).cast(t.i32) * t.load(w_sum, (0, j), (1, bn))
    if w_zero is not None:
        whole = whole - t.sum(codes.cast(t.i32), 1) * t.load(w_zero, (0, j), (1, bn))
    scale = t.load(x_scale, (0, 0), (1, 1)) * t.load(w_scale, (0, j), (1, bn))
    t.store(out, (i, j), whole.cast(t.f32) * scale)


@t.kernel
def integer_product(
    a: t.Array, b: t.Array, out: t.Array, a_zero: t.Array, b_zero: t.Array, *, bb: int, bm: int, bn: int
) -> None:
    """out i32 [B, M, N] = (a[B, M, K] - a_zero) x (b[B, N, K] - b_zero)^T for codes of 8 bits.

    a_zero, b_zero: [1, 1, 1], b_zero also [1, N, 1].
    """
    p, i, j = index = blocks(out.shape, (bb, bm, bn))
    left, right = t.load(a, (p, i, 0), (bb, bm, a.shape[2])), t.load(b, (p, j, 0), (bb, bn, b.shape[2]))
    of_a = t.load(a_zero, (0, 0, 0), (1, 1, 1)).cast(t.i32)
    of_b = t.transpose(t.load(b_zero, (0, j if b_zero.shape[1] > 1 else 0, 0), (1, bn, 1)).cast(t.i32), (0, 2, 1))
    rows = t.sum(left.cast(t.i32), 2)
    columns = t.transpose(t.sum(right.cast(t.i32), 2), (0, 2, 1))
    t.store(out, index, t.mma(left, right) - of_a * columns - of_b * (rows - a.shape[2] * of_a))


@t.kernel
def valid_rows(x: t.Array, out: t.Array, *, bg: int, bk: int) -> None:
    """out[G, C, K] = the first step.n_new rows of x[G, C, K], zeros for the others. bg, bk: sizes of a block."""
    g, i = t.programs(t.cdiv(x.shape[0], bg), t.cdiv(x.shape[1], bk))
    first = (g * bg, i * bk, 0)
    t.store(out, first, t.load(x, first, (bg, bk, x.shape[2]), valid=(1, t.step.n_new - i * bk)))
