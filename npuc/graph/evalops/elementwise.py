"""Elementwise operators. Transcendental functions are npurt.numerics', so that folded constants have the same bytes
on every host; NumPy's own are used only for operations that IEEE 754 defines exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from npuc.graph.evalops.common import (
    Array,
    Attributes,
    EvaluationError,
    Inputs,
    OpFunction,
    given,
    in_float32,
    required,
    widened,
)
from npurt import numerics


def _unary(function: Callable[[Array], Array]) -> OpFunction:
    def operator(inputs: Inputs, attributes: Attributes) -> Array:
        x = required(inputs, 0)
        return function(widened(x)).astype(x.dtype)

    return operator


def _binary(function: Callable[[Array, Array], Array]) -> OpFunction:
    """Two operands of one type; arithmetic rounds to that type, comparisons give bool."""

    def operator(inputs: Inputs, attributes: Attributes) -> Array:
        a, b = required(inputs, 0), required(inputs, 1)
        result = function(widened(a), widened(b))
        return result if result.dtype == np.bool_ else result.astype(a.dtype)

    return operator


def _variadic(function: Callable[[Array, Array], Array]) -> OpFunction:
    def operator(inputs: Inputs, attributes: Attributes) -> Array:
        values = [required(inputs, i) for i in range(len(inputs))]
        return reduce(lambda a, b: function(widened(a), widened(b)), values).astype(values[0].dtype)

    return operator


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if not np.all(b):
        raise EvaluationError("integer division by zero")
    quotient: Array = np.abs(a) // np.abs(b)  # ONNX truncates towards zero, NumPy rounds down
    return np.asarray(np.where((a < 0) == (b < 0), quotient, -quotient))


def _modulo(inputs: Inputs, attributes: Attributes) -> Array:
    a, b = required(inputs, 0), required(inputs, 1)
    function = np.fmod if attributes.get("fmod", 0) else np.mod
    return np.asarray(function(widened(a), widened(b)), dtype=a.dtype)


_EXACT_POWERS: dict[float, Callable[[Array], Array]] = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    1.0: lambda x: x,
    0.5: np.sqrt,
    -0.5: lambda x: 1 / np.sqrt(x),
    -1.0: lambda x: 1 / x,
}


def _power(inputs: Inputs, attributes: Attributes) -> Array:
    base, exponent = required(inputs, 0), required(inputs, 1)
    if base.dtype.kind in "iu":
        return np.asarray(np.power(base, exponent.astype(base.dtype)))
    exact = _EXACT_POWERS.get(float(exponent.reshape(-1)[0])) if exponent.size == 1 else None
    x = widened(base)
    if exact is not None:
        return np.broadcast_to(exact(x), np.broadcast_shapes(base.shape, exponent.shape)).astype(base.dtype)
    x, y = np.broadcast_arrays(x.astype(np.float32), exponent.astype(np.float32))
    return numerics.pow(x, y).astype(base.dtype)


def _cast(inputs: Inputs, attributes: Attributes) -> Array:
    x = required(inputs, 0)
    target = ir.DataType(attributes["to"]).numpy()
    if x.dtype == np.float32 and target == np.float16:
        return np.asarray(numerics.round_f16(x), dtype=np.float16)
    with np.errstate(all="ignore"):
        return x.astype(target)


def _cast_like(inputs: Inputs, attributes: Attributes) -> Array:
    return _cast(inputs, {"to": ir.DataType.from_numpy(required(inputs, 1).dtype).value})


def _clip(inputs: Inputs, attributes: Attributes) -> Array:
    x, low, high = required(inputs, 0), given(inputs, 1), given(inputs, 2)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _gelu(inputs: Inputs, attributes: Attributes) -> Array:
    x = required(inputs, 0)
    v = x.astype(np.float64)
    if attributes.get("approximate", "none") == "tanh":
        inner = np.sqrt(2 / np.pi) * (v + 0.044715 * v * v * v)
        bent: Array = numerics.tanh(inner.astype(np.float32))
    else:
        bent = numerics.erf((v / np.sqrt(2)).astype(np.float32))
    result: Array = 0.5 * v * (1 + bent)
    return result.astype(x.dtype)


def _softplus(x: Array) -> Array:
    result: Array = np.maximum(x, 0) + numerics.log(1 + numerics.exp(-np.abs(x)))
    return result


OPERATORS: dict[str, OpFunction] = {
    "Abs": _unary(np.abs),
    "Neg": _unary(np.negative),
    "Sign": _unary(np.sign),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Sqrt": _unary(np.sqrt),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Exp": _unary(in_float32(numerics.exp)),
    "Log": _unary(in_float32(numerics.log)),
    "Sin": _unary(in_float32(numerics.sin)),
    "Cos": _unary(in_float32(numerics.cos)),
    "Tanh": _unary(in_float32(numerics.tanh)),
    "Sigmoid": _unary(in_float32(numerics.sigmoid)),
    "Erf": _unary(in_float32(numerics.erf)),
    "Softplus": _unary(in_float32(_softplus)),
    "Gelu": _gelu,
    "Not": lambda inputs, _: np.logical_not(required(inputs, 0)),
    "IsNaN": lambda inputs, _: np.isnan(required(inputs, 0)),
    "IsInf": lambda inputs, _: np.isinf(required(inputs, 0)),
    "Identity": lambda inputs, _: required(inputs, 0),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_divide),
    "Mod": _modulo,
    "Pow": _power,
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Sum": _variadic(np.add),
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Xor": _binary(np.logical_xor),
    "BitwiseAnd": _binary(np.bitwise_and),
    "BitwiseOr": _binary(np.bitwise_or),
    "Where": lambda inputs, _: np.where(required(inputs, 0), required(inputs, 1), required(inputs, 2)),
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
}
