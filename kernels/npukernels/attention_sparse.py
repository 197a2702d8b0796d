"""Attention of each token over cache rows that an index names: one latent key head, whose rows are keys and values."""

from npuc import tile as t

CACHES = {t.e4m3: (t.e8m0, 32), t.e2m1: (t.e4m3, 16)}
"""Of rows that hold codes: the type of the scales behind them, and how many codes share one."""
LOWEST = -3.4028234663852886e38  # the lowest finite f32 marks rows that have seen nothing


def _rows(cache: t.Array, index: t.Tile, depth: int, codes: t.DType | None, dtype: t.DType) -> t.Tile:
    """Rows [n, depth] of the cache by number; zeros where a number is no row."""
    rows = t.gather(cache, index)
    if codes is None:
        return rows
    scales, group = CACHES[codes]
    held = depth // 2 if codes is t.e2m1 else depth
    factors = t.unpack(rows[:, held:], scales).cast(t.f32)
    return t.dequant(rows[:, :held], codes, factors, group=group).cast(dtype)


@t.kernel
def attention_sparse(
    q: t.Array, cache: t.Array, indices: t.Array, out: t.Array, lengths: t.Array | None = None,
    sinks: t.Array | None = None, lse: t.Array | None = None, largest: t.Array | None = None,
    *, scale: float, codes: t.DType | None = None, threshold: float = 6.0, bk: int,
) -> None:  # fmt: skip
    """out[S, H, Dv] = softmax(scale * q[S, H, D] k^T) v for k = cache[indices[S, K]], v its first Dv columns.

    cache[N, D], or u8 rows of D codes (e4m3 or e2m1) and their scales. Numbers that are no row, and those from
    lengths[S] on, are ignored, and their rows never read; one that stands twice counts twice. sinks[H] f32, natural:
    weight in the denominator of out alone. lse[S, H], largest[S, H] f32: natural logarithm of the sum of exp, and the
    largest score; +inf and -inf where a token sees nothing, whose out is 0. Sums are rescaled where a score of any head
    exceeds what they are relative to by more than `threshold`. bk: numbers of a block.
    """
    (_, heads, depth), width = q.shape, out.shape[2]
    (s,) = t.programs(q.shape[0])
    query = t.reshape(t.load(q, (s, 0, 0), (1, heads, depth)), (heads, depth))
    best, base, total = (t.scratch((heads, 1)) for _ in range(3))
    acc = t.accumulator((heads, width))

    def read(array: t.Array) -> t.Tile:
        return t.load(array, (0, 0), (heads, 1))

    for first in range(0, indices.shape[1], bk):
        size = t.clipped(indices, (s, first), (1, bk))[1]
        index = t.load(indices, (s, first), (1, size))
        valid = (index >= 0) & (index < cache.shape[0])
        if lengths is not None:
            valid = valid & (t.iota((1, size), 1) + first < t.load(lengths, (s,), (1,)))
        rows = _rows(cache, t.reshape(t.where(valid, index, -1), (size,)), depth, codes, q.dtype)
        products = t.where(valid, t.mma(query, rows), float("-inf"))
        most = t.maximum(t.max(products, 1), LOWEST if first == 0 else read(best))
        t.store(best, (0, 0), most)
        if first == 0:
            t.store(base, (0, 0), most)
        else:
            with t.when(t.max(most - read(base), 0) > threshold / scale):
                fade = t.exp((read(base) - read(best)) * scale)
                t.store(total, (0, 0), read(total) * fade)
                acc.scale(fade)
                t.store(base, (0, 0), read(best))
        weights = t.exp((products - (most if first == 0 else read(base))) * scale)
        t.store(total, (0, 0), t.sum(weights, 1) if first == 0 else read(total) + t.sum(weights, 1))
        t.mma(weights.cast(q.dtype), rows[:, :width], kn=True, acc=acc)
    seen, reach = read(best) > LOWEST, read(base) * scale
    below = read(total)
    if lse is not None:
        t.store(lse, (s, 0), t.reshape(t.where(seen, t.log(below) + reach, float("inf")), (1, heads)))
    if largest is not None:
        t.store(largest, (s, 0), t.reshape(t.where(seen, read(best) * scale, float("-inf")), (1, heads)))
    if sinks is not None:
        below = below + t.exp(t.reshape(t.load(sinks, (0,), (heads,)), (heads, 1)) - reach)
    result = t.where(seen, acc.read() / t.where(seen, below, 1.0), 0.0)
    t.store(out, (s, 0, 0), t.reshape(result, (1, heads, width)))
