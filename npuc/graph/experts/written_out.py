"""Mixtures of experts as plain products over all experts, for whoever prices a graph operator by operator."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from npuc.graph.entry import EntryGraph
from npuc.graph.nodes import DOMAIN, Builder, attributes, dims, is_op, replace_value

_FUNCTIONS = ("Sigmoid", "Gelu", "Gelu", "Relu", "Identity")  # by number of `form.KINDS`; silu is a product more


def written_out(entry: EntryGraph) -> EntryGraph:
    """The entry with each npuc.MoE as MatMul nodes over constants [E, K, F] and [E, F, N]; as it is without one.

    The constants have shapes and no content. Biases and limits, whose cost is small, are left out.
    """
    if not any(is_op(node, "MoE", domain=DOMAIN) for node in entry.model.graph):
        return entry
    model = entry.model.clone()
    for node in [node for node in model.graph if is_op(node, "MoE", domain=DOMAIN)]:
        replace_value(node.outputs[0], _products(model.graph, node))
    return replace(entry, model=model)


def _products(graph: ir.Graph, node: ir.Node) -> ir.Value:
    x, indices, weights, gate, _, down = node.inputs[:6]
    assert x is not None and indices is not None and weights is not None and gate is not None and down is not None
    dtype = x.dtype or ir.DataType.FLOAT
    attrs = attributes(node)
    (e, f, k), n, chosen = dims(gate), dims(down)[1], dims(indices)[-1]
    rows = prod(dims(x)[:-1])
    make = Builder(graph, node, [node])

    def layer(value: ir.Value, depth: int, columns: int, part: str) -> ir.Value:
        shape = ir.Shape([e, depth, columns])
        name = f"{node.name}.{part}.turned"
        tensor = ir.LazyTensor(lambda: ir.Tensor(np.zeros((e, depth, columns), dtype.numpy())), dtype, shape, name=name)
        constant = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype), const_value=tensor)
        graph.register_initializer(constant)
        return make.op("MatMul", [value, constant], [e, rows, columns], dtype)

    flat = make.reshape(x, [1, rows, k])
    hidden = layer(flat, k, f, "gate")
    function = make.op(_FUNCTIONS[attrs.get("kind", 0)], [hidden], [e, rows, f], dtype)
    hidden = make.op("Mul", [hidden, function], [e, rows, f], dtype) if attrs.get("kind", 0) == 0 else function
    if attrs.get("gated", 1):
        hidden = make.op("Mul", [hidden, layer(flat, k, f, "up")], [e, rows, f], dtype)
    results = layer(hidden, f, n, "down")
    off_on = make.constant(np.array([0.0, 1.0], dtype.numpy()), "npuc.off_on")
    depth, middle, front = (make.constant(np.array([v], np.int64), f"npuc.int.{v}") for v in (e, 1, 0))
    hot = make.op("OneHot", [make.reshape(indices, [rows, chosen]), depth, off_on], [rows, chosen, e], dtype)
    spread = make.op("Mul", [hot, make.reshape(weights, [rows, chosen, 1])], [rows, chosen, e], dtype)
    share = make.op("ReduceSum", [spread, middle], [rows, e], dtype, {"keepdims": 0})
    weighed = make.op(
        "Mul", [results, make.reshape(make.transpose(share, [1, 0]), [e, rows, 1])], [e, rows, n], dtype
    )  # fmt: skip
    total = make.op("ReduceSum", [weighed, front], [rows, n], dtype, {"keepdims": 0})
    return make.reshape(total, dims(node.outputs[0]))
