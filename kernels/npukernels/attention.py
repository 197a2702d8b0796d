"""Attention with all scores of its rows on-chip: products, one softmax over them, products again."""

from npuc import tile as t
from npukernels.caches import caches
from npukernels.normalise import softmax_rows
from npukernels.scores import Rule, of_heads, score_type, visible


@t.kernel
def attention(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array | None, v_past: t.Array | None, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None, ones: t.Array | None = None,
    slots: t.Array | None = None, k_scales: t.Array | None = None, v_scales: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, causal: bool = True, bm: int, groups: int, bk: int,
    codes: t.DType | None = None, widen: bool = False,
) -> None:  # fmt: skip
    """out[H, C, Dv] = softmax(mask(scale * q[H, C, D] k^T)) v, where k is k_past[G, N, D] and then k_new[G, T, D].

    Row i sees past slot j where j < step.n_past and new slot j where j <= i, or all new ones if not causal; with a
    window only the last `window` positions up to its own. H / G query heads share a key head. softcap: s becomes
    softcap * tanh(s / softcap). k_past and v_past may be None. slopes[H] f32: slope * (position of the column -
    position of the row) is added to the scores. sinks[H] f32: scores of a further column without a value. A row that
    sees nothing gives zeros. bm: rows of a block, groups: key heads of a program, bk: past slots of a block; blocks at
    or past n_past, or wholly before the window, are neither loaded nor multiplied. ones, slots: unused here.
    k_scales, v_scales, codes, widen: of a past of codes, as Cache has them.
    """
    rule = Rule(scale, softcap, window, causal)
    keys, values = caches((k_past, v_past), (k_scales, v_scales), codes, widen) or (None, None)
    (heads, rows, depth), (new, width) = q.shape, v_new.shape[1:]
    share = heads // k_new.shape[0]
    g, i = t.programs(t.cdiv(k_new.shape[0], groups), t.cdiv(rows, bm))
    g, i = g * groups, i * bm
    past = 0 if k_past is None or not rule.sees_past(i) else k_past.shape[1]
    kv, bm = t.clipped(k_new, (g, 0, 0), (groups, 1, 1))[0], t.clipped(q, (0, i, 0), (1, bm, 1))[1]
    # one row: the heads of a group are the rows of one product, for all groups at once; else a product for each group
    batch, m = (kv, share) if rows == 1 else (share, bm)
    units = [(0, kv)] if rows == 1 else [(u, 1) for u in range(kv)]
    scores = t.scratch((kv, share, bm, past + new), score_type(q))
    for u, n in units:
        query = t.reshape(t.load(q, ((g + u) * share, i, 0), (n * share, bm, depth)), (batch, m, depth))
        product = t.mma(query, t.load(k_new, (g + u, 0, 0), (n, new, depth)), scale=rule.product_scale)
        t.store(scores, (u, 0, 0, past), t.reshape(product, (n, share, bm, new)))
        if keys is not None:
            for first in t.range(0, past, bk, stages=2):
                count = min(bk, past - first)
                with t.when(rule.past_shown(first, first + count - 1, i)):
                    for head, product in keys.products(query, g + u, first, n, count, rule.product_scale):
                        block = (product.shape[0] // (batch // n), share, bm, count)
                        t.store(scores, (u + head, 0, 0, first), t.reshape(product, block))

    s = rule.capped(t.load(scores, (0, 0, 0, 0), scores.shape))
    row, column = t.iota((bm, 1), 0) + i, t.iota((1, past + new), 1)
    position = t.where(column < past, column - t.step.n_past, column - past) if past else column
    if slopes is not None:
        s = s + (position - row).cast(t.f32) * of_heads(slopes, g * share, kv, share)
    # slots of skipped blocks hold anything, NaN included: `where` drops it
    exists = (column >= past) | (position < 0) if past else None
    if rule.causal or rule.window or past:
        s = t.where(visible(rule, position, row, exists), s, float("-inf"))
    sink = None if sinks is None else of_heads(sinks, g * share, kv, share)
    weights = softmax_rows(s, sink).cast(v_new.dtype)

    for u, n in units:
        mine = t.reshape(weights[u : u + n], (batch, m, past + new))
        acc = t.accumulator((batch, m, width))
        t.mma(mine[:, :, past:], t.load(v_new, (g + u, 0, 0), (n, new, width)), kn=True, acc=acc)
        if values is not None:
            for first in t.range(0, past, bk, stages=2):
                count = min(bk, past - first)
                with t.when(rule.past_shown(first, first + count - 1, i)):
                    part = mine[:, :, first : first + count]
                    t.mma(part, values.numbers(g + u, first, n, count, v_new.dtype), kn=True, acc=acc)
        t.store(out, ((g + u) * share, i, 0), t.reshape(acc.read(), (n * share, bm, width)))
