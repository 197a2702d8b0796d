"""The matrix products of a region and the parameters beside them: what its experts can be made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import evaluate
from npuc.graph.fuse.region import FLOATS, Region
from npuc.graph.nodes import attributes, is_op

_PASSES = ("Gather", "GatherND", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Cast", "Identity", "Transpose", "Tile")


@dataclass(frozen=True)
class Product:
    """A product of an activation with constants. weight: [K, N] or [E, K, N], or with `turned` [N, K] and [E, N, K].

    level: 0 where no other product comes before it, else 1 more than those. before: the products that it depends on,
    by number. bias: [N] or [E, N]. picked: an expert's matrix is picked for each row.
    """

    weight: ir.Value
    turned: bool
    level: int
    before: frozenset[int]
    bias: ir.Value | None
    picked: bool = False


@dataclass(frozen=True)
class _Made:
    """How a constant is made of others: what its node was, which may have left the graph by the time it is computed."""

    op_type: str
    inputs: tuple[ir.Value | None, ...]
    attributes: Mapping[str, Any]
    place: int  # among the node's outputs


class Parameters:
    """Constants of a region, those too that its nodes make of constants."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self._made: dict[ir.Value, _Made] = {}
        self._shapes: dict[ir.Value, tuple[int, ...]] = {}
        self._nodes = frozenset(region.nodes)
        for node in region.nodes:
            if node.domain == "" and all(v is None or self.is_fixed(v) for v in node.inputs):
                for place, output in enumerate(node.outputs):
                    self._made[output] = _Made(node.op_type, tuple(node.inputs), attributes(node), place)

    def is_fixed(self, value: ir.Value | None) -> bool:
        """Whether a value is constant."""
        return value is not None and (value.const_value is not None or value in self._made)

    def array(self, value: ir.Value) -> np.ndarray:
        """The content of a fixed value, computed now."""
        if value.const_value is not None:
            return np.asarray(value.const_value.numpy())
        made = self._made[value]
        inputs = [None if v is None else self.array(v) for v in made.inputs]
        return evaluate("", made.op_type, inputs, made.attributes)[made.place]

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """The extents of a fixed value."""
        if value.const_value is not None:
            return tuple(int(n) for n in value.const_value.shape.numpy())
        if value not in self._shapes:
            self._shapes[value] = self.array(value).shape
        return self._shapes[value]

    def root(self, value: ir.Value | None) -> ir.Value | None:
        """The fixed value whose elements a value shows, picked and reshaped as they may be."""
        while value is not None and not self.is_fixed(value):
            node = value.producer()
            if node not in self._nodes or not is_op(node, *_PASSES):
                return None
            assert node is not None
            value = node.inputs[0]
        return value

    def numbers(self) -> list[float]:
        """The different single float constants of the region."""
        found: dict[float, None] = {}
        for value in self.region.constants():
            if value.const_value is not None and value.const_value.size == 1 and value.const_value.dtype in FLOATS:
                found.setdefault(float(value.const_value.numpy().reshape(())))
        return list(found)


def products(parameters: Parameters) -> list[Product]:
    """The products in order; a bias belongs to the nearest products before it, to all of a level where it is one."""
    depends: dict[ir.Value, frozenset[int]] = {}
    found: list[Product] = []
    for node in parameters.region.nodes:
        before = frozenset[int]().union(*(depends.get(v, frozenset()) for v in node.inputs if v is not None))
        product = _product(node, before, found, parameters)
        if product is not None:
            found.append(product)
            before = before | {len(found) - 1}
        elif is_op(node, "Add") and before:
            _note_bias(node, before, found, depends, parameters)
        for output in node.outputs:
            depends[output] = before
    return found


def _product(node: ir.Node, before: frozenset[int], found: Sequence[Product], parameters: Parameters) -> Product | None:
    """The product that a node is, where one operand is constant or picks its matrices from a constant."""
    if not is_op(node, "MatMul", "Gemm"):
        return None
    attrs = attributes(node)
    if attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1.0 or attrs.get("beta", 1.0) != 1.0:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and not parameters.is_fixed(bias):
        return None
    level = 1 + max((found[number].level for number in before), default=-1)
    for side in (1, 0):
        weight, root = node.inputs[side], parameters.root(node.inputs[side])
        if weight is None or root is None or parameters.root(node.inputs[1 - side]) is not None:
            continue
        turned = bool(attrs.get("transB", 0)) or side == 0  # W [N, K] times columns
        picked = not parameters.is_fixed(weight)
        return Product(root if picked else weight, turned, level, before, bias, picked)
    return None


def _note_bias(
    node: ir.Node, before: frozenset[int], found: list[Product], depends: dict[ir.Value, frozenset[int]],
    parameters: Parameters,
) -> None:  # fmt: skip
    """Gives the constant operand of a sum to the products that the other operand ends with."""
    for side, other in ((0, 1), (1, 0)):
        constant, value = parameters.root(node.inputs[side]), node.inputs[other]
        if constant is None or value is None or not depends.get(value):
            continue
        if int(np.prod(parameters.shape(constant))) == 1:
            continue
        level = max(found[number].level for number in before)
        for number in sorted(before):
            old = found[number]
            if old.level == level and old.bias is None:
                found[number] = Product(old.weight, old.turned, old.level, old.before, constant, old.picked)
