"""Pairs to arguments: graph inputs and outputs that are the value of one state before and after a run."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from npuc.graph.edit import Names, identity, redirect, source_of
from npuc.graph.state_names import pair_names
from npuc.graph.state_window import last_rows
from npuc.graph.tokens import ids_input

READ_PREFIX, NEXT_PREFIX = "state.", "next."
# Attention operators with caches of their own: (domain, op) -> (input index of a cache, output index of the same
# cache).
CACHE_OPS: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {
    ("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2)),
    ("com.microsoft", "MultiHeadAttention"): ((6, 1), (7, 2)),
    ("", "Attention"): ((4, 1), (5, 2)),
}
# Operators that write into a state: (input index, output index).
WRITE_OPS: dict[tuple[str, str], tuple[int, int]] = {
    ("", "TensorScatter"): (0, 0),
    ("com.microsoft", "CausalConvWithState"): (3, 1),
}
CACHE_ROWS_AXIS = 2  # of [batch, heads, rows, head size], in all of these


@dataclass(frozen=True, eq=False)
class Pair:
    """before: a graph input, after: the graph output that the next run gets in its place. growing_axis: None: none."""

    before: ir.Value
    after: ir.Value
    growing_axis: int | None

    @property
    def id(self) -> str:
        """The name of the input, which is unique among the inputs; that of the state in npuc's own pure form."""
        return (self.before.name or "").removeprefix(READ_PREFIX)


def find_pairs(model: ir.Model) -> list[Pair]:
    """Every pair of a graph, in the order of its inputs: by name, then by structure (any names, in a decoder only).

    By structure: the input, behind Identity nodes, is the first operand of a Concat whose result, or whose last rows,
    are the output, or the operand of an operator that gives a cache or a window on as the output. In a graph that is no
    decoder such an input stays a plain input unless its name says otherwise: it may be data that the caller wants
    joined.
    """
    graph = model.graph
    inputs, outputs = {v.name or "": v for v in graph.inputs}, {v.name or "": v for v in graph.outputs}
    found: dict[str, Pair] = {}
    for before, after in pair_names(list(inputs), list(outputs)):
        if _alike(inputs[before], outputs[after]):
            found[before] = Pair(inputs[before], outputs[after], _growing_axis(inputs[before], outputs[after]))
    if ids_input(model) is not None:
        taken = {id(pair.after) for pair in found.values()}
        for name, value in inputs.items():
            grown = None if name in found else _grown(value, outputs)
            if grown is not None and id(grown) not in taken and _alike(value, grown):
                axis = _growing_axis(value, grown)
                if axis is not None or not _is_longer(value, grown):
                    found[name] = Pair(value, grown, axis)
                    taken.add(id(grown))
    return [found[name] for name in inputs if name in found]


def joined(after: ir.Value, before: ir.Value) -> tuple[ir.Node, int] | None:
    """The node that puts rows behind `before` to make `after`, and the axis it does so on; None if nothing does."""
    made = source_of(after)
    node = made.producer() if made is not None else None
    if node is None or made is None:
        return None
    if node.op_type == "Concat" and node.domain == "":
        if source_of(node.inputs[0]) is not before or len(node.inputs) != 2 or source_of(node.inputs[1]) is before:
            return None
        axis = node.attributes["axis"].as_int()
        return node, axis
    for source, result in CACHE_OPS.get((node.domain, node.op_type), ()):
        if made.index() == result and len(node.inputs) > source and source_of(node.inputs[source]) is before:
            return node, CACHE_ROWS_AXIS
    return None


def _grown(value: ir.Value, outputs: dict[str, ir.Value]) -> ir.Value | None:
    """The graph output that is an input with rows put behind it or written into it, or the last rows of that."""
    rank = len(value.shape) if value.shape is not None else 0
    for output in outputs.values():
        if joined(output, value) is not None or _written(output, value) or last_rows(output, value, rank) is not None:
            return output
    return None


def _written(after: ir.Value, before: ir.Value) -> bool:
    """Whether an operator of WRITE_OPS makes `after` of `before`."""
    made = source_of(after)
    node = made.producer() if made is not None else None
    if node is None or made is None or (node.domain, node.op_type) not in WRITE_OPS:
        return False
    source, result = WRITE_OPS[node.domain, node.op_type]
    return made.index() == result and len(node.inputs) > source and source_of(node.inputs[source]) is before


def _is_longer(before: ir.Value, after: ir.Value) -> bool:
    """Whether a Concat makes `after` of `before` and more rows."""
    put = joined(after, before)
    return put is not None and put[0].op_type == "Concat"


def _alike(before: ir.Value, after: ir.Value) -> bool:
    """Whether the output can be the input of the next run, as far as their types say."""
    if before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
        return False
    if before.shape is None or after.shape is None:
        return True
    return len(before.shape) == len(after.shape) and all(
        a == b for a, b in zip(before.shape, after.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    )


def _growing_axis(before: ir.Value, after: ir.Value) -> int | None:
    """The axis that rows are put on; without such a node, the one open axis whose extent has another name after the
    run.
    """
    if before.shape is None:
        return None
    open_axes = [i for i, d in enumerate(before.shape) if not isinstance(d, int)]
    put = joined(after, before)
    if put is not None:
        axis = put[1] % len(before.shape)
        return axis if axis in open_axes else None
    if after.shape is None:
        return None
    changed = [i for i in open_axes if before.shape[i] != after.shape[i]]
    return changed[0] if len(changed) == 1 else None


def rename_pair(graph: ir.Graph, pair: Pair, names: Names) -> tuple[ir.Value, ir.Value]:
    """Gives input and output their names in the pure graph, in place. Returns both."""
    key, before, after = pair.id, pair.before, pair.after
    if after.producer() is None:  # an input or a constant that is an output as well has one name for two ports
        place = next(i for i, value in enumerate(graph.outputs) if value is after)
        node = identity(after, NEXT_PREFIX + key, names.node(NEXT_PREFIX + key))
        graph.append(node)
        graph.outputs[place] = after = node.outputs[0]
    else:
        after = keep_inner_type(graph, before, after, names)
    before.name, after.name = READ_PREFIX + key, NEXT_PREFIX + key
    return before, after


def keep_inner_type(graph: ir.Graph, before: ir.Value, after: ir.Value, names: Names) -> ir.Value:
    """A float state that the graph narrows on its way in and widens on its way out is kept in the narrow type.

    Nothing changes: it starts without rows, so every number in it was a narrow one before it was widened. (float16
    exports with float32 inputs and outputs.) Returns the output, in place of which the narrow one may have come.
    """
    casts = [use.node for use in before.uses()]
    kinds = {node.attributes["to"].as_int() if node.op_type == "Cast" and node.domain == "" else None for node in casts}
    widen = after.producer()
    if len(kinds) != 1 or widen is None or widen.op_type != "Cast" or before.dtype != ir.DataType.FLOAT:
        return after
    inner = kinds.pop()
    narrow = widen.inputs[0]
    if inner not in _NARROW or narrow is None or not any(joined(narrow, node.outputs[0]) for node in casts):
        return after
    kind = ir.TensorType(ir.DataType(inner))
    before.type = kind
    for node in casts:
        redirect(graph, node.outputs[0], before, names)
        graph.remove(node, safe=True)
    place = next(i for i, value in enumerate(graph.outputs) if value is after)
    redirect(graph, after, narrow, names)
    graph.remove(widen, safe=True)
    after = graph.outputs[place]
    after.type = kind
    return after


_NARROW = (int(ir.DataType.FLOAT16), int(ir.DataType.BFLOAT16))
