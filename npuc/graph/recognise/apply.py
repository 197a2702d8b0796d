"""Puts tables, masks and constants in the place of step-only values of one entry's graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import DOMAIN, Builder, is_op
from npuc.graph.recognise.bias import Bias
from npuc.graph.recognise.classify import Mask, Meaning, Table
from npuc.graph.recognise.probe import Columns

TABLE = "npuc.table"
"""Stem of the names of position tables: equal ones are held once."""


def apply_meanings(
    graph: ir.Graph,
    uses: Mapping[str, list[tuple[str, int]]],
    meanings: Mapping[str, Meaning],
    constants: Mapping[str, np.ndarray],
    n_past: ir.Value,
    rows: int,
    capacity: int,
) -> None:
    """Replaces the frontier values, in place, where data readers read them.

    uses: value name -> (name of the reader's first output, input index). constants: contents of the constant values for
    this entry's rows. Tables become npuc.StepRows of n_past, masks npuc.StepMask over the past columns that the caches
    have for `capacity` tokens and `rows` new ones. npuc.WriteRows writes from n_past on.
    """
    by_output = {output.name: node for node in graph for output in node.outputs}
    for name, readers in uses.items():
        value = _find(graph, by_output, name)
        first = next(iter(graph))
        origin = [node for node in [value.producer()] if node is not None]
        builder = Builder(graph, first, origin, stem=name)
        match meanings[name]:
            case Table() as table:
                new = _rows(builder, table, n_past, rows)
            case Mask() as mask:
                new = _mask(builder, mask, n_past, rows, capacity, name)
            case Bias() as bias:
                new = _bias(builder, bias, n_past, rows, capacity)
            case _:
                new = builder.constant(constants[name], name + "~constant")
        for reader, index in readers:
            by_output[reader].replace_input_with(index, new)
    for node in graph:
        if is_op(node, "WriteRows", domain=DOMAIN):
            node.replace_input_with(2, n_past)


def _find(graph: ir.Graph, by_output: Mapping[str | None, ir.Node], name: str) -> ir.Value:
    node = by_output.get(name)
    if node is None:
        return next(value for value in graph.inputs if value.name == name)
    return next(output for output in node.outputs if output.name == name)


def _rows(builder: Builder, table: Table, n_past: ir.Value, rows: int) -> ir.Value:
    """The value from a table [positions, ...] without axes of length 1, and the shape that the model wants."""
    others = table.table.shape[1:]
    dense = tuple(extent for extent in others if extent != 1)
    dtype = ir.DataType.from_numpy(table.table.dtype)
    held = builder.constant(table.table.reshape(len(table.table), *dense), TABLE)
    value = builder.op("StepRows", [held, n_past], (rows, *dense), dtype, {"rows": rows}, DOMAIN)
    before, after = others[: table.axis], others[table.axis :]
    moved = sum(extent != 1 for extent in before)
    axes = [*range(1, moved + 1), 0, *range(moved + 1, len(dense) + 1)]
    return builder.reshape(builder.transpose(value, axes), (*before, rows, *after))


def _extents(columns: Columns, rows: int, capacity: int) -> tuple[int, int]:
    """Slots of the past, and columns in all, of the graph's own caches."""
    if columns.slots is not None:
        return columns.slots, columns.slots
    past = min(capacity, capacity if columns.kept is None else columns.kept)
    return past, past + rows


def _bias(builder: Builder, bias: Bias, n_past: ir.Value, rows: int, capacity: int) -> ir.Value:
    past, columns = _extents(bias.columns, rows, capacity)
    attrs = {"rows": rows, "capacity": past, "slopes": [float(s) for s in bias.slopes]}
    if bias.columns.slots is not None:
        attrs["whole"] = 1
    shape = (1, bias.slopes.size, rows, columns)
    value = builder.op("StepBias", [n_past], shape, ir.DataType.FLOAT, attrs, DOMAIN)
    dtype = ir.DataType.from_numpy(bias.dtype)
    if dtype != ir.DataType.FLOAT:
        value = builder.op("Cast", [value], shape, dtype, {"to": dtype})
    return builder.reshape(value, (*bias.lead, rows, columns))


def _mask(builder: Builder, mask: Mask, n_past: ir.Value, rows: int, capacity: int, name: str) -> ir.Value:
    past, columns = _extents(mask.columns, rows, capacity)
    attrs = {"rows": rows, "capacity": past, "causal": int(mask.causal), "window": mask.window}
    if mask.columns.slots is not None:
        attrs["whole"] = 1
    seen = builder.op("StepMask", [n_past], (1, 1, rows, columns), ir.DataType.BOOL, attrs, DOMAIN)
    shape = (1,) * (mask.rank - 2) + (rows, columns) if mask.rank >= 2 else (rows, columns)
    if mask.visible.dtype == np.bool_:
        value = seen if mask.visible else builder.op("Not", [seen], (1, 1, rows, columns), ir.DataType.BOOL)
        return builder.reshape(value, shape)
    visible = builder.constant(np.array(mask.visible), name + "~visible")
    hidden = builder.constant(np.array(mask.hidden), name + "~hidden")
    dtype = ir.DataType.from_numpy(mask.visible.dtype)
    return builder.reshape(builder.op("Where", [seen, visible, hidden], (1, 1, rows, columns), dtype), shape)
