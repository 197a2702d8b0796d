"""The table of lowering rules, by what does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Family:
    """Rules whose kernels work in one way. engine: what does the work, for reports; why: in a few words."""

    engine: str
    why: str
    rules: Mapping[tuple[str, str], Rule]


FAMILIES = (
    Family("DMA", "only moves data; a view where strides can say it", movement.RULES),
    Family("DPU", "matrix products", linear.RULES),
    Family("SHAVE", "along an axis", reduce.RULES),
    Family("DMA", "rows by an index", gather.RULES),
    Family("SHAVE", "places by an index, then moves", index.RULES),
    Family("DPU and SHAVE", "attention and what belongs to it", attention.RULES),
    Family("SHAVE", "convolution of each channel, windows of rows", convolution.RULES),
    Family("DPU and SHAVE", "the chosen experts of each row", experts.RULES),
    Family("SHAVE", "masks and rows of the step, where attention runs as written", plain.RULES),
    Family("DPU and SHAVE", "products of integer codes", integers.RULES),
)
ELEMENTWISE_FAMILY = Family("SHAVE", "element by element; a chain is one run", {})

RULES: dict[tuple[str, str], Rule] = {key: rule for family in FAMILIES for key, rule in family.rules.items()}
FAMILY_OF: dict[tuple[str, str], Family] = {key: family for family in FAMILIES for key in family.rules}
