"""Forms of attention over a past of codes."""

from typing import Any

import numpy as np

from npuc import tile as t
from npukernels.forms.attention import CAPACITY, DEPTH, DTYPES, GROUPS, HEADS, N_PAST, attention_of, sizes_of
from npukernels.forms.form import Form, Values


def _numbers(bytes_: Values, codes: t.DType) -> Values:
    """float64 numbers of int8 or e4m3 codes; a code of e4m3 is sign, 4 bits of exponent with bias 7, 3 of fraction."""
    if codes is t.i8:
        return bytes_.view(np.int8).astype(np.float64)
    sign, exponent, fraction = bytes_ >> 7, (bytes_ >> 3 & 15).astype(np.int64), (bytes_ & 7) / 8.0
    size = np.where(exponent == 0, fraction * 2.0**-6, (1.0 + fraction) * 2.0 ** (exponent - 7))
    return np.where(sign == 1, -size, size)


def _cache(codes: t.DType, scales: t.DType, capacity: int, seed: int) -> tuple[Values, Values, Values]:
    """u8 [G, N, D], scales [G, N] and the float64 numbers of the valid rows; all other rows hold NaN."""
    random = np.random.default_rng(seed)
    bytes_ = random.integers(0, 256, (GROUPS, capacity, DEPTH), np.uint8)
    bytes_ = bytes_ if codes is t.i8 else bytes_ & 0xBF  # of e4m3 those below 2
    factors = (random.uniform(1.0, 8.0, (GROUPS, capacity)) / (512 if codes is t.i8 else 4)).astype(scales.storage)
    numbers = _numbers(bytes_, codes) * factors.astype(np.float64)[:, :, None]
    bytes_[:, N_PAST:], factors[:, N_PAST:] = 0x7F, np.nan
    return bytes_, factors, numbers[:, :N_PAST]


def _form(kernel: str, words: str, codes: t.DType, rows: int | None = None, **params: Any) -> Form:
    """rows: of the query, None: the size that is asked for."""

    def make(dtype: t.DType, size: int) -> t.Example:
        count, capacity = (size, CAPACITY) if rows is None else (rows, size + N_PAST)
        query, new = (t.dense(dtype, (n, count, DEPTH)) for n in (HEADS, GROUPS))
        (keys, k_scales, k), (values, v_scales, v) = (_cache(codes, dtype, capacity, seed) for seed in (3, 4))
        rule = {"scale": 0.25, **{name: params[name] for name in params if name != "widen"}}

        def reference(q: Values, k_new: Values, v_new: Values, *_: Values) -> Values:
            return attention_of(q, np.concatenate([k, k_new], 1), np.concatenate([v, v_new], 1), N_PAST, **rule)

        arrays = (query, new, new, keys, values, query, None, None, None, None, k_scales, v_scales)
        return t.Example(
            arrays, {"scale": 0.25, "codes": codes, **params, **sizes_of(kernel, rows)}, reference,
            step={"n_past": N_PAST, "n_new": count}, tolerance=2.0**-7 if dtype is t.f16 else None,
        )  # fmt: skip

    return Form(kernel, words, DTYPES, make)


def _forms(kernel: str, words: str, rows: int | None = None) -> tuple[Form, ...]:
    return (
        _form(kernel, f"{words}, cache of int8 codes", t.i8, rows),
        _form(kernel, f"{words}, cache of int8 codes, soft-cap, window", t.i8, rows, softcap=2.0, window=6),
        _form(kernel, f"{words}, cache of int8 codes, widened by vector code", t.i8, rows, widen=True),
        _form(kernel, f"{words}, cache of e4m3 codes", t.e4m3, rows, widen=True),
    )


FORMS = (
    *_forms("attention", "decomposed"),
    _form("attention", "decomposed, one row, cache of int8 codes", t.i8, 1),
    *_forms("attention_flash", "flash"),
    *_forms("attention_incremental", "incremental", 1),
)
