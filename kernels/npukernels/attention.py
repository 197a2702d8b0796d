"""Attention of new rows over a cache of past rows and over themselves."""

from npuc import tile as t
from npukernels.normalise import softmax_rows


@t.kernel
def attention(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array | None, v_past: t.Array | None, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, bm: int, groups: int, bk: int,
) -> None:  # fmt: skip
    """out[H, C, Dv] = softmax(mask(scale * q[H, C, D] k^T)) v, where k is k_past[G, N, D] and then k_new[G, C, D].

    Row i sees past slot j where j < step.n_past and new slot j where j <= i; with a window only the last `window`
    positions up to its own. H / G query heads share a key head. softcap: s becomes softcap * tanh(s / softcap).
    k_past and v_past may be None. slopes[H] f32: slope * (position of the column - position of the row) is added to the
    scores. sinks[H] f32: scores of a further column without a value. bm: rows of a block, groups: key heads of a
    program, bk: past slots of a block; blocks at or past n_past cost nothing.
    """
    (heads, rows, depth), width = q.shape, v_new.shape[2]
    share, past = heads // k_new.shape[0], 0 if k_past is None else k_past.shape[1]
    g, i = t.programs(t.cdiv(k_new.shape[0], groups), t.cdiv(rows, bm))
    g, i = g * groups, i * bm
    kv, bm, _ = t.clipped(k_new, (g, i, 0), (groups, bm, depth))
    # one row: the heads of a group are the rows of one product, for all groups at once; else a product for each group
    batch, m = (kv, share) if rows == 1 else (share, bm)
    units = [(0, kv)] if rows == 1 else [(u, 1) for u in range(kv)]
    scores = t.scratch((kv, share, bm, past + rows))
    for u, n in units:
        query = t.reshape(t.load(q, ((g + u) * share, i, 0), (n * share, bm, depth)), (batch, m, depth))

        def score(keys: t.Tile, column: int, u: int = u, n: int = n, query: t.Tile = query) -> None:
            product = t.mma(query, keys, scale=scale)
            t.store(scores, (u, 0, 0, column), t.reshape(product, (n, share, bm, keys.shape[1])))

        score(t.load(k_new, (g + u, 0, 0), (n, rows, depth)), past)
        if k_past is not None:
            for first in t.range(0, past, bk, stages=2):
                with t.when(t.step.n_past > first):
                    valid = (1, t.step.n_past - first)
                    score(t.load(k_past, (g + u, first, 0), (n, bk, depth), valid=valid), first)

    s = t.load(scores, (0, 0, 0, 0), scores.shape)
    if softcap:
        s = softcap * t.tanh(s / softcap)
    if slopes is not None:
        s = s + _distance(past, rows, bm, i) * _of_heads(slopes, g * share, kv, share)
    # slots of skipped blocks hold anything, NaN included: `where` drops it
    s = t.where(_visible(past, rows, bm, i, window), s, float("-inf"))
    sink = None if sinks is None else _of_heads(sinks, g * share, kv, share)
    weights = softmax_rows(s, sink).cast(v_new.dtype)

    for u, n in units:
        mine = t.reshape(weights[u : u + n], (batch, m, past + rows))
        acc = t.accumulator((batch, m, width))
        t.mma(mine[:, :, past:], t.load(v_new, (g + u, 0, 0), (n, rows, width)), kn=True, acc=acc)
        if v_past is not None:
            for first in t.range(0, past, bk, stages=2):
                with t.when(t.step.n_past > first):
                    valid = (1, t.step.n_past - first)
                    values = t.load(v_past, (g + u, first, 0), (n, bk, width), valid=valid)
                    t.mma(mine[:, :, first : first + values.shape[1]], values, kn=True, acc=acc)
        t.store(out, ((g + u) * share, i, 0), t.reshape(acc.read(), (n * share, bm, width)))


def _of_heads(numbers: t.Array, first: t.Index, kv: int, share: int) -> t.Tile:
    """A number per query head as [kv, share, 1, 1], against scores."""
    return t.reshape(t.load(numbers, (first,), (kv * share,)), (kv, share, 1, 1))


def _distance(past: int, rows: int, bm: int, i: t.Index) -> t.Tile:
    """f32 [bm, past + rows]: position of a column less that of a row, not above 0 where it is visible."""
    column = t.iota((1, past + rows), 1)
    row = t.iota((bm, 1), 0) + i
    if not past:
        return (column - row).cast(t.f32)
    return (t.where(column < past, column - t.step.n_past, column - past) - row).cast(t.f32)


def _visible(past: int, rows: int, bm: int, i: t.Index, window: int) -> t.Tile:
    """Bool [bm, past + rows]: which columns a row sees; columns are past slots, then new rows."""
    column = t.iota((1, past + rows), 1)
    row = t.iota((bm, 1), 0) + i
    fresh = column - past
    if not past:
        seen = fresh <= row
        return seen & (fresh > row - window) if window else seen
    is_past = column < past
    seen = (is_past & (column < t.step.n_past)) | (~is_past & (fresh <= row))
    if not window:
        return seen
    return seen & (t.where(is_past, column - t.step.n_past, fresh) > row - window)
