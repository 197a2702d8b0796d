"""Rotary position embedding."""

from npuc import tile as t


@t.kernel
def rotary(
    x: t.Array, cos: t.Array, sin: t.Array, out: t.Array,
    *, rotary_dim: int, interleaved: bool = False, bh: int, bc: int,
) -> None:  # fmt: skip
    """Rotates pairs of the first rotary_dim features of x[H, C, D] by the angles of cos, sin[C, rotary_dim / 2].

    Pairs are (d, d + rotary_dim / 2), or (2d, 2d + 1) if interleaved; later features are copied. bh, bc: heads and rows
    of a block.
    """
    half = rotary_dim // 2
    h, c = (n * b for n, b in zip(t.programs(t.cdiv(x.shape[0], bh), t.cdiv(x.shape[1], bc)), (bh, bc), strict=True))
    cosine = t.load(cos, (c, 0), (bc, half))
    sine = t.load(sin, (c, 0), (bc, half))
    if interleaved:
        pairs = t.load(x, (h, c, 0), (bh, bc, rotary_dim))
        pairs = t.reshape(pairs, (*pairs.shape[:2], half, 2))
        first, second = (t.reshape(pairs[:, :, :, d : d + 1], (*pairs.shape[:2], half)) for d in (0, 1))
    else:
        first = t.load(x, (h, c, 0), (bh, bc, half))
        second = t.load(x, (h, c, half), (bh, bc, half))
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    if interleaved:
        both = t.concat([t.reshape(part, (*part.shape, 1)) for part in turned], 3)
        t.store(out, (h, c, 0), t.reshape(both, (*both.shape[:2], rotary_dim)))
    else:
        t.store(out, (h, c, 0), turned[0])
        t.store(out, (h, c, half), turned[1])
    if rotary_dim < x.shape[2]:
        rest = x.shape[2] - rotary_dim
        t.store(out, (h, c, rotary_dim), t.load(x, (h, c, rotary_dim), (bh, bc, rest)))
