"""What npuc's own operators mean: an ONNX function body each, so that every stage runs in onnxruntime."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.expert_function import MOE_BODY
from npuc.graph.nodes import DOMAIN
from npuc.graph.quantised.packed import BODIES as CODE_BODIES
from npuc.graph.step_functions import STEP_BODIES

_HEADER = f'<domain: "{DOMAIN}", opset_import: ["" : 21]>\n'

# y = x * rsqrt(mean(x^2) + epsilon) * w over the last axis, computed in f32.
_RMS_NORM = """
RMSNorm <epsilon: float = 0.00001, axis: int = -1> (x, w) => (y) {
  wide = Cast <to = 1> (x)
  square = Mul (wide, wide)
  last = Constant <value_ints: ints = [-1]> ()
  mean = ReduceMean <keepdims = 1> (square, last)
  eps = Constant <value_float: float = @epsilon> ()
  shifted = Add (mean, eps)
  root = Sqrt (shifted)
  unit = Div (wide, root)
  gain = Cast <to = 1> (w)
  scaled = Mul (unit, gain)
  y = CastLike (scaled, x)
}"""

# The first R = rotary_dim channels of x [1, H, C, D] turn pairwise by angles whose cosines and sines are [C, R / 2];
# a pair is (i, i + R / 2), or (2i, 2i + 1) if interleaved. The other channels pass.
_ROTARY = """
Rotary <interleaved: int = 0, rotary_dim: int> (x, cos, sin) => (y) {
  zero = Constant <value_ints: ints = [0]> ()
  one = Constant <value_int: int = 1> ()
  two = Constant <value_int: int = 2> ()
  last = Constant <value_ints: ints = [-1]> ()
  width = Constant <value_int: int = @rotary_dim> ()
  end = Reshape (width, last)
  most = Constant <value_ints: ints = [9223372036854775807]> ()
  turned = Slice (x, zero, end, last)
  rest = Slice (x, end, most, last)
  half = Div (width, two)
  half_end = Reshape (half, last)
  shape = Shape <start = 0, end = 3> (x)
  pair = Constant <value_ints: ints = [2]> ()
  interleave = Constant <value_int: int = @interleaved> ()
  side_by_side = Cast <to = 9> (interleave)
  by_pairs = Concat <axis = 0> (shape, half_end, pair)
  by_halves = Concat <axis = 0> (shape, pair, half_end)
  pairs = Reshape (turned, by_pairs)
  halves = Reshape (turned, by_halves)
  halves_last = Transpose <perm = [0, 1, 2, 4, 3]> (halves)
  both = Where (side_by_side, pairs, halves_last)
  index_0 = Constant <value_int: int = 0> ()
  a = Gather <axis = -1> (both, index_0)
  b = Gather <axis = -1> (both, one)
  a_cos = Mul (a, cos)
  b_sin = Mul (b, sin)
  b_cos = Mul (b, cos)
  a_sin = Mul (a, sin)
  first = Sub (a_cos, b_sin)
  second = Add (b_cos, a_sin)
  first_pair = Unsqueeze (first, last)
  second_pair = Unsqueeze (second, last)
  new_pairs = Concat <axis = -1> (first_pair, second_pair)
  new_halves = Transpose <perm = [0, 1, 2, 4, 3]> (new_pairs)
  full = Concat <axis = 0> (shape, end)
  joined_pairs = Reshape (new_pairs, full)
  joined_halves = Reshape (new_halves, full)
  joined = Where (side_by_side, joined_pairs, joined_halves)
  y = Concat <axis = -1> (joined, rest)
}"""

# softmax(scale * q k^T, soft-capped) v over the past slots below n_past and the new ones up to each row, in f32.
# q [1, H, C, D], k_new [1, G, C, D], v_new [1, G, C, Dv], k_past [1, G, N, D], v_past [1, G, N, Dv]; head h reads group
# h / (H / G). Past slots from n_past on are taken as zeros, whatever they hold. slopes: one a head; slope * (position
# of a slot - position of the row) is added to the scores. sinks: one a head, a further column of that score that
# weighs in the softmax and has no value. ring: past slot j holds the last token before n_past that is j modulo so many.
_ATTENTION = """
Attention <scale: float, softcap: float = 0.0, window: int = 0, slopes: floats = [], sinks: floats = [], ring: int = 0>
(q, k_new, v_new, k_past, v_past, n_past) => (y) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  front = Constant <value_ints: ints = [0]> ()
  back = Constant <value_ints: ints = [1]> ()
  two = Constant <value_ints: ints = [2]> ()
  single = Constant <value_ints: ints = [1]> ()
  nothing = Constant <value_float: float = 0.0> ()
  lowest = Constant <value_float: float = -3.4028234663852886e38> ()
  tiny = Constant <value_float: float = 1e-30> ()
  slots_1d = Shape <start = 2, end = 3> (k_past)
  rows_1d = Shape <start = 2, end = 3> (q)
  heads = Shape <start = 1, end = 2> (q)
  groups = Shape <start = 1, end = 2> (k_new)
  slots = Squeeze (slots_1d)
  n_rows = Squeeze (rows_1d)
  past = Range (zero, slots, one)
  new = Range (zero, n_rows, one)
  turn = Constant <value_int: int = @ring> ()
  in_ring = Greater (turn, zero)
  safe_turn = Max (turn, one)
  newest = Sub (n_past, one)
  behind = Sub (newest, past)
  age = Mod (behind, safe_turn)
  ring_token = Sub (newest, age)
  token = Where (in_ring, ring_token, past)
  token_before = Less (token, n_past)
  token_real = GreaterOrEqual (token, zero)
  past_full = And (token_before, token_real)
  filled = Unsqueeze (past_full, back)
  k_past_32 = Cast <to = 1> (k_past)
  v_past_32 = Cast <to = 1> (v_past)
  k_new_32 = Cast <to = 1> (k_new)
  v_new_32 = Cast <to = 1> (v_new)
  k_clean = Where (filled, k_past_32, nothing)
  v_clean = Where (filled, v_past_32, nothing)
  k = Concat <axis = 2> (k_clean, k_new_32)
  v = Concat <axis = 2> (v_clean, v_new_32)
  repeats = Div (heads, groups)
  k_shape = Shape <start = 2, end = 4> (k)
  v_shape = Shape <start = 2, end = 4> (v)
  k_5d = Unsqueeze (k, two)
  v_5d = Unsqueeze (v, two)
  k_wide_shape = Concat <axis = 0> (single, groups, repeats, k_shape)
  v_wide_shape = Concat <axis = 0> (single, groups, repeats, v_shape)
  k_wide = Expand (k_5d, k_wide_shape)
  v_wide = Expand (v_5d, v_wide_shape)
  k_full_shape = Concat <axis = 0> (single, heads, k_shape)
  v_full_shape = Concat <axis = 0> (single, heads, v_shape)
  k_full = Reshape (k_wide, k_full_shape)
  v_full = Reshape (v_wide, v_full_shape)
  k_turned = Transpose <perm = [0, 1, 3, 2]> (k_full)
  q_32 = Cast <to = 1> (q)
  factor = Constant <value_float: float = @scale> ()
  products = MatMul (q_32, k_turned)
  scores = Mul (products, factor)
  cap = Constant <value_float: float = @softcap> ()
  cap_used = Max (cap, tiny)
  ratio = Div (scores, cap_used)
  bent = Tanh (ratio)
  capped = Mul (bent, cap_used)
  is_capped = Greater (cap, nothing)
  bounded = Where (is_capped, capped, scores)
  size = Constant <value_int: int = @window> ()
  endless = Equal (size, zero)
  row = Unsqueeze (new, back)
  new_slot = Unsqueeze (new, front)
  past_slot = Unsqueeze (token, front)
  position = Add (row, n_past)
  past_first = Sub (position, size)
  new_first = Sub (row, size)
  past_near = Greater (past_slot, past_first)
  new_near = Greater (new_slot, new_first)
  past_inside = Or (past_near, endless)
  new_inside = Or (new_near, endless)
  is_past = Unsqueeze (past_full, front)
  is_before = LessOrEqual (new_slot, row)
  past_seen = And (is_past, past_inside)
  new_seen = And (is_before, new_inside)
  seen = Concat <axis = 1> (past_seen, new_seen)
  given_slopes = Constant <value_floats: floats = @slopes> ()
  no_slopes = ConstantOfShape <value: tensor = float[1] {0.0}> (heads)
  any_slopes = Concat <axis = 0> (given_slopes, no_slopes)
  slope = Slice (any_slopes, front, heads)
  head_axes = Constant <value_ints: ints = [1, 2]> ()
  slope_3d = Unsqueeze (slope, head_axes)
  new_position = Add (new_slot, n_past)
  slot_position = Concat <axis = 1> (past_slot, new_position)
  gap = Sub (slot_position, position)
  gap_32 = Cast <to = 1> (gap)
  bias = Mul (gap_32, slope_3d)
  biased = Add (bounded, bias)
  masked = Where (seen, biased, lowest)
  given_sinks = Constant <value_floats: floats = @sinks> ()
  no_sinks = ConstantOfShape <value: tensor = float[1] {-3.4028234663852886e38}> (heads)
  any_sinks = Concat <axis = 0> (given_sinks, no_sinks)
  sink = Slice (any_sinks, front, heads)
  sink_3d = Unsqueeze (sink, head_axes)
  sink_shape = Concat <axis = 0> (single, heads, rows_1d, single)
  sink_column = Expand (sink_3d, sink_shape)
  columns = Concat <axis = 3> (masked, sink_column)
  all_weights = Softmax <axis = -1> (columns)
  last = Constant <value_ints: ints = [-1]> ()
  three = Constant <value_ints: ints = [3]> ()
  weights = Slice (all_weights, front, last, three)
  mixed = MatMul (weights, v_full)
  y = CastLike (mixed, q)
}"""

# (x - x_zero) (w - w_zero) in whole numbers, times x_scale * w_scale. x codes [.., K], w codes [K, N]; x_scale and
# x_zero are one number, w_scale f32 [N] and w_zero [N] one for each channel.
_INTEGER_LINEAR = """
IntegerLinear (x, x_scale, x_zero, w, w_scale, w_zero) => (y) {
  whole = MatMulInteger (x, w, x_zero, w_zero)
  wide = Cast <to = 1> (whole)
  scale = Mul (x_scale, w_scale)
  y = Mul (wide, scale)
}"""

_BODIES = (
    STEP_BODIES
    | CODE_BODIES
    | {
        "IntegerLinear": _INTEGER_LINEAR,
        "MoE": MOE_BODY,
        "RMSNorm": _RMS_NORM,
        "Rotary": _ROTARY,
        "Attention": _ATTENTION,
    }
)


def add_functions(model: ir.Model) -> None:
    """Adds the bodies of the npuc operators that the graph uses, and the opset import of their domain, in place."""
    import onnx.parser

    used = sorted({node.op_type for node in model.graph if node.domain == DOMAIN})
    for op_type in used:
        function = ir.serde.deserialize_function(onnx.parser.parse_function(_HEADER + _BODIES[op_type]))
        model.functions[function.identifier()] = function
    if used:
        model.graph.opset_imports[DOMAIN] = 1
