"""Rings: caches of a fixed number of rows in which token i lies in row i modulo their number."""

from npuc import tile as t
from npukernels.normalise import softmax_rows


@t.kernel
def ring_slots(out: t.Array, *, ring: int) -> None:
    """out[C] i32: the row of each of a run's tokens in a ring of `ring` rows; -1 for those from step.n_new on."""
    row = t.iota(out.shape, 0)
    t.store(out, (0,), t.where(row < t.step.n_new, (row + t.step.n_past) % ring, -1))


@t.kernel
def ring_rows(new: t.Array, slots: t.Array, ring: t.Array, *, bg: int) -> None:
    """ring[R, G, D] gets new[C, G, D] in rows slots[C]; of two for one row the later stays. bg: heads of a block."""
    (g,) = t.programs(t.cdiv(new.shape[1], bg))
    rows, _, depth = new.shape
    block = t.load(new, (0, g * bg, 0), (rows, bg, depth))
    t.store(ring, (t.load(slots, (0,), (rows,)), g * bg, 0), block)


@t.kernel
def attention_ring(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array, v_past: t.Array, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, ring: int, bm: int, bk: int,
) -> None:  # fmt: skip
    """Attention of the kernel `attention`, where row j of k_past[G, N, D] and v_past holds the last token before
    step.n_past that is j modulo `ring`.

    N is `ring`, or less where step.n_past never exceeds it. A program has one key head. bm: rows of a block, bk: past
    rows of one; blocks at or past n_past cost nothing.
    """
    (heads, rows, depth), width = q.shape, v_new.shape[2]
    share, past = heads // k_new.shape[0], k_past.shape[1]
    g, i = t.programs(k_new.shape[0], t.cdiv(rows, bm))
    i = i * bm
    _, bm, _ = t.clipped(q, (0, i, 0), (share, bm, depth))
    query = t.load(q, (g * share, i, 0), (share, bm, depth))
    scores = t.scratch((share, bm, past + rows))
    t.store(scores, (0, 0, past), t.mma(query, t.load(k_new, (g, 0, 0), (1, rows, depth)), scale=scale))
    for first in t.range(0, past, bk, stages=2):
        with t.when(t.step.n_past > first):
            keys = t.load(k_past, (g, first, 0), (1, bk, depth), valid=(1, t.step.n_past - first))
            t.store(scores, (0, 0, first), t.mma(query, keys, scale=scale))
    s = t.load(scores, (0, 0, 0), scores.shape)
    if softcap:
        s = softcap * t.tanh(s / softcap)
    token = _token(past, rows, ring)
    row = t.iota((bm, 1), 0) + i
    if slopes is not None:
        s = s + (token - row).cast(t.f32) * t.reshape(t.load(slopes, (g * share,), (share,)), (share, 1, 1))
    seen = (token <= row) & (token + t.step.n_past >= 0)
    if window:
        seen = seen & (token > row - window)
    sink = None if sinks is None else t.reshape(t.load(sinks, (g * share,), (share,)), (share, 1, 1))
    weights = softmax_rows(t.where(seen, s, float("-inf")), sink).cast(v_new.dtype)
    acc = t.accumulator((share, bm, width))
    t.mma(weights[:, :, past:], t.load(v_new, (g, 0, 0), (1, rows, width)), kn=True, acc=acc)
    for first in t.range(0, past, bk, stages=2):
        with t.when(t.step.n_past > first):
            values = t.load(v_past, (g, first, 0), (1, bk, width), valid=(1, t.step.n_past - first))
            t.mma(weights[:, :, first : first + values.shape[1]], values, kn=True, acc=acc)
    t.store(out, (g * share, i, 0), acc.read())


def _token(past: int, rows: int, ring: int) -> t.Tile:
    """i32 [1, past + rows]: the token of each column, counted from step.n_past on: -1 is the newest of the past."""
    column = t.iota((1, past + rows), 1)
    age = (t.step.n_past - 1 + ring - column) % ring
    return t.where(column < past, -1 - age, column - past)
