"""The constants of a model: how many numbers, and what they take in device memory in each format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from npuc.estimate.experts import STACKS
from npuc.estimate.formats import WeightFormat
from npuc.estimate.operations import ROW_TABLES, constant_matrix, matrix_extents
from npuc.estimate.plan import FLOATS, Plan, value_bytes
from npuc.graph.nodes import SHAPE_OPERANDS, dims
from npuc.graph.quantised.packed import packed_node, stored_bytes

_VIEWS = frozenset({"Transpose", "Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze"})
"""Operators behind which a constant is still the same numbers."""


@dataclass(frozen=True)
class Weights:
    """By the name of the initializer. matrices: (output channels, depth, number) of second operands of products;
    tables: floats of which rows are taken; others: floats of gains and biases; codes: (numbers, bytes) of weights that
    the file has as codes and the program keeps as they are. whole: bytes of constants that are no
    floats; positions: floats of tables that are computed from positions and are no weights. active: numbers that one
    token needs: all of them but for experts that are not chosen and rows of tables that are not taken."""

    matrices: Mapping[str, tuple[int, int, int]]
    tables: Mapping[str, int]
    others: Mapping[str, int]
    codes: Mapping[str, tuple[int, int]]
    whole: int
    positions: int
    active: int

    @property
    def parameters(self) -> int:
        """Numbers of all weights, each once."""
        found = {**self.others, **self.tables, **{name: prod(sizes) for name, sizes in self.matrices.items()}}
        return sum(found.values()) + sum(count for count, _ in self.codes.values())

    @property
    def tied(self) -> bool:
        """Whether a table of rows is a matrix, too."""
        return bool(self.tables.keys() & self.matrices.keys())

    def bytes(self, form: WeightFormat) -> int:
        """All constants in device memory. A tied table is stored once, unless its matrix is codes: rows stay floats."""
        item = form.floats.nbytes
        floats = self.positions + sum(self.others.values())
        floats += sum(n for name, n in self.tables.items() if form.quantised or name not in self.matrices)
        held = sum(nbytes for _, nbytes in self.codes.values()) + self.whole
        return sum(form.matrix_bytes(*sizes) for sizes in self.matrices.values()) + floats * item + held


def weights_of(plans: Sequence[Plan], roots: Mapping[str, str]) -> Weights:
    """The constants of all entries. roots: initializer behind the name of a constant value, as `initializers_of`."""
    matrices: dict[str, tuple[int, int, int]] = {}
    tables: dict[str, int] = {}
    others: dict[str, int] = {}
    whole: dict[str, int] = {}
    positions: dict[str, int] = {}
    active: dict[str, int] = {}
    codes: dict[str, tuple[int, int]] = {}
    for plan in plans:
        for node in plan.graph.model.graph:
            skipped = SHAPE_OPERANDS.get(node.op_type, ()) if not node.domain else ()
            for at, value in enumerate(node.inputs):
                if value is None or value.const_value is None or at in skipped or prod(dims(value)) == 1:
                    continue
                name, count = roots.get(value.name or "", value.name or ""), prod(dims(value))
                packed, choice = packed_node(value), plan.experts.get(node)
                if packed_node(node.outputs[0]) is not None or (choice is not None and at not in STACKS):
                    continue  # the parts of a packed weight; biases of experts
                if packed is not None:
                    codes[name] = (count, stored_bytes(packed))
                    active[name] = dims(value)[-1] if node.op_type in ROW_TABLES else count
                elif choice is not None:
                    shape = dims(value)
                    matrices[name] = shape[1], shape[2], shape[0]
                    active[name] = count * choice.chosen // choice.experts
                elif value.dtype not in FLOATS:
                    whole[name] = value_bytes(value, 4)
                elif constant_matrix(node) is value:
                    matrices[name] = matrix_extents(node)
                    active[name] = count
                elif node.op_type == "StepRows" and at == 0:
                    positions[name] = count
                elif node.op_type in ROW_TABLES and at == 0:
                    tables[name] = count
                    active.setdefault(name, dims(value)[-1])
                else:
                    others[name] = active[name] = count
    return Weights(matrices, tables, others, codes, sum(whole.values()), sum(positions.values()), sum(active.values()))


def initializers_of(model: ir.Model) -> dict[str, str]:
    """Of each value that is an initializer seen another way (transposed, say): the initializer's name."""
    roots = {name: name for name in model.graph.initializers}
    for node in model.graph:
        source = node.inputs[0] if node.inputs else None
        if not node.domain and node.op_type in _VIEWS and source is not None and source.name in roots:
            roots[node.outputs[0].name or ""] = roots[source.name]
    return roots
