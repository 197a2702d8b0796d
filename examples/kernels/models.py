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


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    onnx.save(squared_relu_model(), folder / "squared_relu.onnx")
    onnx.save(linear_attention_model(), folder / "linear_attention.onnx")
