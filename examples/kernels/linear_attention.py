"""Linear attention: instead of a cache of keys and values, a state of fixed size, S += k^T v, read by q S.

The model calls examples::LinearAttention, a function with a body in standard operators; its state is a pair of an input
and an output, which the runtime keeps between runs.

npuc kernel run examples/kernels/linear_attention.py --check
npuc compile MODEL -o model.npu --kernel examples::LinearAttention=examples/kernels/linear_attention.py:linear_attention
"""

import numpy as np

from npuc import tile as t


@t.kernel
def linear_attention(q, k, v, state, out, new_state):
    """q, k[H, C, D], v[H, C, E], state[H, D, E]: row i reads the state and the rows up to its own, then all are added.

    out = q S + tril(q k^T) v, new_state = S + k^T v: four products for each head, and a mask between them.
    """
    heads, rows, depth = q.shape
    width = v.shape[2]
    (h,) = t.programs(heads)

    def head(array, *shape):
        return t.reshape(t.load(array, (h, 0, 0), (1, *shape)), shape)

    query, keys, values = head(q, rows, depth), head(k, rows, depth), head(v, rows, width)
    before = head(state, depth, width)
    seen = t.iota((rows, rows), 1) <= t.iota((rows, rows), 0)
    scores = t.where(seen, t.mma(query, keys), 0.0).cast(q.dtype)
    mixed = t.accumulator((rows, width))
    t.mma(query, before, kn=True, acc=mixed)
    t.mma(scores, values, kn=True, acc=mixed)
    t.store(out, (h, 0, 0), t.reshape(mixed.read(), (1, rows, width)))
    added = t.mma(t.transpose(keys, (1, 0)), values, kn=True)
    t.store(new_state, (h, 0, 0), t.reshape(before + added, (1, depth, width)))


def reference(q, k, v, state):
    scores = np.tril(q @ k.transpose(0, 2, 1))
    return q @ state + scores @ v, state + k.transpose(0, 2, 1) @ v


def example():
    rows, keys, values = t.dense(t.f32, (3, 17, 16)), t.dense(t.f32, (3, 17, 16)), t.dense(t.f32, (3, 17, 24))
    state, out = t.dense(t.f32, (3, 16, 24)), t.dense(t.f32, (3, 17, 24))
    return t.Example((rows, keys, values, state, out, state), {}, reference)
