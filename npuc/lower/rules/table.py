"""The table of lowering rules."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from npuc.lower.context import Lowering
from npuc.lower.rules import (
    attention,
    convolution,
    experts,
    gather,
    index,
    integers,
    linear,
    movement,
    plain,
    reduce,
)

Rule = Callable[[Lowering, ir.Node], None]

RULES: dict[tuple[str, str], Rule] = {
    **movement.RULES,
    **linear.RULES,
    **reduce.RULES,
    **gather.RULES,
    **index.RULES,
    **attention.RULES,
    **convolution.RULES,
    **experts.RULES,
    **plain.RULES,
    **integers.RULES,
}
