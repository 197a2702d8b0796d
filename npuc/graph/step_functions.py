"""Bodies of the operators that the step decides: rows of position tables, masks, biases, and rows of a cache."""

from __future__ import annotations

# Rows n_past .. n_past + rows of a table.
_STEP_ROWS = """
StepRows <rows: int> (table, n_past) => (y) {
  flat = Constant <value_ints: ints = [-1]> ()
  zero = Constant <value_ints: ints = [0]> ()
  count = Constant <value_int: int = @rows> ()
  start = Reshape (n_past, flat)
  rows_1d = Reshape (count, flat)
  end = Add (start, rows_1d)
  y = Slice (table, start, end, zero)
}"""

# past [1, G, N, D] with new [1, G, C, D] in the slots n_past .. n_past + C.
_WRITE_ROWS = """
WriteRows (past, new, n_past) => (y) {
  zero = Constant <value_ints: ints = [0]> ()
  axis = Constant <value_ints: ints = [2]> ()
  flat = Constant <value_ints: ints = [-1]> ()
  most = Constant <value_ints: ints = [9223372036854775807]> ()
  start = Reshape (n_past, flat)
  count = Shape <start = 2, end = 3> (new)
  end = Add (start, count)
  front = Slice (past, zero, start, axis)
  back = Slice (past, end, most, axis)
  y = Concat <axis = 2> (front, new, back)
}"""

# One of two values: what is left of an If whose branches have been taken into the main graph.
_CHOOSE = """
Choose (condition, a, b) => (y) {
  y = If (condition) <
    then_branch = taken () => (then_y) { then_y = Identity (a) },
    else_branch = other () => (else_y) { else_y = Identity (b) }
  >
}"""

# Rows n_new .. n_new + count of x: the last `count` where n_new of the rows behind the first `count` are valid.
_LAST_ROWS = """
LastRows <axis: int, count: int> (x, n_new) => (y) {
  flat = Constant <value_ints: ints = [-1]> ()
  dimension = Constant <value_int: int = @axis> ()
  size = Constant <value_int: int = @count> ()
  axis_1d = Reshape (dimension, flat)
  start = Reshape (n_new, flat)
  size_1d = Reshape (size, flat)
  end = Add (start, size_1d)
  y = Slice (x, start, end, axis_1d)
}"""

# bool [1, 1, rows, capacity + rows]. Row i sees past slot j if j < n_past, and new slot j if j <= i (or always, if not
# causal); with a window only slots of the last `window` positions. whole: bool [1, 1, rows, capacity], where new row i
# has the slot n_past + i.
_STEP_MASK = """
StepMask <rows: int, capacity: int, causal: int = 1, window: int = 0, whole: int = 0> (n_past) => (seen) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  front = Constant <value_ints: ints = [0]> ()
  back = Constant <value_ints: ints = [1]> ()
  heads = Constant <value_ints: ints = [0, 1]> ()
  n_rows = Constant <value_int: int = @rows> ()
  n_slots = Constant <value_int: int = @capacity> ()
  size = Constant <value_int: int = @window> ()
  order = Constant <value_int: int = @causal> ()
  any_new = Equal (order, zero)
  endless = Equal (size, zero)
  new = Range (zero, n_rows, one)
  past = Range (zero, n_slots, one)
  row = Unsqueeze (new, back)
  new_slot = Unsqueeze (new, front)
  past_slot = Unsqueeze (past, front)
  position = Add (row, n_past)
  past_first = Sub (position, size)
  new_first = Sub (row, size)
  past_near = Greater (past_slot, past_first)
  new_near = Greater (new_slot, new_first)
  past_inside = Or (past_near, endless)
  new_inside = Or (new_near, endless)
  past_full = Less (past_slot, n_past)
  new_before = LessOrEqual (new_slot, row)
  new_open = Or (new_before, any_new)
  past_seen = And (past_full, past_inside)
  new_seen = And (new_open, new_inside)
  apart = Concat <axis = 1> (past_seen, new_seen)
  is_whole = Constant <value_int: int = @whole> ()
  in_slots = Equal (is_whole, one)
  slot_before = LessOrEqual (past_slot, position)
  filled_end = Add (n_past, n_rows)
  slot_filled = Less (past_slot, filled_end)
  slot_any = And (slot_filled, any_new)
  slot_open = Or (slot_before, slot_any)
  slot_seen = And (slot_open, past_inside)
  both = Concat <axis = 1> (slot_seen, apart)
  whole_end = Where (in_slots, n_slots, zero)
  all_columns = Add (n_slots, n_rows)
  twice = Add (all_columns, n_slots)
  end_column = Where (in_slots, n_slots, twice)
  first_column = Sub (n_slots, whole_end)
  first_1d = Unsqueeze (first_column, front)
  end_1d = Unsqueeze (end_column, front)
  plane = Slice (both, first_1d, end_1d, back)
  seen = Unsqueeze (plane, heads)
}"""

# f32 [1, H, rows, capacity + rows]: slope of the head * (slot - position of the row); columns as in StepMask.
_STEP_BIAS = """
StepBias <rows: int, capacity: int, slopes: floats, whole: int = 0> (n_past) => (bias) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  front = Constant <value_ints: ints = [0]> ()
  back = Constant <value_ints: ints = [1]> ()
  planes = Constant <value_ints: ints = [1, 2]> ()
  n_rows = Constant <value_int: int = @rows> ()
  n_slots = Constant <value_int: int = @capacity> ()
  is_whole = Constant <value_int: int = @whole> ()
  slope = Constant <value_floats: floats = @slopes> ()
  none_apart = Equal (is_whole, one)
  n_apart = Where (none_apart, zero, n_rows)
  past = Range (zero, n_slots, one)
  new = Range (zero, n_rows, one)
  apart = Range (zero, n_apart, one)
  apart_slot = Add (apart, n_past)
  slots = Concat <axis = 0> (past, apart_slot)
  column = Unsqueeze (slots, front)
  row = Unsqueeze (new, back)
  position = Add (row, n_past)
  gap = Sub (column, position)
  gap_32 = Cast <to = 1> (gap)
  slope_3d = Unsqueeze (slope, planes)
  plane = Mul (gap_32, slope_3d)
  bias = Unsqueeze (plane, front)
}"""

# The slots of a cache [1, G, N, D] below n_past, zeros in the others, whatever they hold.
_PAST_ROWS = """
PastRows (past, n_past) => (y) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  axes = Constant <value_ints: ints = [1]> ()
  nothing = Constant <value_float: float = 0.0> ()
  count_1d = Shape <start = 2, end = 3> (past)
  count = Squeeze (count_1d)
  slots = Range (zero, count, one)
  below = Less (slots, n_past)
  filled = Unsqueeze (below, axes)
  blank = CastLike (nothing, past)
  y = Where (filled, past, blank)
}"""

# x with zeros for the rows of `axis` from n_new on: a run's padding.
_VALID_ROWS = """
ValidRows <axis: int> (x, n_new) => (y) {
  zero = Constant <value_int: int = 0> ()
  one = Constant <value_int: int = 1> ()
  flat = Constant <value_ints: ints = [-1]> ()
  nothing = Constant <value_float: float = 0.0> ()
  shape = Shape (x)
  place = Constant <value_int: int = @axis> ()
  extent = Gather (shape, place)
  rows = Range (zero, extent, one)
  valid = Less (rows, n_new)
  rank_1d = Shape (shape)
  ones = ConstantOfShape <value: tensor = int64[1] {1}> (rank_1d)
  place_1d = Reshape (place, flat)
  extent_1d = Reshape (extent, flat)
  spread = ScatterElements (ones, place_1d, extent_1d)
  mask = Reshape (valid, spread)
  blank = CastLike (nothing, x)
  y = Where (mask, x, blank)
}"""

STEP_BODIES = {
    "ValidRows": _VALID_ROWS,
    "PastRows": _PAST_ROWS,
    "StepRows": _STEP_ROWS,
    "LastRows": _LAST_ROWS,
    "Choose": _CHOOSE,
    "StepMask": _STEP_MASK,
    "StepBias": _STEP_BIAS,
    "WriteRows": _WRITE_ROWS,
}
