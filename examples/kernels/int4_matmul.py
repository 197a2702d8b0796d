"""A linear layer whose weights stay 4-bit codes: they cross DDR packed and reach the matrix engine as codes.

The model calls examples::Int4Linear, a function with a body in standard operators: weights are (code - 8) * scale, with
a scale for each group of 32 along K. Two codes are in a byte, the lower four bits first.

npuc kernel run examples/kernels/int4_matmul.py:int4_linear --check
npuc compile MODEL -o model.npu --kernel examples::Int4Linear=examples/kernels/int4_matmul.py:int4_linear
"""

import numpy as np

from npuc import tile as t

GROUP, ZERO = 32, 8


@t.kernel
def int4_linear(x, codes, scales, out, *, bn, widen=False):
    """out[M, N] = x[M, K] w^T, codes u8[N, K / 2], scales[N, K / 32]. bn: output channels of a block.

    widen: dequantise by vector code first, as on machines whose matrix engine takes no codes; far slower where it does.
    """
    (j,) = t.programs(t.cdiv(out.shape[1], bn))
    rows = t.load(x, (0, 0), x.shape)
    packed = t.load(codes, (j * bn, 0), (bn, codes.shape[1]))
    factors = t.load(scales, (j * bn, 0), (bn, scales.shape[1]))
    if widen:
        weights = t.dequant(packed, t.u4, factors, zero=ZERO, group=GROUP).cast(x.dtype)
        t.store(out, (0, j * bn), t.mma(rows, weights))
    else:
        t.store(out, (0, j * bn), t.mma_scaled(rows, packed, factors, dtype=t.u4, zero=ZERO, group=GROUP))


def candidates(types, params):
    channels = types[3].shape[1]
    return ({"bn": bn} for bn in sorted({min(size, channels) for size in (16, 64, 256, 1024)}))


def example():
    random = np.random.default_rng(2)
    codes = random.integers(0, 256, (80, 48)).astype(np.uint8)
    scales = (random.random((80, 3)) / 8).astype(np.float16)

    def reference(x, codes, scales):
        pairs = np.stack([codes % 16, codes // 16], 2).reshape(80, 96) - ZERO
        return x @ (pairs * scales.repeat(GROUP, 1)).T

    return t.Example((t.dense(t.f16, (5, 96)), codes, scales, t.dense(t.f16, (5, 80))), {"bn": 32}, reference)
