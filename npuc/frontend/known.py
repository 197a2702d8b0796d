"""Which operators exist: the ONNX schemas, functions of the model itself, and two short lists of what exporters add."""

from __future__ import annotations

import onnx.defs
import onnx_ir as ir

# Oldest and newest operator set of ai.onnx that normalisation has rules for (npuc.graph.normalise).
OLDEST_OPSET, NEWEST_OPSET = 11, 28

# onnxruntime's fusions write this one into the default domain, where the standard does not have it. It has the inputs,
# outputs and attributes of a standard operator: (name, operator set).
_UNOFFICIAL = {"SimplifiedLayerNormalization": ("LayerNormalization", 17)}

# Operators of onnxruntime's domain that decoder exports use (onnxruntime docs/ContribOperators.md).
_MICROSOFT = frozenset(
    {
        "Attention",
        "BiasGelu",
        "CausalConvWithState",
        "DequantizeLinear",
        "DynamicQuantizeMatMul",
        "EmbedLayerNormalization",
        "FastGelu",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GatherBlockQuantized",
        "Gelu",
        "GroupQueryAttention",
        "LinearAttention",
        "MatMulInteger16",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "MoE",
        "MultiHeadAttention",
        "PackedAttention",
        "PackedMultiHeadAttention",
        "PagedAttention",
        "QAttention",
        "QMoE",
        "QuantizeLinear",
        "QuickGelu",
        "RotaryEmbedding",
        "SkipGroupNorm",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "SparseAttention",
        "TransposeMatMul",
        "Trilu",
        "Unique",
    }
)
_NO_VERSION = 1 << 31  # the schema library takes an int32
_STATE_OPS = frozenset({"ReadValue", "Assign"})
_EXTRA = {"": frozenset(_UNOFFICIAL), "com.microsoft": _MICROSOFT, "npuc": _STATE_OPS}


def schema_of(node: ir.Node, opsets: dict[str, int]) -> onnx.defs.OpSchema | None:
    """The ONNX schema of a node in the operator sets of its model, or None where the standard has none."""
    if node.domain == "" and node.op_type in _UNOFFICIAL:
        return onnx.defs.get_schema(*_UNOFFICIAL[node.op_type])
    version = opsets.get(node.domain)
    if version is None or not 0 < version < _NO_VERSION or not onnx.defs.has(node.op_type, version, node.domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    return None if schema.deprecated else schema


def means_the_same(node: ir.Node, version: int) -> bool:
    """Whether an older operator set has the operator as OLDEST_OPSET has it."""
    if node.domain != "" or not onnx.defs.has(node.op_type, version, ""):
        return node.domain != ""
    schemas = [onnx.defs.get_schema(node.op_type, opset, "") for opset in (version, OLDEST_OPSET)]
    return schemas[0].since_version == schemas[1].since_version


def is_known(node: ir.Node, model: ir.Model) -> bool:
    """Whether an operator exists for npuc at all. What is known may still be refused later, with the reason."""
    if node.op_type in _EXTRA.get(node.domain, ()) or node.op_identifier() in model.functions:
        return True
    return schema_of(node, model.opset_imports) is not None


def unknown_text(node: ir.Node, model: ir.Model) -> str:
    """Why the operator of a node is not known."""
    domain = node.domain or "ai.onnx"
    if node.domain not in model.opset_imports:
        return f"its domain {domain} is not among the operator sets that the model imports"
    if node.domain in _EXTRA or any(schema.domain == node.domain for schema in onnx.defs.get_all_schemas()):
        return f"domain {domain} has no operator {node.op_type} in operator set {model.opset_imports[node.domain]}"
    return (
        f"operator {node.op_type} is of domain {domain}, which npuc does not know; it needs a body, as a function of "
        f"the model, which --kernel {domain}::{node.op_type}=FILE.py:NAME may then replace"
    )
