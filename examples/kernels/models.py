"""Small models that call the operators of this folder, as functions with bodies in standard operators.

python examples/kernels/models.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import onnx

SQUARED_RELU = """
<ir_version: 10, opset_import: ["" : 21, "examples" : 1]>
mlp (float[1, 33, 96] x, float[96, 96] up, float[96, 96] down) => (float[1, 33, 96] y) {
  wide = MatMul (x, up)
  active = examples.SquaredRelu (wide)
  narrow = MatMul (active, down)
  y = Add (x, narrow)
}
<domain: "examples", opset_import: ["" : 21]>
SquaredRelu (x) => (y) { positive = Relu (x)  y = Mul (positive, positive) }
"""

LINEAR_ATTENTION = """
<ir_version: 10, opset_import: ["" : 21, "examples" : 1]>
layer (float[3, 16, 16] q, float[3, 16, 16] k, float[3, 16, 24] v, float[3, 16, 24] past_state)
  => (float[3, 16, 24] out, float[3, 16, 24] present_state) {
  out, present_state = examples.LinearAttention (q, k, v, past_state)
}
<domain: "examples", opset_import: ["" : 21]>
LinearAttention (q, k, v, state) => (out, new_state) {
  turned = Transpose <perm = [0, 2, 1]> (k)
  scores = MatMul (q, turned)
  seen = Trilu <upper = 0> (scores)
  old = MatMul (q, state)
  new = MatMul (seen, v)
  out = Add (old, new)
  added = MatMul (turned, v)
  new_state = Add (state, added)
}
"""

INT4_LINEAR = """
<ir_version: 10, opset_import: ["" : 21, "examples" : 1]>
layer (float[5, 96] x, uint8[80, 48] codes, float[80, 3] scales) => (float[5, 80] y) {
  y = examples.Int4Linear (x, codes, scales)
}
<domain: "examples", opset_import: ["" : 21]>
Int4Linear (x, codes, scales) => (y) {
  sixteen = Constant <value = uint8[1] {16}> ()
  low = Mod (codes, sixteen)
  high = Div (codes, sixteen)
  last = Constant <value_ints = [2]> ()
  low_3 = Unsqueeze (low, last)
  high_3 = Unsqueeze (high, last)
  pairs = Concat <axis = 2> (low_3, high_3)
  by_group = Constant <value_ints = [0, -1, 32]> ()
  grouped = Reshape (pairs, by_group)
  wide = CastLike (grouped, scales)
  eight = Constant <value = float[1] {8.0}> ()
  zero = CastLike (eight, scales)
  centred = Sub (wide, zero)
  factors = Unsqueeze (scales, last)
  scaled = Mul (centred, factors)
  flat = Constant <value_ints = [0, -1]> ()
  matrix = Reshape (scaled, flat)
  turned = Transpose <perm = [1, 0]> (matrix)
  y = MatMul (x, turned)
}
"""


def squared_relu_model() -> onnx.ModelProto:
    """An MLP with a residual; its weights are seeded."""
    model = onnx.parser.parse_model(SQUARED_RELU)
    random = np.random.default_rng(7)
    for value in list(model.graph.input)[1:]:
        weights = (random.standard_normal((96, 96)) / 10).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
        model.graph.input.remove(value)
    return model


def linear_attention_model() -> onnx.ModelProto:
    """One layer of linear attention with a state that the runtime keeps."""
    return onnx.parser.parse_model(LINEAR_ATTENTION)


def int4_linear_model() -> onnx.ModelProto:
    """One linear layer; its codes and scales are seeded constants."""
    model = onnx.parser.parse_model(INT4_LINEAR)
    random = np.random.default_rng(7)
    codes = random.integers(0, 256, (80, 48)).astype(np.uint8)
    scales = (random.random((80, 3)) / 8).astype(np.float16).astype(np.float32)
    for value, array in zip(list(model.graph.input)[1:], (codes, scales), strict=True):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return model


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    onnx.save(squared_relu_model(), folder / "squared_relu.onnx")
    onnx.save(linear_attention_model(), folder / "linear_attention.onnx")
    onnx.save(int4_linear_model(), folder / "int4_linear.onnx")
