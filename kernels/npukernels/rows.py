"""Rows by number: embedding lookup, and new rows of a state."""

from collections.abc import Callable

from npuc import tile as t


@t.kernel
def gather_rows(table: t.Array, ids: t.Array, out: t.Array, *, bt: int) -> None:
    """out[T, ...] = table[ids[T], ...]; a number outside the table gives zeros. bt: rows of a block."""
    (i,) = t.programs(t.cdiv(ids.shape[0], bt))
    t.store(out, (i * bt, *(0 for _ in out.shape[1:])), t.gather(table, t.load(ids, (i * bt,), (bt,))))


@t.kernel
def append_rows(new: t.Array, state: t.Array, *, bg: int) -> None:
    """state[G, N, D] gets the first step.n_new rows of new[G, C, D] at row step.n_past. bg: heads of a block."""
    (g,) = t.programs(t.cdiv(new.shape[0], bg))
    block = t.load(new, (g * bg, 0, 0), (bg, *new.shape[1:]))
    t.store(state, (g * bg, t.step.n_past, 0), block, valid=(1, t.step.n_new))


@t.kernel
def step_rows(table: t.Array, out: t.Array) -> None:
    """out[C, R] = table[step.n_past : step.n_past + C, :], the rows of this step's positions."""
    t.store(out, (0, 0), t.load(table, (t.step.n_past, 0), out.shape))


@t.kernel
def past_rows(past: t.Array, out: t.Array, *, bg: int, bk: int) -> None:
    """out[G, N, D] = the rows of past[G, N, D] below step.n_past, zeros for the others.

    bg, bk: heads and rows of a block.
    """
    g, i = t.programs(t.cdiv(past.shape[0], bg), t.cdiv(past.shape[1], bk))
    first = (g * bg, i * bk, 0)
    t.store(out, first, t.load(past, first, (bg, bk, past.shape[2]), valid=(1, t.step.n_past - i * bk)))


@t.kernel
def step_mask(out: t.Array, *, capacity: int, causal: bool, window: int, bm: int) -> None:
    """out bool [C, capacity + C]: which slots a row sees, of the past those below step.n_past, then the new rows.

    causal: new rows up to its own, else all. window: only the last that many positions up to its own, 0 for all.
    """
    columns = out.shape[1]
    (i,) = t.programs(t.cdiv(out.shape[0], bm))
    size = t.clipped(out, (i * bm, 0), (bm, columns))[0]
    column, row = t.iota((1, columns), 1), t.iota((size, 1), 0) + i * bm
    is_past, fresh = column < capacity, column - capacity
    seen = (is_past & (column < t.step.n_past)) | (~is_past & (fresh <= (row if causal else out.shape[0])))
    if window:
        seen = seen & (t.where(is_past, column - t.step.n_past, fresh) > row - window)
    t.store(out, (i * bm, 0), t.broadcast(seen, (size, columns)))


@t.kernel
def step_bias(slopes: t.Array, out: t.Array, *, capacity: int, bm: int) -> None:
    """out[H, C, capacity + C] = slopes[H] * (position of the column - position of the row), for step_mask's columns."""
    heads, rows, columns = out.shape
    (i,) = t.programs(t.cdiv(rows, bm))
    size = t.clipped(out, (0, i * bm, 0), (heads, bm, columns))[1]
    column, row = t.iota((1, columns), 1), t.iota((size, 1), 0) + i * bm
    gap = t.where(column < capacity, column - t.step.n_past, column - capacity) - row
    scale = t.reshape(t.load(slopes, (0,), (heads,)), (heads, 1, 1))
    t.store(out, (0, i * bm, 0), t.reshape(gap.cast(t.f32), (1, size, columns)) * scale)


@t.kernel
def scatter_rows(
    x: t.Array, ids: t.Array, updates: t.Array, out: t.Array, *, reduction: str = "none", bn: int, bw: int
) -> None:
    """out[N, W] = x[N, W] whose rows ids[M] are replaced by updates[M, W], or joined with them by a reduction.

    Of several updates of a row the last replaces it. Every row is compared with every number: N x M steps, for small
    updates. reduction: none, add, mul, max or min. bn, bw: rows and columns of a block.
    """
    i, j = t.programs(t.cdiv(out.shape[0], bn), t.cdiv(out.shape[1], bw))
    count = ids.shape[0]
    rows, columns = t.clipped(out, (i * bn, j * bw), (bn, bw))
    block = t.load(x, (i * bn, j * bw), (bn, bw))
    new = t.load(updates, (0, j * bw), (count, bw))
    named = t.reshape(t.load(ids, (0,), (count,)), (1, count)) == t.iota((rows, 1), 0) + i * bn
    if reduction == "none":
        last = t.max(t.where(named, t.iota((1, count), 1), -1), 1)
        t.store(out, (i * bn, j * bw), t.where(last >= 0, t.take(new, t.reshape(last, (rows,))), block))
        return
    combine, along, neutral = REDUCTIONS[reduction]
    nothing: float = neutral if x.dtype.is_float else int(max(min(neutral, 2**31 - 1), -(2**31)))
    spread = t.where(t.reshape(named, (rows, count, 1)), t.reshape(new, (1, count, columns)), nothing)
    t.store(out, (i * bn, j * bw), combine(block, t.reshape(along(spread, 1), (rows, columns))))


Join = Callable[[t.Tile, t.Tile], t.Tile]
REDUCTIONS: dict[str, tuple[Join, Callable[[t.Tile, int], t.Tile], float]] = {
    "add": (lambda a, b: a + b, t.sum, 0.0),
    "mul": (lambda a, b: a * b, t.prod, 1.0),
    "max": (t.maximum, t.max, float("-inf")),
    "min": (t.minimum, t.min, float("inf")),
}
"""How scatter_rows joins: a row with its updates, the updates of a row, and what changes nothing."""


@t.kernel
def valid_slots(out: t.Array) -> None:
    """out[N, 2] f32: a DPU table (scale, bias) that keeps scores of slots before step.n_past and hides the others."""
    slots = t.iota((out.shape[0], 1), 0)
    bias = t.where(slots < t.step.n_past, 0.0, float("-inf"))
    t.store(out, (0, 0), t.concat([t.full(slots.shape, 1.0), bias], 1))
