"""GELU by a sigmoid: half the instructions of the exact one, errors up to 0.02."""

import numpy as np

from npuc import tile as t


@t.kernel
def quick_gelu(x, out, *, approximate="none", rows=32):
    """x * sigmoid(1.702 x) for arrays [M, N]. approximate: of the Gelu operator; this is neither of its forms."""
    (i,) = t.programs(t.cdiv(x.shape[0], rows))
    block = t.load(x, (i * rows, 0), (rows, x.shape[1]))
    t.store(out, (i * rows, 0), block * t.sigmoid(1.702 * block))


def example():
    array = t.dense(t.f16, (50, 24))
    return t.Example((array, array), {}, lambda x: x / (1.0 + np.exp(-1.702 * x)))
