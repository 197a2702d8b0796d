"""Which operators are written out, and the step that does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.graph.edit import Names
from npuc.graph.expand import attention, convolution, experts, multihead, rotary, vendor
from npuc.graph.expand.place import Place
from npuc.graph.normalise import stamp

ORT = "com.microsoft"

EXPANSIONS: dict[tuple[str, str], Callable[[Place], None]] = {
    ("", "Attention"): attention.attention,
    ("", "RotaryEmbedding"): rotary.rotary_embedding,
    (ORT, "RotaryEmbedding"): rotary.rotary_embedding_ort,
    (ORT, "GroupQueryAttention"): attention.group_query_attention,
    (ORT, "MultiHeadAttention"): multihead.multi_head_attention,
    (ORT, "CausalConvWithState"): convolution.causal_conv_with_state,
    (ORT, "SkipSimplifiedLayerNormalization"): vendor.skip_rms_norm,
    (ORT, "SkipLayerNormalization"): vendor.skip_layer_norm,
    (ORT, "FastGelu"): vendor.fast_gelu,
    (ORT, "Gelu"): vendor.gelu,
    (ORT, "BiasGelu"): vendor.gelu,
    (ORT, "QuickGelu"): vendor.quick_gelu,
    (ORT, "FusedMatMul"): vendor.fused_matmul,
    (ORT, "MoE"): experts.mixture,
}


def expand(model: ir.Model) -> int:
    """Writes out every node of the table, in place; their number. Raises ModelRefused for a form it does not know."""
    names, problems = Names(model.graph), Problems()
    found = [node for node in model.graph if (node.domain, node.op_type) in EXPANSIONS]
    if found:
        _note_types(model, found)
    for node in found:
        with problems.collecting():
            EXPANSIONS[node.domain, node.op_type](Place(model.graph, node, names))
    problems.refuse()
    if found:
        stamp(model)
    return len(found)


def _note_types(model: ir.Model, nodes: Sequence[ir.Node]) -> None:
    """Writes down, in place, what can be inferred of these nodes' operands: many files say nothing of inner values."""
    types = infer(model, Problems())
    for value in (value for node in nodes for value in node.inputs if value is not None):
        dims, dtype = types.dims(value), types.dtype(value)
        if value.shape is None and dims is not None:
            value.shape = ir.Shape(dims)
        if value.type is None and dtype is not None:
            value.type = ir.TensorType(ir.DataType(dtype))
