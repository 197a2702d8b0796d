"""Chains of elementwise ONNX nodes as one hashable expression that a kernel evaluates on tiles.

Equal expressions are equal keys, so that equal layers share one trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuc import tile as t
from npuc.lower import functions
from npuc.lower.narrow import on_grid, wrapped

Tile = Any
Attrs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Scalar:
    """A constant operand; a Python bool, int or float says its register type."""

    value: bool | int | float

    def __eq__(self, other: object) -> bool:  # 1, 1.0 and True are different operands; NaN is one operand
        return isinstance(other, Scalar) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


Operand = int | Scalar | None  # an index into inputs, then steps; None for an optional operand that is left out


@dataclass(frozen=True)
class Step:
    """One op of the chain: a key of `FUNCTIONS`, its operands and attributes."""

    op: str
    args: tuple[Operand, ...]
    attrs: Attrs = ()


@dataclass(frozen=True)
class Expression:
    """steps over `inputs` tiles; the last step is the result. Intermediates stay in registers (f32, i32 or bool)."""

    inputs: int
    steps: tuple[Step, ...]

    def __call__(self, *tiles: Tile) -> Tile:
        values: list[Tile] = list(tiles)
        for step in self.steps:
            args = [values[a] if isinstance(a, int) else None if a is None else a.value for a in step.args]
            values.append(FUNCTIONS[step.op](*args, **dict(step.attrs)))
        return values[-1]

    def __str__(self) -> str:
        return "+".join(step.op.lower() for step in self.steps)


def _gelu(x: Tile, approximate: str = "none") -> Tile:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + t.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + t.erf(x * math.sqrt(0.5)))


def _clip(x: Tile, low: Tile | None = None, high: Tile | None = None) -> Tile:
    x = x if low is None else t.maximum(x, low)
    return x if high is None else t.minimum(x, high)


def _pow(x: Tile, power: Tile) -> Tile:
    """Small whole powers are products: exact where a power function is not, and cheap."""
    if isinstance(power, int | float) and power in (1, 2, 3) and isinstance(x, t.Tile):
        result = x
        for _ in range(int(power) - 1):
            result = result * x
        return result
    if isinstance(power, int | float) and power == 0.5 and isinstance(x, t.Tile):
        return t.sqrt(x)
    base = x if isinstance(x, t.Tile) else t.full((1,), x)
    if isinstance(power, int) and base.dtype is not t.i32:
        power = float(power)
    if isinstance(power, t.Tile) and power.dtype is t.i32 and base.dtype is t.i32:
        return _whole_power(base, power)
    if isinstance(power, t.Tile) and power.dtype is t.i32:
        power = power.cast(t.f32)
    if base.dtype is not t.i32:
        return base**power
    if isinstance(power, int):
        return _whole_power(base, t.full((1,), power, t.i32))
    result = base.cast(t.f32) ** power
    near = t.round(result)  # a power function may be one bit off, and truncation would lose a whole one
    return t.where(abs(result - near) < 1e-6 * abs(near), near, result).cast(t.i32)


def _whole_power(base: Tile, power: Tile) -> Tile:
    """Of integers, by squaring: exact, low 32 bits. A negative power of 1 and -1 is 1 or -1, of others 0."""
    result: Tile = t.full((1,), 1, t.i32)
    factor, rest = base, abs(power)
    for _ in range(31):
        odd = rest % 2
        result = t.where(odd == 1, result * factor, result)
        factor, rest = factor * factor, (rest - odd) / 2
    return t.where((power < 0) & (abs(base) != 1), 0, result)


def _cast(x: Tile, to: t.DType, grid: str = "", saturate: int = 1) -> Tile:
    """Float to integer truncates towards zero. grid: a small float type, on whose numbers the result lies."""
    x = x.cast(to)
    return on_grid(x, grid, bool(saturate)) if grid else x


def _softplus(x: Tile) -> Tile:
    return t.maximum(x, 0.0) + t.log(1.0 + t.exp(-abs(x)))


def _reduce(function: Callable[[Tile, Tile], Tile]) -> Callable[..., Tile]:
    def apply(*args: Tile) -> Tile:
        result = args[0]
        for arg in args[1:]:
            result = function(result, arg)
        return result

    return apply


FUNCTIONS: dict[str, Callable[..., Tile]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": _pow,
    "Max": _reduce(t.maximum),
    "Min": _reduce(t.minimum),
    "Sum": _reduce(lambda a, b: a + b),
    "Mod": lambda a, b, fmod=0: t.fmod(a, b) if fmod else a % b,
    "And": lambda a, b: a & b if isinstance(a, t.Tile) else b & a,
    "Or": lambda a, b: a | b if isinstance(a, t.Tile) else b | a,
    "Xor": lambda a, b: a ^ b if isinstance(a, t.Tile) else b ^ a,
    "Not": lambda a: ~a,
    "Equal": lambda a, b: a == b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Where": lambda c, a, b: t.where(c, a, b),
    "Neg": lambda a: -a,
    "Abs": lambda a: abs(a),
    "Exp": t.exp,
    "Log": t.log,
    "Sqrt": t.sqrt,
    "Reciprocal": t.recip,
    "Tanh": t.tanh,
    "Sigmoid": t.sigmoid,
    "Erf": t.erf,
    "Sin": t.sin,
    "Cos": t.cos,
    "Floor": t.floor,
    "Ceil": t.ceil,
    "Round": t.round,
    "Sign": t.sign,
    "IsNaN": t.isnan,
    "Relu": lambda a: t.maximum(a, 0),
    "LeakyRelu": lambda a, alpha=0.01: t.where(a < 0.0, a * alpha, a),
    "Elu": lambda a, alpha=1.0: t.where(a < 0.0, alpha * (t.exp(a) - 1.0), a),
    "HardSigmoid": lambda a, alpha=0.2, beta=0.5: _clip(a * alpha + beta, 0.0, 1.0),
    "Softplus": _softplus,
    "Gelu": _gelu,
    "Clip": _clip,
    "Cast": _cast,
    "Wrap": wrapped,
    "Identity": lambda a: a,
    **functions.FUNCTIONS,
}
OWN_STEPS = frozenset({"Wrap"})
"""Steps that no operator of the standard has."""

ELEMENTWISE = frozenset(FUNCTIONS) - OWN_STEPS
