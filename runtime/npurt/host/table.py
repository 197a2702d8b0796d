"""The operators of the host by their ONNX names, and the check that a step is one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npurt.host import algebra, convolve, sample
from npurt.host.op import FLOATS, INTEGERS, HostOp, Shape, StepFault, check_attributes


def _bitwise(function: Any, inputs: int) -> HostOp:
    return HostOp({}, (inputs, inputs), INTEGERS, algebra.broadcast_shape, algebra.elementwise(function),
                  "of integers, element by element")  # fmt: skip


HOST_OPS: Mapping[str, HostOp] = {
    "BitwiseAnd": _bitwise(np.bitwise_and, 2),
    "BitwiseNot": _bitwise(np.bitwise_not, 1),
    "BitwiseOr": _bitwise(np.bitwise_or, 2),
    "BitwiseXor": _bitwise(np.bitwise_xor, 2),
    "ConvTranspose": HostOp(convolve.ATTRIBUTES, (2, 3), FLOATS, convolve.transpose_shape, convolve.transpose,
                            "along any axes, in groups, with strides, dilations and pads"),
    "Det": HostOp({}, (1, 1), FLOATS, algebra.det_shape, algebra.det, "of square matrices"),
    "Einsum": HostOp({"equation": "text"}, (1, 8), (*FLOATS, *INTEGERS), algebra.einsum_shape, algebra.einsum,
                     "any equation"),
    "GridSample": HostOp(sample.GRID_SAMPLE, (2, 2), FLOATS, sample.grid_shape, sample.grid_sample,
                         "linear and nearest"),
    "Resize": HostOp(sample.RESIZE, (1, 1), (*FLOATS, *INTEGERS), sample.resize_shape, sample.resize,
                     "linear and nearest, scales or sizes known when compiling"),
}  # fmt: skip
"""What `npuc compile --host-ops` may name."""


def check_step(op_type: str, attributes: Any, types: Sequence[str], shapes: Sequence[Shape]) -> Shape:
    """The shape of the result of a step whose inputs have these graph element types and shapes. StepFault where the
    operator is not in the table or does not take them."""
    op = HOST_OPS.get(op_type)
    if op is None:
        raise StepFault(f"the host has no operator {op_type!r}; it has {', '.join(HOST_OPS)}")
    check_attributes(op, attributes)
    if not op.inputs[0] <= len(shapes) <= op.inputs[1]:
        raise StepFault(f"{len(shapes)} inputs, {op.inputs[0]} to {op.inputs[1]} are due")
    if any(each not in op.types for each in types) or len(set(types)) > 1:
        raise StepFault(f"inputs of types {', '.join(types)}; the host computes {op_type} of {', '.join(op.types)}")
    return op.shape(attributes, shapes)
