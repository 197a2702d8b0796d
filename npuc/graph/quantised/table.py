"""Which operators read quantised weights, and the step that makes these constants."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.clean import remove_dead
from npuc.graph.edit import Names
from npuc.graph.expand.place import Place
from npuc.graph.infer import Inference
from npuc.graph.quantised import activations, integers, operators
from npuc.graph.quantised.known import Known
from npuc.graph.quantised.packed import attach
from npuc.graph.quantised.plain import is_of_the_run
from npuc.graph.quantised.weights import Weights

ORT = "com.microsoft"

WRITTEN_OUT: dict[tuple[str, str], Callable[[Place, Weights], None]] = {
    (ORT, "DynamicQuantizeMatMul"): integers.dynamic_matmul,
    (ORT, "MatMulIntegerToFloat"): integers.integer_to_float,
    ("", "QLinearMatMul"): integers.qlinear_matmul,
}
"""Operators that are said by several of those that READERS knows."""

READERS: dict[tuple[str, str], Callable[[Place, Weights], None]] = {
    (ORT, "MatMulNBits"): operators.matmul_n_bits,
    (ORT, "GatherBlockQuantized"): operators.gather_block_quantized,
    ("", "DequantizeLinear"): operators.dequantize_linear,
    ("", "QuantizeLinear"): activations.quantize_value,
    ("", "DynamicQuantizeLinear"): activations.count_scale_of_a_run,
    ("", "MatMulInteger"): integers.integer_product,
    ("", "ConvInteger"): activations.refuse_integers,
    ("", "QLinearConv"): activations.refuse_integers,
    (ORT, "MatMulInteger16"): activations.refuse_integers,
    (ORT, "QAttention"): activations.refuse_integers,
}

REFUSED = (activations.refuse_integers,)
"""Readers that only say why not."""

_SAME_AS_STANDARD = ("DequantizeLinear", "QuantizeLinear")
"""onnxruntime had types first that operator set 21 has, too; the formula and the attribute `axis` are the same."""


def dequantise(model: ir.Model, inference: Inference, *, plain: bool = False, per_channel: bool = False) -> list[str]:
    """Gives every node that reads a quantised weight the dequantised one, in place; lines for the report.

    Rounding of values of the run to codes is written out in arithmetic. plain: in a plain graph that is done where
    shapes are static (npuc.graph.quantised.plain).

    No number is computed here: the new constants compute theirs each time that they are read. Raises ModelRefused for a
    form that is not known.
    """
    for node in model.graph:
        if node.domain == ORT and node.op_type in _SAME_AS_STANDARD:
            node.domain = ""
    attach(model.graph)
    names, weights = Names(model.graph), Weights(Known(inference), model, per_channel)
    changed, problems = False, Problems()
    for table in (WRITTEN_OUT, READERS):
        for node in [node for node in model.graph if (node.domain, node.op_type) in table]:
            if not (plain and is_of_the_run(node, weights.known)):
                with problems.collecting():
                    table[node.domain, node.op_type](Place(model.graph, node, names), weights)
                changed = True
    problems.refuse()
    if changed:
        remove_dead(model.graph)
    return weights.report()
