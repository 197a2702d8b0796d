"""How far two tensors are apart, and how far they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# float32 sums in another order differ by some 1e-6 of the largest term; thousands of them, layer by layer, stay below
F32_RTOL = F32_ATOL = 1e-3
# float16 keeps 11 bits: an error of 5e-4 per rounding, a direction that is off by less than 1 in 1000 per row
F16_COSINE = 0.999
F16_SCALED = 0.03
SHORTEST_ROW = 16
"""Rows of fewer elements have no direction worth speaking of: such a tensor counts as one row."""
QUIET_ROW = 0.01
"""A row below this share of the loudest row's length is judged by its error alone."""
F16_LARGEST = 65504.0
"""Masks are made of numbers beyond it: the device holds them as infinities, which is as good."""


@dataclass(frozen=True)
class Tolerance:
    """What is near enough for float tensors; integers and bools must be equal.

    Elementwise where rtol and atol are given: |device - reference| <= atol + rtol * |reference|. Else by rows: the
    cosine of each row is at least `cosine`, and no error exceeds `scaled` times the tensor's largest value; where both
    sides lie beyond float16 with the same sign, they count as equal.
    """

    rtol: float | None = None
    atol: float | None = None
    cosine: float = F16_COSINE
    scaled: float = F16_SCALED

    def __str__(self) -> str:
        if self.rtol is not None:
            return f"error <= {self.atol:g} + {self.rtol:g} x value"
        return f"cosine of each row >= {self.cosine:g}, error <= {self.scaled:g} x largest value"


def tolerance_for(precision: str, rtol: float | None = None, atol: float | None = None) -> Tolerance:
    """The default of a precision; a given bound makes it elementwise, and the other bound is then that of f32."""
    if precision == "f32" or rtol is not None or atol is not None:
        return Tolerance(F32_RTOL if rtol is None else rtol, F32_ATOL if atol is None else atol)
    return Tolerance()


@dataclass(frozen=True)
class Difference:
    """What separates a tensor from its reference.

    max_abs, max_rel: largest error, and largest error over |reference| where that is not 0. cosine: the lowest of a
    row, None for integers or a zero reference. worst: index of the element that exceeds the tolerance most (or is
    furthest off), got and want its values. undefined: elements that are NaN in the reference and so not compared.
    """

    shape: tuple[int, ...]
    within: bool
    max_abs: float
    max_rel: float
    cosine: float | None
    worst: tuple[int, ...]
    got: float
    want: float
    undefined: int = 0

    def __str__(self) -> str:
        if self.max_abs == 0:
            return "equal"
        cosine = "" if self.cosine is None else f", cosine {self.cosine:.6f}"
        where = f"at {list(self.worst)}: {self.got:.6g} instead of {self.want:.6g}"
        return f"max error {self.max_abs:.3g}, relative {self.max_rel:.3g}{cosine}, {where}"


def measure(got: np.ndarray, want: np.ndarray, tolerance: Tolerance) -> Difference:
    """Compares a tensor with its reference of the same shape (ValueError else)."""
    if got.shape != want.shape:
        raise ValueError(f"the shapes {list(got.shape)} and {list(want.shape)} cannot be compared")
    if got.size == 0:
        return Difference(got.shape, True, 0.0, 0.0, None, (), 0.0, 0.0)
    exact = want.dtype.kind in "iub"
    g, w = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.asarray(np.abs(g - w))
        error[g == w] = 0  # equal infinities
        undefined = np.isnan(w)
        if not exact and tolerance.rtol is None:
            beyond = (np.abs(g) >= F16_LARGEST) & (np.abs(w) >= F16_LARGEST) & (g * w > 0)
            g, w = np.where(beyond, 0, g), np.where(beyond, 0, w)
            error[beyond] = 0
        error[np.isnan(error)] = np.inf
        error[undefined] = 0
        scale = np.abs(np.where(np.isfinite(w), w, 0))
        relative = np.where(scale > 0, error / np.where(scale > 0, scale, 1), 0)
        cosine = None if exact else _cosine(np.where(undefined, 0, g), np.where(undefined, 0, w))
        excess = error if exact or tolerance.rtol is None else error - (tolerance.atol or 0) - tolerance.rtol * scale
    worst = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
    if exact:
        within = not error.any()
    elif tolerance.rtol is not None:
        within = bool(excess.max() <= 0)
    else:
        within = bool(error.max() <= tolerance.scaled * scale.max()) and (cosine is None or cosine >= tolerance.cosine)
    return Difference(
        got.shape, within, float(error.max()), float(relative.max()), cosine, worst, float(g[worst]), float(w[worst]),
        int(undefined.sum()),
    )  # fmt: skip


def _cosine(got: np.ndarray, want: np.ndarray) -> float | None:
    """Lowest cosine of a row that is loud enough to have a direction; None without one, NaN counts as -1."""
    width = want.shape[-1] if want.ndim and want.shape[-1] >= SHORTEST_ROW else want.size
    g, w = got.reshape(-1, width), want.reshape(-1, width)
    length = np.sqrt((w * w).sum(-1))
    loud = length > QUIET_ROW * length.max() if length.max() > 0 else np.zeros(len(length), bool)
    if not loud.any():
        return None
    g, w = g[loud], w[loud]
    cosine = (g * w).sum(-1) / np.sqrt((g * g).sum(-1) * (w * w).sum(-1))
    return float(np.where(np.isnan(cosine), -1, cosine).min())
