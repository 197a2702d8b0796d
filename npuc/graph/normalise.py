"""Normalisation: whatever operator set a file was written in, the graph is said in set 21 afterwards.

The table lists every operator whose meaning or form changed between set 11 and set 28. All others changed in their
element types alone. (The version converters of the ONNX libraries are not used: they know fewer operators and stamp
models that they did not convert.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.graph import normalise_forms as forms
from npuc.graph.cleanup import drop_passing_nodes, lift_constants, name_nodes
from npuc.graph.edit import Names, cloned
from npuc.graph.site import Site

TARGET = 21
# Kept as they are for the recogniser, with the operator set that brought them: set 21 cannot say them.
LATER_OPS = {"Attention": 23, "RotaryEmbedding": 23, "TensorScatter": 24}


@dataclass(frozen=True)
class Rule:
    """Rewrites the nodes of some operators of ai.onnx in files of the operator sets first..last."""

    ops: tuple[str, ...]
    first: int
    last: int
    apply: Callable[[Site], None]


RULES = (
    Rule(("Softmax", "LogSoftmax", "Hardmax"), 11, 12, forms.flattened),
    Rule(("Squeeze", "Unsqueeze", "ReduceSum"), 11, 12, forms.axes_to_input),
    Rule(
        (
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceSumSquare",
        ),
        11,
        17,
        forms.axes_to_input,
    ),
    Rule(("Split",), 11, 12, forms.split_to_input),
    Rule(("Split",), 13, 17, forms.split_in_equal_parts),
    Rule(("Dropout",), 11, 28, forms.dropout),
    Rule(("BatchNormalization",), 11, 13, forms.batch_normalization),
    Rule(("CastLike",), 15, 28, forms.cast_like),
    Rule(("SimplifiedLayerNormalization", "RMSNormalization"), 11, 28, forms.rms_normalization),
    Rule(("QuantizeLinear", "DequantizeLinear"), 23, 28, forms.quantization),
    Rule(("Cast",), 24, 28, forms.cast),
    Rule(("Swish",), 24, 28, forms.swish),
    Rule(("OneHot",), 11, 28, forms.one_hot),
    Rule(("Resize",), 11, 12, forms.other_meaning),
    Rule(("RoiAlign",), 11, 15, forms.other_meaning),
    Rule(("GridSample",), 16, 19, forms.other_meaning),
    Rule(("DFT",), 17, 19, forms.other_meaning),
    Rule(("GroupNormalization",), 18, 20, forms.other_meaning),
)


def normalise(model: ir.Model) -> ir.Model:
    """The model in operator set 21, constants as initializers, every node with a name of its own: a new model.

    Operators of other domains stay. Attention, RotaryEmbedding and TensorScatter stay for the recogniser, and keep
    the model's operator set at theirs until `stamp` is called without them. Raises ModelRefused for forms that set 21
    cannot say.
    """
    result, problems = cloned(model), Problems()
    version = result.opset_imports.get("", TARGET)
    name_nodes(result)
    names = Names(result.graph)
    lift_constants(result, names)
    types = infer(result, Problems())
    rules = _rules_for(version)
    for node in [n for n in result.graph.all_nodes() if n.domain == "" and n.op_type in rules]:
        rules[node.op_type](Site(node, version, types, names, problems))
    problems.refuse()
    drop_passing_nodes(result, types, names)
    stamp(result, version)
    return result


def stamp(model: ir.Model, version: int = TARGET) -> None:
    """Sets the operator set of a normalised model, in place: 21, or that of the newest operator which set 21 does not
    have.
    """
    ops = {(node.domain, node.op_type) for node in model.graph.all_nodes()}
    needed = max((since for op, since in LATER_OPS.items() if ("", op) in ops), default=0)
    model.opset_imports[""] = max(TARGET, needed, version if needed else 0)
    if any(domain == "npuc" for domain, _ in ops):
        model.opset_imports["npuc"] = 1


def _rules_for(version: int) -> dict[str, Callable[[Site], None]]:
    return {op: rule.apply for rule in RULES if rule.first <= version <= rule.last for op in rule.ops}
