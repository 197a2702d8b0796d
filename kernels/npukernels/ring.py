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
    *, scale: float, softcap: float = 0.0, window: int = 0, ring: int, bm: int, groups: int, bk: int,
) -> None:  # fmt: skip
    """Attention of the kernel `attention`, where row j of k_past[G, N, D] and v_past holds the last token before
    step.n_past that is j modulo `ring`.

    N is `ring`, or less where step.n_past never exceeds it. bm: rows of a block, groups: key heads of a program, bk:
    past rows of a block; blocks at or past n_past cost nothing.
    """
    (heads, rows, depth), width = q.shape, v_new.shape[2]
    share, past = heads // k_new.shape[0], k_past.shape[1]
    g, i = t.programs(t.cdiv(k_new.shape[0], groups), t.cdiv(rows, bm))
    g, i = g * groups, i * bm
    kv, bm, _ = t.clipped(k_new, (g, i, 0), (groups, bm, depth))
    # one row: the heads of a group are the rows of one product, for all groups at once; else a product for each group
    batch, m = (kv, share) if rows == 1 else (share, bm)
    units = [(0, kv)] if rows == 1 else [(u, 1) for u in range(kv)]
    scores = t.scratch((kv, share, bm, past + rows))
    for u, n in units:
        query = t.reshape(t.load(q, ((g + u) * share, i, 0), (n * share, bm, depth)), (batch, m, depth))
        fresh = t.mma(query, t.load(k_new, (g + u, 0, 0), (n, rows, depth)), scale=scale)
        t.store(scores, (u, 0, 0, past), t.reshape(fresh, (n, share, bm, rows)))
        for first in t.range(0, past, bk, stages=2):
            with t.when(t.step.n_past > first):
                keys = t.load(k_past, (g + u, first, 0), (n, bk, depth), valid=(1, t.step.n_past - first))
                held = t.mma(query, keys, scale=scale)
                t.store(scores, (u, 0, 0, first), t.reshape(held, (n, share, bm, keys.shape[1])))
    s = t.load(scores, (0, 0, 0, 0), scores.shape)
    if softcap:
        s = softcap * t.tanh(s / softcap)
    token, row = _token(past, rows, ring), t.iota((bm, 1), 0) + i
    if slopes is not None:
        s = s + (token - row).cast(t.f32) * _of_heads(slopes, g * share, kv, share)
    seen = (token <= row) & (token + t.step.n_past >= 0)
    if window:
        seen = seen & (token > row - window)
    sink = None if sinks is None else _of_heads(sinks, g * share, kv, share)
    # slots of skipped blocks hold anything, NaN included: `where` drops it
    weights = softmax_rows(t.where(seen, s, float("-inf")), sink).cast(v_new.dtype)
    for u, n in units:
        mine = t.reshape(weights[u : u + n], (batch, m, past + rows))
        acc = t.accumulator((batch, m, width))
        t.mma(mine[:, :, past:], t.load(v_new, (g + u, 0, 0), (n, rows, width)), kn=True, acc=acc)
        for first in t.range(0, past, bk, stages=2):
            with t.when(t.step.n_past > first):
                values = t.load(v_past, (g + u, first, 0), (n, bk, width), valid=(1, t.step.n_past - first))
                t.mma(mine[:, :, first : first + values.shape[1]], values, kn=True, acc=acc)
        t.store(out, ((g + u) * share, i, 0), t.reshape(acc.read(), (n * share, bm, width)))


def _of_heads(numbers: t.Array, first: t.Index, kv: int, share: int) -> t.Tile:
    """A number per query head as [kv, share, 1, 1], against scores."""
    return t.reshape(t.load(numbers, (first,), (kv * share,)), (kv, share, 1, 1))


def _token(past: int, rows: int, ring: int) -> t.Tile:
    """i32 [1, past + rows]: the token of each column, counted from step.n_past on: -1 is the newest of the past."""
    column = t.iota((1, past + rows), 1)
    age = (t.step.n_past - 1 + ring - column) % ring
    return t.where(column < past, -1 - age, column - past)
