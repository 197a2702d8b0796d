"""Sliding-window attention: each row sees the last `window` positions, and blocks of the cache that the window has left
are neither loaded nor multiplied, however large the cache is.

npuc kernel run examples/kernels/sliding_window_attention.py --check
npuc compile MODEL -o model.npu --kernel attention=examples/kernels/sliding_window_attention.py:sliding_window_attention
"""

import numpy as np

from npuc import tile as t

LOW = -1e30  # below every score, and finite: a row that has seen nothing stays a number


@t.kernel
def sliding_window_attention(q, k_new, v_new, k_past, v_past, out, *, scale, window, bk=64):
    """q[H, C, D], k_new, v_new[G, C, D], k_past, v_past[G, N, D] or None: row i sees `window` rows up to its own.

    window 0, which layers without one have: all of them.
    """
    (heads, rows, depth), width = q.shape, v_new.shape[2]
    h, share = t.programs(heads)[0], heads // k_new.shape[0]
    slots = 0 if k_past is None else k_past.shape[1]
    window = window or slots + rows
    query, row = t.reshape(t.load(q, (h, 0, 0), (1, rows, depth)), (rows, depth)), t.iota((rows, 1), 0)
    top, total = t.scratch((rows, 1), t.f32), t.scratch((rows, 1), t.f32)
    t.store(top, (0, 0), t.full((rows, 1), LOW))
    t.store(total, (0, 0), t.zeros((rows, 1)))
    acc = t.accumulator((rows, width), init=0)

    def block(k, v, first, size, past, **valid):
        """Adds `size` columns from `first` on. past: position of column 0 is -past."""
        keys, values = (t.load(a, (h // share, first, 0), (1, size, a.shape[2]), **valid) for a in (k, v))
        column = t.iota((1, keys.shape[1]), 1) + first - past
        seen = (column <= row) & (column > row - window)
        seen = seen & (column < 0) if valid else seen
        keys, values = t.reshape(keys, keys.shape[1:]), t.reshape(values, values.shape[1:])
        scores = t.where(seen, t.mma(query, keys, scale=scale), LOW)
        before = t.load(top, (0, 0), (rows, 1))
        after = t.maximum(before, t.max(scores, axis=1))
        weights = t.where(seen, t.exp(scores - after), 0.0).cast(values.dtype)
        shrink = t.exp(before - after)
        t.store(total, (0, 0), t.load(total, (0, 0), (rows, 1)) * shrink + t.sum(weights, axis=1))
        t.store(top, (0, 0), after)
        acc.scale(shrink)
        t.mma(weights, values, kn=True, acc=acc)

    for first in t.range(0, slots, bk, stages=2):
        # slot j is at j - n_past, and row 0 sees what lies behind -window
        with t.when((t.step.n_past > first) & (t.step.n_past < first + bk - 1 + window)):
            block(k_past, v_past, first, bk, t.step.n_past, valid=(1, t.step.n_past - first))
    for first in t.range(0, rows, bk, stages=2):
        block(k_new, v_new, first, bk, 0)
    t.store(out, (h, 0, 0), t.reshape(acc.read() / t.load(total, (0, 0), (rows, 1)), (1, rows, width)))


def candidates(types, params):
    """Block sizes to tune over; `npuc kernel tune` prunes those that do not fit."""
    slots = types[3].shape[1] if types[3] is not None else types[1].shape[1]
    yield from ({"bk": bk} for bk in sorted({min(size, slots) for size in (32, 64, 128, 256)}, reverse=True))


def example():
    """A chunk of 20 rows after 150 past ones, of which a window of 40 shows no row the first hundred."""
    past, rows, window, random = 150, 20, 40, np.random.default_rng(1)
    shapes = [(4, rows, 32), *[(2, rows, 32)] * 2, *[(2, 300, 32)] * 2]
    made = [random.standard_normal(shape).astype(np.float16) for shape in shapes]

    def reference(q, k_new, v_new, k_past, v_past):
        k, v = (np.concatenate([a[:, :past], b], 1).repeat(2, 0) for a, b in ((k_past, k_new), (v_past, v_new)))
        seen = np.tri(rows, past + rows, past) - np.tri(rows, past + rows, past - window)
        scores = np.where(seen > 0, 0.2 * q @ k.transpose(0, 2, 1), -np.inf)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        return weights / weights.sum(2, keepdims=True) @ v

    arrays = (*made, np.zeros((4, rows, 32), np.float16))
    return t.Example(arrays, {"scale": 0.2, "window": window}, reference, {"n_past": past, "n_new": rows})
