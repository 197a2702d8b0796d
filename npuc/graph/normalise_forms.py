"""How each older or newer form of an operator is said in operator set 21 (ONNX Operators.md and Changelog.md)."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from npuc.graph.constants import constant_value
from npuc.graph.site import Site


def flattened(site: Site) -> None:
    """Softmax, LogSoftmax, Hardmax before 13: the axes from `axis` (default 1) on are normalised together."""
    source, axis = site.node.inputs[0], site.attribute("axis", 1)
    rank = site.rank(source)
    if axis == -1 or (rank is not None and axis % max(rank, 1) == rank - 1):
        site.set_attribute("axis", -1)
        return
    flat = site.op("Flatten", [source], {"axis": axis})
    result = site.op(site.node.op_type, [flat], {"axis": -1})
    site.replace(site.op("Reshape", [result, site.op("Shape", [source])], {"allowzero": 1}))


def axes_to_input(site: Site) -> None:
    """Reductions before 18 (ReduceSum 13), Squeeze and Unsqueeze before 13: `axes` becomes the second input."""
    axes = site.attribute("axes", None)
    site.set_attribute("axes", None)
    if axes is not None:
        site.set_inputs(site.node.inputs[0], site.constant(np.array(axes, np.int64), "axes"))


def split_to_input(site: Site) -> None:
    """Split before 13: `split` becomes the second input; without it the parts are equal."""
    sizes = site.attribute("split", None)
    site.set_attribute("split", None)
    if sizes is None:
        site.set_attribute("num_outputs", len(site.node.outputs))
    else:
        site.set_inputs(site.node.inputs[0], site.constant(np.array(sizes, np.int64), "split"))


def split_in_equal_parts(site: Site) -> None:
    """Split before 18 without sizes: 18 wants the count of the parts in `num_outputs`."""
    if site.input(1) is None:
        site.set_attribute("num_outputs", len(site.node.outputs))


def dropout(site: Site) -> None:
    """Dropout does nothing in inference; a mask that is read is all true."""
    training = site.input(2)
    if training is not None:
        flag = constant_value(training, {"": site.version})
        if flag is None or bool(flag.reshape(-1)[0]):
            site.refuse("Dropout in training mode; export the model for inference")
            return
    source = site.node.inputs[0]
    mask = None
    if len(site.node.outputs) > 1 and (site.node.outputs[1].uses() or site.node.outputs[1].is_graph_output()):
        true = ir.Tensor(np.array([True]))
        mask = site.op("ConstantOfShape", [site.op("Shape", [source])], {"value": true})
    site.replace(source, mask)


def batch_normalization(site: Site) -> None:
    """Before 14 the further outputs said that the node is in training."""
    if any(v.uses() or v.is_graph_output() for v in site.node.outputs[1:]):
        site.refuse("BatchNormalization in training mode; export the model for inference")
    site.node.resize_outputs(1)


def cast_like(site: Site) -> None:
    """CastLike is a Cast to the type of its second input; npuc.graph.liken writes those whose type is not known yet."""
    dtype = site.dtype(site.input(1))
    if dtype is None:
        return
    saturate = site.attribute("saturate", 1)
    site.replace(site.op("Cast", [site.node.inputs[0]], {"to": dtype, **({} if saturate else {"saturate": 0})}))


def cast(site: Site) -> None:
    """Since 24 `round_mode` says how float8e8m0 is rounded; for all other types it means nothing."""
    site.set_attribute("round_mode", None)


def one_hot(site: Site) -> None:
    """OneHot counts in any number type; depth becomes int64, which shape inference looks into."""
    depth = site.input(1)
    if site.dtype(depth) not in (None, onnx.TensorProto.INT64):
        site.node.replace_input_with(1, site.op("Cast", [depth], {"to": onnx.TensorProto.INT64}))


def swish(site: Site) -> None:
    """Swish (24): x * sigmoid(alpha * x)."""
    source, alpha = site.node.inputs[0], site.attribute("alpha", 1.0)
    inner = source
    if alpha != 1.0:
        dtype = site.dtype(source)
        if dtype is None:
            site.refuse("the element type of its input is not known")
            return
        inner = site.op("Mul", [source, site.constant(np.array(alpha, ir.DataType(dtype).numpy()), "alpha")])
    site.replace(site.op("Mul", [source, site.op("Sigmoid", [inner])]))


def quantization(site: Site) -> None:
    """Since 23 `precision` and `output_dtype` (of DequantizeLinear) may differ from the type of the scale."""
    name = "precision" if site.node.op_type == "QuantizeLinear" else "output_dtype"
    wanted, scale = site.attribute(name, 0), site.dtype(site.input(1))
    values = [site.dtype(site.input(0))] if name == "precision" else []
    if any(t != scale for t in values if t is not None and scale is not None) or wanted not in (0, scale):
        site.refuse(f"{name} or element types that differ from the scale's, which operator set 21 does not have")
        return
    site.set_attribute(name, None)


def rms_normalization(site: Site) -> None:
    """RMSNormalization (23) and onnxruntime's SimplifiedLayerNormalization: npuc.RMSNorm over the last axis."""
    source, weight = site.node.inputs[0], site.node.inputs[1]
    axis, rank = site.attribute("axis", -1), site.rank(source)
    if axis != -1 and (rank is None or axis % rank != rank - 1):
        site.refuse(f"a norm over the axes from {axis} on; only the last axis alone is supported")
        return
    if any(v.uses() or v.is_graph_output() for v in site.node.outputs[1:]):
        site.refuse("the second output, the inverse deviation, is read; npuc makes only the norm itself")
        return
    epsilon = site.attribute("epsilon", 1e-5)
    inner, outer = site.dtype(source), site.dtype(weight)
    cast_needed = inner is not None and outer is not None and inner != outer
    narrow = site.op("Cast", [weight], {"to": inner}) if cast_needed else weight
    result = site.op("RMSNorm", [source, narrow], {"axis": -1, "epsilon": epsilon}, domain="npuc")
    # The result of the standard's operator has the type of the weight.
    site.replace(site.op("Cast", [result], {"to": outer}) if cast_needed else result)


def other_meaning(site: Site) -> None:
    """Forms that set 21 can only say with knowledge of the values; no decoder uses them."""
    site.refuse(f"in operator set {site.version} it means something else than in set 21; export with opset_version=21")
