"""Values that a graph computes from constants alone, by operators that give the same bytes on every host."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

# Moves, integer arithmetic and comparisons, and float operations of one rounding.
_EXACT = frozenset(
    {
        "Add",
        "And",
        "Cast",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Expand",
        "Flatten",
        "Gather",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Range",
        "Reshape",
        "Shape",
        "Slice",
        "Split",
        "Squeeze",
        "Sub",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
        "Xor",
    }
)
_MAX_ELEMENTS = 1 << 28  # of a folded value: 1 GiB of float


def constant_value(value: ir.Value, opsets: dict[str, int]) -> np.ndarray | None:
    """The array behind an initializer or behind nodes that read constants only; None if a value of the run is
    involved.
    """
    if value.const_value is not None and value.producer() is None:
        return None if value.is_graph_input() else value.const_value.numpy()
    known: dict[ir.Value, np.ndarray] = {}
    for node in _needed(value) or ():
        if not _run(node, known, opsets):
            return None
    return known.get(value)


def _needed(value: ir.Value) -> list[ir.Node] | None:
    """The nodes behind a value in running order, None if one is not exact or reads something that is no constant."""
    done: dict[ir.Node, None] = {}
    stack = [(value.producer(), False)]
    while stack:
        node, ready = stack.pop()
        if node is None or node.domain != "" or node.op_type not in _EXACT:
            return None
        if ready:
            done.setdefault(node)
            continue
        if node in done:
            continue
        stack.append((node, True))
        for source in node.inputs:
            if source is None or source.is_initializer():
                continue
            stack.append((source.producer(), False))
    return list(done)


def _run(node: ir.Node, known: dict[ir.Value, np.ndarray], opsets: dict[str, int]) -> bool:
    """Computes one node; False if its result would be too large or it does not run."""
    feeds: dict[str, np.ndarray] = {}
    for value in node.inputs:
        if value is not None:
            tensor = value.const_value
            feeds[value.name or ""] = known[value] if value in known else np.asarray(tensor.numpy() if tensor else None)
    if _elements(node, list(feeds.values())) > _MAX_ELEMENTS:
        return False
    proto = ir.serde.serialize_node(node)
    graph = onnx.helper.make_graph(
        [proto],
        "fold",
        [onnx.ValueInfoProto(name=n) for n in feeds],
        [onnx.ValueInfoProto(name=v.name) for v in node.outputs],
    )
    imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items() if d == ""]
    try:
        results = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports)).run(None, feeds)
    except Exception:  # whatever the evaluator says, the value is not constant for us, and its reader says so by name
        return False
    for value, result in zip(node.outputs, results, strict=True):
        known[value] = np.asarray(result)
    return True


def _elements(node: ir.Node, feeds: list[np.ndarray]) -> float:
    """Elements of the result of a node that can make its result larger than its inputs."""
    if node.op_type == "ConstantOfShape":
        return math.prod(float(d) for d in feeds[0])
    if node.op_type in ("Expand", "Tile"):
        return float(max(feeds[0].size, 1)) * math.prod(float(d) for d in feeds[1])
    if node.op_type == "Range":
        return abs(float(feeds[1]) - float(feeds[0])) / max(abs(float(feeds[2])), 1e-30)
    return float(sum(f.size for f in feeds))
