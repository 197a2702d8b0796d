"""An entry prepared once for all machines, formats and steps: operations, who loads what first, and lives of values.

Operations of equal layers are equal in all that a cost depends on, so each distinct one is priced once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from math import prod

import onnx_ir as ir

from npuc.bound.traffic import STEP_INPUTS
from npuc.estimate.experts import choice_of
from npuc.estimate.operations import Operation, operations_of
from npuc.graph.entry import EntryGraph
from npuc.graph.nodes import attributes, dims
from npuc.graph.quantised.packed import packed_node
from npuc.graph.state_pairs import NEXT_PREFIX

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
_NARROW = {ir.DataType.BOOL: 1, ir.DataType.INT8: 1, ir.DataType.UINT8: 1}


class Plan:
    """What the cost of an entry depends on besides the machine.

    names: of the operations. fresh: of each, the constants and inputs that none before it has loaded. kinds: of each, a
    number that equal operations share. lives: the places of maker and last reader of each value that operations make.
    """

    def __init__(self, graph: EntryGraph) -> None:
        self.graph = graph
        self.operations = operations_of(graph)
        self.names = tuple(operation.name for operation in self.operations)
        found = ((node, choice_of(node)) for node in graph.model.graph)
        self.experts = {node: choice for node, choice in found if choice is not None}
        self.fresh = _fresh(self.operations)
        numbers: dict[Hashable, int] = {}
        keys = [_key(op, new) for op, new in zip(self.operations, self.fresh, strict=True)]
        self.kinds = [numbers.setdefault(key, len(numbers)) for key in keys]
        self.lives = _lives(self.operations)
        self._sizes = [(at, value_bytes(value, 4), value_bytes(value, 2)) for value, at in self.lives.items()]

    def live_bytes(self, item: int, most: int) -> list[int]:
        """Bytes of the values of at most `most` bytes that live at each operation. item: of a float, 2 or 4."""
        return self._live(item, lambda size: size <= most)

    def spilled_bytes(self, item: int, most: int) -> int:
        """The largest sum of the values above `most` bytes that live at once."""
        return max(self._live(item, lambda size: size > most), default=0)

    def _live(self, item: int, counts: Callable[[int], bool]) -> list[int]:
        steps = [0] * (len(self.operations) + 1)
        for (first, last), wide, half in self._sizes:
            size = half if item == 2 else wide
            if counts(size):
                steps[first] += size
                steps[last + 1] -= size
        return list(accumulate(steps))[:-1]


def value_bytes(value: ir.Value, item: int) -> int:
    """Of a value in device memory; item: of a float."""
    each = item if value.dtype in FLOATS else _NARROW.get(value.dtype or ir.DataType.INT32, 4)
    return prod(dims(value)) * each


def _fresh(operations: Sequence[Operation]) -> list[frozenset[ir.Value]]:
    seen: set[str | None] = set(STEP_INPUTS)
    found = []
    for operation in operations:
        new = [
            v for v in operation.inputs() if v.name not in seen and (v.producer() is None or packed_node(v) is not None)
        ]
        seen.update(v.name for v in new)
        found.append(frozenset(new))
    return found


def _lives(operations: Sequence[Operation]) -> dict[ir.Value, tuple[int, int]]:
    lives: dict[ir.Value, tuple[int, int]] = {}
    for at, operation in enumerate(operations):
        for value in operation.inputs():
            if value in lives:
                lives[value] = lives[value][0], at
        for value in operation.outputs():
            lives[value] = at, at
    return lives


def _key(operation: Operation, fresh: frozenset[ir.Value]) -> Hashable:
    """Equal for operations that cost the same on every machine."""
    place = {output: at for at, node in enumerate(operation.nodes) for output in node.outputs}
    outside = set(operation.outputs())
    nodes = tuple(
        (
            node.domain, node.op_type, repr(sorted(attributes(node).items(), key=lambda item: item[0])),
            tuple(None if v is None else (place.get(v, -1), _kind(v), v in fresh) for v in node.inputs),
            tuple((_kind(v), v in outside, (v.name or "").startswith(NEXT_PREFIX)) for v in node.outputs if v.name),
        )
        for node in operation.nodes
    )  # fmt: skip
    return operation.kind, nodes


def _kind(value: ir.Value) -> Hashable:
    shape = None if value.shape is None else tuple(value.shape)
    return value.dtype, shape, value.const_value is not None, value.is_graph_input(), value.is_graph_output()
