"""Caches that a model rounds to codes and back as a whole: their new rows are rounded before they are joined.

A cache that starts empty and is rounded in each run holds rounded rows alone, and rounding those again changes none:
the code of (code - zero) * scale is that code. (Static quantisers put the pair behind the Concat whose result they have
listed.)
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from npuc.graph.edit import Names, redirect
from npuc.graph.infer import Inference
from npuc.graph.nodes import is_op
from npuc.graph.quantised.known import Known
from npuc.graph.state_info import StateInfo

_DOMAINS = ("", "com.microsoft")


def round_new_rows(graph: ir.Graph, states: Sequence[StateInfo], inference: Inference) -> list[str]:
    """Moves the rounding of growing states in front of the Concat that joins their rows, in place; for the report."""
    names, known, count = Names(graph), Known(inference), 0
    inputs = {value.name: value for value in graph.inputs}
    for state in states:
        after = next((value for value in graph.outputs if value.name == state.output), None)
        before = inputs.get(state.input)
        empty = state.growing_axis is not None and (state.initial is None or not state.initial.size)
        if after is not None and before is not None and empty and _move(graph, before, after, known, names):
            count += 1
    return [f"{count} caches are rounded to codes as a whole: their new rows are, before they join"] if count else []


def _move(graph: ir.Graph, before: ir.Value, after: ir.Value, known: Known, names: Names) -> bool:
    widen = _made_by(after, "DequantizeLinear")
    narrow = _made_by(widen.inputs[0], "QuantizeLinear") if widen is not None else None
    join = _made_by(narrow.inputs[0], "Concat") if narrow is not None else None
    if widen is None or narrow is None or join is None or len(join.inputs) != 2 or join.inputs[0] is not before:
        return False
    joined, rows = join.outputs[0], join.inputs[1]
    alone = {use.node for use in joined.uses()} == {narrow} and not joined.is_graph_output()
    paired = {use.node for use in narrow.outputs[0].uses()} == {widen} and not narrow.outputs[0].is_graph_output()
    if not alone or not paired or not _same_numbers(narrow, widen, known):
        return False
    redirect(graph, widen.outputs[0], joined, names)
    graph.remove([narrow, widen])
    graph.insert_before(join, [narrow, widen])
    narrow.replace_input_with(0, rows)
    join.replace_input_with(1, widen.outputs[0])
    return True


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if any(is_op(node, op_type, domain=domain) for domain in _DOMAINS) else None


def _same_numbers(narrow: ir.Node, widen: ir.Node, known: Known) -> bool:
    """Whether both have one constant scale and one zero point, the same ones."""
    for index in (1, 2):
        tensors = [known.tensor(node.inputs[index]) if len(node.inputs) > index else None for node in (narrow, widen)]
        first, second = tensors
        if first is None or second is None:
            return index == 2 and first is second and len(narrow.inputs) == len(widen.inputs) == 2
        if first.size != 1 or second.size != 1 or first.dtype != second.dtype or first.numpy() != second.numpy():
            return False
    return True
