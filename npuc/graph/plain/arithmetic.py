"""What elementwise operators make of what is known at unfilled slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx_ir as ir

from npuc.graph.evalops.elementwise import OPERATORS
from npuc.graph.evaluate import EvaluationError, evaluate
from npuc.graph.nodes import attributes, constant
from npuc.graph.plain.facts import ANY, FALSE, FINITE, TRUE, ZERO, Held, held_by

ELEMENTWISE = frozenset(OPERATORS) | {"HardSigmoid", "LeakyRelu", "Elu"}

_MONOTONE = (
    *("Add", "Sub", "Mul", "Max", "Min", "Sum", "Clip", "Neg", "Sign", "Floor", "Ceil", "Round", "Relu", "Exp"),
    *("Tanh", "Sigmoid", "Erf", "Softplus", "Cast", "Identity"),
)
"""Functions whose least and greatest results come from the ends of their operands' ranges."""

_UNSAFE = ("Div", "Exp", "Log", "Sqrt", "Reciprocal", "Mod", "Pow")
"""Functions that can make infinities or NaN of finite numbers."""

_TESTS = ("IsNaN", "IsInf", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not")
"""Functions whose results are true or false, whatever they read."""


def elementwise(node: ir.Node, helds: Sequence[Held | None]) -> Held:
    """What the result holds at unfilled slots. helds: of each operand, None for one without slots."""
    op, kinds = node.op_type, [_kind(value, held) for value, held in zip(node.inputs, helds, strict=True)]
    if op == "Where" and kinds[0] in (TRUE, FALSE):
        return kinds[1] if kinds[0] == TRUE else kinds[2]
    if (op == "And" and FALSE in kinds) or (op == "Or" and TRUE in kinds):
        return FALSE if op == "And" else TRUE
    known = _at_the_ends(node, kinds)
    if known is not None:
        return known
    if op in _TESTS:
        return FINITE
    if op == "Where":
        return kinds[1] if kinds[1] == kinds[2] else _mixed(kinds[1:])
    if op in ("Max", "Clip"):  # whose bounds may be as low as a mask
        return FINITE if all(kind.finite for kind in kinds) else ANY
    if _mixed(kinds) == ANY:
        return _hidden(op, kinds)
    if op == "Mul" and ZERO in kinds:
        return ZERO
    if op == "Div" and (helds[1] is None or kinds[1].low is not None):  # what the model divides by is not zero
        return ZERO if kinds[0] == ZERO else FINITE
    return ANY if op in _UNSAFE and not _is_power(node) else FINITE


def _hidden(op: str, kinds: Sequence[Held]) -> Held:
    """What stays hidden whatever finite number is added; ANY for all else."""
    lowest = [kind for kind in kinds if kind.lowest]
    rest = [kind for kind in kinds if not kind.lowest]
    first = op in ("Add", "Sum", "Min") or (op == "Sub" and kinds[0].lowest)
    return lowest[0] if first and lowest and _mixed(rest) == FINITE else ANY


def _is_power(node: ir.Node) -> bool:
    """A power with a constant whole exponent that is not negative."""
    exponent = constant(node.inputs[1]) if node.op_type == "Pow" else None
    return exponent is not None and bool((exponent >= 0).all() and (exponent == np.floor(exponent)).all())


def _kind(value: ir.Value | None, held: Held | None) -> Held:
    """What an operand holds; one without slots is finite, and known if it is constant."""
    array = constant(value) if held is None else None
    return held or (FINITE if array is None else held_by(array))


def _mixed(kinds: Sequence[Held]) -> Held:
    """FINITE if all that is held is finite, numbers that softmax drops not counted as such, else ANY."""
    return FINITE if all(kind.usable for kind in kinds) else ANY


def _at_the_ends(node: ir.Node, kinds: Sequence[Held]) -> Held | None:
    """The range of the results, where that of every operand is known; else None."""
    ends: list[tuple[float | None, ...]] = []
    for value, kind in zip(node.inputs, kinds, strict=True):
        if value is not None and (kind.low is None or value.dtype is None):
            return None
        ends.append((None,) if value is None else tuple(dict.fromkeys((kind.low, kind.high))))
    if node.op_type not in _MONOTONE and any(len(end) > 1 for end in ends):
        return None
    found: list[np.ndarray] = []
    for corner in product(*ends):
        operands = [
            None if number is None or value is None or value.dtype is None else np.array(number, value.dtype.numpy())
            for value, number in zip(node.inputs, corner, strict=True)
        ]
        try:
            found += evaluate(node.domain, node.op_type, operands, attributes(node))
        except EvaluationError:
            return None
    return held_by(np.array(found))
