"""Attention of new rows over a cache of past rows and over themselves."""

from npuc import tile as t
from npukernels.normalise import softmax_rows


@t.kernel
def attention(q, k_new, v_new, k_past, v_past, out, *, scale, softcap=0.0, window=0, bm, groups, bk):
    """out[H, C, Dv] = softmax(mask(scale * q[H, C, D] k^T)) v, where k is k_past[G, N, D] and then k_new[G, C, D].

    Row i sees past slot j where j < step.n_past and new slot j where j <= i; with a window only the last `window`
    positions up to its own. H / G query heads share a key head. softcap: s becomes softcap * tanh(s / softcap).
    k_past and v_past may be None. bm: rows of a block (C if C = 1), groups: key heads of a program, bk: past slots of a
    block; blocks at or past n_past cost nothing.
    """
    heads, rows, depth = q.shape
    share, past = heads // k_new.shape[0], 0 if k_past is None else k_past.shape[1]
    g, i = t.programs(t.cdiv(k_new.shape[0], groups), t.cdiv(rows, bm))
    g, i = g * groups, i * bm
    kv, bm, _ = t.clipped(k_new, (g, i, 0), (groups, bm, depth))
    # one row: the heads of a group are the rows of one product, for all groups at once; else a product for each group
    units = [(0, kv)] if rows == 1 else [(u, 1) for u in range(kv)]
    batch, m = (kv, share) if rows == 1 else (share, bm)
    queries = [
        t.reshape(t.load(q, ((g + u) * share, i, 0), (n * share, bm, depth)), (batch, m, depth)) for u, n in units
    ]
    scores = t.scratch((kv, share, bm, past + rows))

    def score(keys, column):
        for (u, n), query in zip(units, queries, strict=True):
            block = t.load(keys[0], (g + u, keys[1], 0), (n, keys[2], depth), valid=keys[3])
            product = t.mma(query, block, scale=scale)
            t.store(scores, (u, 0, 0, column), t.reshape(product, (n, share, bm, block.shape[1])))

    score((k_new, 0, rows, None), past)
    for first in t.range(0, past, bk, stages=2):
        with t.when(t.step.n_past > first):
            score((k_past, first, bk, (1, t.step.n_past - first)), first)

    s = t.load(scores, (0, 0, 0, 0), scores.shape)
    if softcap:
        s = softcap * t.tanh(s / softcap)
    s = t.where(_visible(past, rows, bm, i, window), s, float("-inf"))
    weights = softmax_rows(s).cast(v_new.dtype)

    for u, n in units:
        mine = t.reshape(weights[u : u + n], (batch, m, past + rows))
        acc = t.accumulator((batch, m, v_new.shape[2]))
        t.mma(mine[:, :, past:], t.load(v_new, (g + u, 0, 0), (n, rows, v_new.shape[2])), kn=True, acc=acc)
        for first in t.range(0, past, bk, stages=2):
            with t.when(t.step.n_past > first):
                valid = (1, t.step.n_past - first)
                values = t.load(v_past, (g + u, first, 0), (n, bk, v_new.shape[2]), valid=valid)
                t.mma(mine[:, :, first : first + values.shape[1]], values, kn=True, acc=acc)
        t.store(out, ((g + u) * share, i, 0), t.reshape(acc.read(), (n * share, bm, v_new.shape[2])))


def _visible(past, rows, bm, i, window):
    """Bool [bm, past + rows]: which columns a row sees; columns are past slots, then new rows."""
    column = t.iota((1, past + rows), 1)
    row = i + t.iota((bm, 1), 0)
    fresh = column - past
    if not past:
        seen = fresh <= row
        return seen & (fresh > row - window) if window else seen
    is_past = column < past
    seen = (is_past & (column < t.step.n_past)) | (~is_past & (fresh <= row))
    if not window:
        return seen
    return seen & (t.where(is_past, column - t.step.n_past, fresh) > row - window)
