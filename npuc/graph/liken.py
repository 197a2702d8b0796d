"""CastLike in a static graph, where every value has a type: it is a Cast."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.nodes import Builder, attributes, dims, is_op, replace_value


def write_out_casts(graph: ir.Graph) -> None:
    """Every CastLike becomes a Cast, in place."""
    for node in [n for n in graph if is_op(n, "CastLike")]:
        source, like = node.inputs[0], node.inputs[1]
        assert source is not None and like is not None and like.dtype is not None, "every value has a type"
        saturate = {} if attributes(node).get("saturate", 1) else {"saturate": 0}
        cast = Builder(graph, node, [node]).op(
            "Cast", [source], dims(source), like.dtype, {"to": like.dtype, **saturate}
        )
        replace_value(node.outputs[0], cast)
