"""The cut between body and head: the last value that is a function of a row alone before the vocabulary product."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.clean import remove_dead
from npuc.graph.fuse.region import graph_order, nearest_source
from npuc.graph.nodes import Builder, dims, is_op, replace_value
from npuc.graph.static import Draft

HIDDEN = "hidden"
LOGITS = "logits"

_PRODUCTS = frozenset({"MatMul", "Gemm"})
"""Operators that multiply with a weight."""

_AROUND = _PRODUCTS | frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Tanh",
        "Cast",
        "Round",
        "Clip",
        "Reshape",
        "Transpose",
        "Identity",
        "Squeeze",
        "Unsqueeze",
        "Gather",
        "Slice",
    }
)
"""Operators that may stand between the cut and the logits."""

_ROW_CHOICES = ("Reshape", "Gather", "Slice", "Squeeze", "Unsqueeze", "Cast", "Identity")


def find_cut(graph: ir.Graph, logits: str, rows: int) -> str:
    """Name of the value between body and head, in a folded graph with `rows` rows.

    It is the data input of the last product with a constant weight before the logits, or, where only some of the rows
    go on to it, the value with all rows. Raises ModelRefused if the logits do not come from such a product.
    """
    value = next(v for v in graph.outputs if v.name == logits)
    region = nearest_source(
        value,
        lambda node: node.op_type in _AROUND,
        lambda nodes: any(map(_is_product, nodes)),
        graph_order(graph),
        behind=_is_weight,
    )
    if isinstance(region, str):
        raise ModelRefused(
            [f"head and body cannot be told apart: no product with a constant weight ends in the logits ({region})"]
        )
    return _before_row_choice(region.sources[0], rows).name or ""


def _is_product(node: ir.Node) -> bool:
    return node.op_type in _PRODUCTS and any(map(_is_weight, node.inputs[1:]))


def _is_weight(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None


def _before_row_choice(value: ir.Value, rows: int) -> ir.Value:
    """The value with all rows from which only the last ones go on, else the value itself."""
    width = dims(value)[-1]
    current = value
    while True:
        if dims(current)[-1] == width and _rows(current) == rows:
            return value if _rows(value) == rows else current
        node = current.producer()
        if node is None or not is_op(node, *_ROW_CHOICES) or node.inputs[0] is None:
            return value
        current = node.inputs[0]


def _rows(value: ir.Value) -> int:
    result = 1
    for extent in dims(value)[:-1]:
        result *= extent
    return result


def cut_body(draft: Draft, cut: str, logits: str) -> int:
    """Leaves the body, from the inputs to HIDDEN [1, rows, width], in place. Returns the width."""
    graph = draft.graph
    value = _named(graph, cut)
    width, node = dims(value)[-1], value.producer()
    assert node is not None
    place = next(i for i, v in enumerate(graph.outputs) if v.name == logits)
    after = next(iter(value.uses())).node
    graph.outputs[place] = Builder(graph, after, [node]).reshape(value, (1, draft.rows, width))
    draft.outputs[place] = HIDDEN
    remove_dead(graph)
    return width


def head_of(draft: Draft, cut: str, logits: str) -> Draft:
    """A new draft with what follows the cut in a draft that has not been cut: HIDDEN [1, rows, width] to LOGITS."""
    model = draft.model.clone()
    graph = model.graph
    value = _named(graph, cut)
    shape = (1, draft.rows, dims(value)[-1])
    given = ir.Value(name=HIDDEN, shape=ir.Shape(shape), type=value.type)
    first = next(iter(value.uses())).node
    graph.inputs.append(given)
    replace_value(value, Builder(graph, first, [first]).reshape(given, dims(value)))
    kept = next(v for v in graph.outputs if v.name == logits)
    graph.outputs.clear()
    graph.outputs.append(kept)
    remove_dead(graph)
    for unused in [v for v in graph.inputs if v is not given]:
        graph.inputs.remove(unused)
    return Draft("head", draft.rows, 0, model, {given: shape}, None, [LOGITS])


def _named(graph: ir.Graph, name: str) -> ir.Value:
    return next(output for node in graph for output in node.outputs if output.name == name)
