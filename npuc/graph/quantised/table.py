"""Which operators read quantised weights, and the step that makes these constants."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from npuc.graph.clean import remove_dead
from npuc.graph.edit import Names
from npuc.graph.expand.place import Place
from npuc.graph.infer import Inference
from npuc.graph.quantised import operators
from npuc.graph.quantised.known import Known
from npuc.graph.quantised.weights import Weights

READERS: dict[tuple[str, str], Callable[[Place, Weights], None]] = {
    ("com.microsoft", "MatMulNBits"): operators.matmul_n_bits,
    ("com.microsoft", "GatherBlockQuantized"): operators.gather_block_quantized,
    ("", "DequantizeLinear"): operators.dequantize_linear,
}


def dequantise(model: ir.Model, inference: Inference) -> list[str]:
    """Gives every node that reads a quantised weight the dequantised one, in place; lines for the report.

    No number is computed here: the new constants compute theirs each time that they are read. Raises ModelRefused for a
    form that is not known.
    """
    names, weights = Names(model.graph), Weights(Known(inference))
    found = [node for node in model.graph if (node.domain, node.op_type) in READERS]
    for node in found:
        READERS[node.domain, node.op_type](Place(model.graph, node, names), weights)
    if found:
        remove_dead(model.graph)
    return weights.report()
