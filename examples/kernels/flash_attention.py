"""Flash attention: one pass over the keys with a running maximum and sum, so that on-chip memory does not grow with
their number. Query blocks of 64 rows, key blocks of 128.

npuc kernel run examples/kernels/flash_attention.py:flash_attention --check
npuc compile MODEL -o model.npu --kernel attention=examples/kernels/flash_attention.py:flash_attention

flash_attention.choices.json beside this file is its tuned form: the tile sizes that `npuc kernel tune --save` found for
the example and for the embedded model, for `--choices`.
"""

import numpy as np

from npuc import tile as t

LOW = -1e30  # below every score, and finite: a row that has seen nothing stays a number


@t.kernel
def flash_attention(q, k_new, v_new, k_past, v_past, out, *, scale, bm=64, bk=128):
    """q[H, C, D], k_new, v_new[G, C, D], k_past, v_past[G, N, D] or None: row i sees the past and new rows up to i."""
    (heads, rows, depth), share = q.shape, q.shape[0] // k_new.shape[0]
    h, i = t.programs(heads, t.cdiv(rows, bm))
    query = t.reshape(t.load(q, (h, i * bm, 0), (1, bm, depth)), (-1, depth))
    count, row = query.shape[0], t.iota((query.shape[0], 1), 0) + i * bm
    top, total = t.scratch((count, 1), t.f32), t.scratch((count, 1), t.f32)
    t.store(top, (0, 0), t.full((count, 1), LOW))
    t.store(total, (0, 0), t.zeros((count, 1)))
    acc = t.accumulator((count, v_new.shape[2]), init=0)

    def block(keys, values, seen):
        """Adds one block of keys. seen: which of them each row sees."""
        scores = t.where(seen, t.mma(query, keys, scale=scale), LOW)
        before = t.load(top, (0, 0), (count, 1))
        after = t.maximum(before, t.max(scores, axis=1))
        shrink = t.exp(before - after)
        weights = t.where(seen, t.exp(scores - after), 0.0).cast(values.dtype)
        t.store(total, (0, 0), t.load(total, (0, 0), (count, 1)) * shrink + t.sum(weights, axis=1))
        t.store(top, (0, 0), after)
        acc.scale(shrink)
        t.mma(weights, values, kn=True, acc=acc)

    def part(array, first, size, **valid):
        rows = t.load(array, (h // share, first, 0), (1, size, array.shape[2]), **valid)
        return t.reshape(rows, rows.shape[1:])

    for first in t.range(0, 0 if k_past is None else k_past.shape[1], bk, stages=2):
        with t.when(t.step.n_past > first):
            valid = {"valid": (1, t.step.n_past - first)}
            keys = part(k_past, first, bk, **valid)
            column = t.iota((1, keys.shape[0]), 1) + first
            block(keys, part(v_past, first, bk, **valid), t.broadcast(column < t.step.n_past, (count, keys.shape[0])))
    for first in t.range(0, rows, bk, stages=2):
        keys = part(k_new, first, bk)
        block(keys, part(v_new, first, bk), t.iota((1, keys.shape[0]), 1) + first <= row)
    t.store(out, (h, i * bm, 0), t.reshape(acc.read() / t.load(total, (0, 0), (count, 1)), (1, count, -1)))


def candidates(types, params):
    """Block sizes to tune over; `npuc kernel tune` prunes those that do not fit."""
    rows, slots = types[0].shape[1], types[3].shape[1] if types[3] is not None else types[1].shape[1]
    for bm in sorted({min(size, rows) for size in (16, 32, 64, 128)}, reverse=True):
        for bk in sorted({min(size, slots) for size in (64, 128, 256, 512)}, reverse=True):
            yield {"bm": bm, "bk": bk}


def example():
    """A chunk of 100 rows after 150 past ones: short blocks everywhere."""
    past, rows, random = 150, 100, np.random.default_rng(1)
    made = [random.standard_normal(shape).astype(np.float16) for shape in [(4, rows, 32), *[(2, rows, 32)] * 2]]
    made += [random.standard_normal((2, 300, 32)).astype(np.float16) for _ in range(2)]

    def reference(q, k_new, v_new, k_past, v_past):
        k, v = (np.concatenate([a[:, :past], b], 1).repeat(2, 0) for a, b in ((k_past, k_new), (v_past, v_new)))
        scores = np.where(np.tri(rows, past + rows, past), 0.2 * q @ k.transpose(0, 2, 1), -np.inf)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        return weights / weights.sum(2, keepdims=True) @ v

    arrays = (*made, np.zeros((4, rows, 32), np.float16))
    return t.Example(arrays, {"scale": 0.2}, reference, {"n_past": past, "n_new": rows})
