"""The device's arithmetic, used by device, eager execution and constant folding alike: the same bits on every host."""

from npurt.numerics.codecs import COMPUTE, load, load_f64, store
from npurt.numerics.elementary import erf, exp, exp2, log, pow, recip, rsqrt, sigmoid, sqrt, tanh
from npurt.numerics.formats import NUMBERS, decode, encode
from npurt.numerics.halves import round_bf16, round_f16
from npurt.numerics.packed import elements, pack, pack_codes, unpack, unpack_codes
from npurt.numerics.sums import (
    argmax,
    argmin,
    cumsum,
    mean,
    mma_exact,
    mma_scaled,
    plain_zero,
    prod,
    reduce_max,
    reduce_min,
    sum_exact,
    topk,
    topk_index,
)
from npurt.numerics.trig import cos, sin

__all__ = [
    "COMPUTE",
    "NUMBERS",
    "argmax",
    "argmin",
    "cos",
    "cumsum",
    "decode",
    "elements",
    "encode",
    "erf",
    "exp",
    "exp2",
    "load",
    "load_f64",
    "log",
    "mean",
    "mma_exact",
    "mma_scaled",
    "pack",
    "pack_codes",
    "plain_zero",
    "pow",
    "prod",
    "recip",
    "reduce_max",
    "reduce_min",
    "round_bf16",
    "round_f16",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "store",
    "sum_exact",
    "tanh",
    "topk",
    "topk_index",
    "unpack",
    "unpack_codes",
]
