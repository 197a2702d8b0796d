"""Convolution of each channel with weights of its own, along rows that come one after the other."""

from npuc import tile as t


@t.kernel
def depthwise(
    x: t.Array, weight: t.Array, out: t.Array, bias: t.Array | None = None,
    *, stride: int = 1, dilation: int = 1, bt: int, bc: int,
) -> None:  # fmt: skip
    """out[i, c] = sum over k of x[stride * i + dilation * k, c] * weight[k, c] (+ bias[c]).

    x[T, C] holds its padding. bt, bc: rows and channels of a block of out. The sum runs from k = 0 on, in f32.
    """
    taps, (rows, channels) = weight.shape[0], out.shape
    i, c = t.programs(t.cdiv(rows, bt), t.cdiv(channels, bc))
    i, c = i * bt, c * bc
    count, width = t.clipped(out, (i, c), (bt, bc))
    reach = stride * (count - 1) + 1
    block = t.load(x, (i * stride, c), (reach + dilation * (taps - 1), width))
    factors = t.load(weight, (0, c), (taps, width))
    rows_of_tap = [block[k * dilation : k * dilation + reach] for k in range(taps)]
    if stride > 1:
        rows_of_tap = [t.take(row, t.iota((count,), 0) * stride) for row in rows_of_tap]
    total = rows_of_tap[0] * factors[:1]
    for k in range(1, taps):
        total = total + rows_of_tap[k] * factors[k : k + 1]
    if bias is not None:
        total = total + t.reshape(t.load(bias, (c,), (width,)), (1, width))
    t.store(out, (i, c), total)


@t.kernel
def last_rows(x: t.Array, out: t.Array, *, bc: int) -> None:
    """out[K, C] = x[step.n_new : step.n_new + K, :]: what a window holds behind the last valid row. bc: channels."""
    count, channels = out.shape
    (c,) = t.programs(t.cdiv(channels, bc))
    block = t.load(x, (0, c * bc), (x.shape[0], bc))
    t.store(out, (0, c * bc), t.take(block, t.iota((count,), 0) + t.step.n_new))
