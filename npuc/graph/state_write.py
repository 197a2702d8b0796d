"""Pairs to the stateful form: what `npuc opt --step pairs-to-state` writes (docs/stateful-format.md)."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.cleanup import name_nodes
from npuc.graph.edit import Names, cloned
from npuc.graph.state_declare import ASSIGN, DOMAIN, READ, VERSION
from npuc.graph.state_pairs import Pair, find_pairs


def pairs_to_state(model: ir.Model, dims: Mapping[str, int] | None = None) -> ir.Model:
    """The model with a ReadValue and an Assign for each pair of a state input and a state output: a new model.

    dims: extents of named dimensions of the states. One that is not given is an error, except on the first axis,
    which is the batch and 1. Raises ModelRefused.
    """
    result, problems = cloned(model), Problems()
    name_nodes(result)
    pairs = find_pairs(result)
    if not pairs:
        problems.add("the graph has no pair of a state input and a state output")
    shapes = [_shape(pair, dims or {}, problems) for pair in pairs]
    problems.refuse()
    names = Names(result.graph)
    reads = [_write(result.graph, pair, shape, names) for pair, shape in zip(pairs, shapes, strict=True)]
    result.graph.insert_before(result.graph[0], reads)
    result.opset_imports[DOMAIN] = VERSION
    return result


def _shape(pair: Pair, dims: Mapping[str, int], problems: Problems) -> list[int]:
    """The declared shape: -1 where it grows."""
    shape: list[int] = []
    if pair.before.shape is None or pair.before.dtype is None:
        problems.add(f"state input {pair.before.name!r} has no shape or no element type")
        return shape
    for axis, dim in enumerate(pair.before.shape):
        if isinstance(dim, int):
            shape.append(dim)
        elif axis == pair.growing_axis:
            shape.append(-1)
        elif dim.value is not None and dim.value in dims:
            shape.append(dims[dim.value])
        elif axis == 0:
            shape.append(1)
        else:
            problems.add(f"dimension {dim.value!r} of the states has no value: give it one, --dim {dim.value}=N")
    return shape


def _write(graph: ir.Graph, pair: Pair, shape: list[int], names: Names) -> ir.Node:
    """Takes a pair's ports out and puts the Assign last, in place; returns the ReadValue. The values keep their
    names.
    """
    key, before, after = pair.id, pair.before, pair.after
    assert before.dtype is not None
    attributes = [
        ir.AttrString("variable_id", key),
        ir.AttrInt64s("shape", shape),
        ir.AttrInt64("dtype", int(before.dtype)),
    ]
    read = ir.Node(DOMAIN, READ, [], attributes, name=names.node(f"{READ}.{key}"))
    value = read.outputs[0]
    graph.inputs.remove(before)
    name, before.name = before.name, names.value(f"{before.name}.input")
    value.name, value.type = name, before.type
    value.shape = ir.Shape([f"{key}.rows" if d < 0 else d for d in shape])
    before.replace_all_uses_with(value, replace_graph_outputs=True)
    source = value if after is before else after
    place = next(i for i, output in enumerate(graph.outputs) if output is source)
    del graph.outputs[place]
    assign = ir.Node(DOMAIN, ASSIGN, [source], attributes, name=names.node(f"{ASSIGN}.{key}"))
    assign.outputs[0].name = names.value(f"{source.name}.assigned")
    assign.outputs[0].type = source.type
    graph.append(assign)
    return read
