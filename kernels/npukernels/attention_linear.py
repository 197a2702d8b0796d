"""Linear attention: the past is one matrix for each head, a replace state."""

from npuc import tile as t


@t.kernel
def attention_linear(
    q: t.Array, k: t.Array, v: t.Array, state: t.Array, out: t.Array, following: t.Array,
    decays: t.Array | None = None, *, scale: float = 1.0,
) -> None:  # fmt: skip
    """out[H, C, Dv] = scale * (q[H, C, D] decayed state[H, D, Dv] + causal(decayed q k^T) v).

    Row i has seen rows j <= i, each decayed by decays[H] f32 (in (0, 1]; without it 1) once a row: it weighs
    decay^(i - j), the state decay^(i + 1). following[H, D, Dv]: the state after the first step.n_new rows; it may be
    the state's own memory. One head a program.
    """
    (_, rows, depth), width = q.shape, v.shape[2]
    (h,) = t.programs(q.shape[0])
    query, key = (t.reshape(t.load(a, (h, 0, 0), (1, rows, depth)), (rows, depth)) for a in (q, k))
    values = t.reshape(t.load(v, (h, 0, 0), (1, rows, width)), (rows, width))
    held = t.reshape(t.load(state, (h, 0, 0), (1, depth, width)), (depth, width))
    row, column = t.iota((rows, 1), 0), t.iota((1, rows), 1)
    rate = None if decays is None else t.log(t.reshape(t.load(decays, (h,), (1,)), (1, 1)))

    def faded(steps: t.Tile) -> t.Tile | float:
        """decay^steps."""
        return 1.0 if rate is None else t.exp(rate * steps.cast(t.f32))

    old = t.mma(query, held.cast(q.dtype), kn=True, scale=scale) * faded(row + 1)
    scores = t.mma(query, key, scale=scale) * faded(t.where(column <= row, row - column, 0))
    fresh = t.mma(t.where(column <= row, scores, 0.0).cast(v.dtype), values, kn=True)
    t.store(out, (h, 0, 0), t.reshape(old + fresh, (1, rows, width)))
    left = t.step.n_new - 1 - row
    weights = t.where(row < t.step.n_new, key.cast(t.f32) * faded(t.where(row < t.step.n_new, left, 0)), 0.0)
    added = t.mma(t.transpose(weights.cast(k.dtype), (1, 0)), values, kn=True)
    kept = held.cast(t.f32) * faded(t.full((1, 1), 0, t.i32) + t.step.n_new)
    t.store(following, (h, 0, 0), t.reshape(kept + added, (1, depth, width)))
