"""Rows of the past as attention reads them: floats, or codes of a byte with a scale for each row."""

from collections.abc import Iterator
from dataclasses import dataclass

from npuc import tile as t


@dataclass(frozen=True)
class Cache:
    """Keys or values. rows: floats [G, N, D], or with `codes` (i8 or e4m3) u8 [G, N, D]; scales: f32 or f16 [G, N].

    Row j of codes stands for number(code) * scales[j]. widen: keys become floats by vector code, for engines that take
    no such codes; values always do, as their scales lie along the sum of the product. Rows from n_past on are not read.
    """

    rows: t.Array
    scales: t.Array | None = None
    codes: t.DType | None = None
    widen: bool = False

    @property
    def floats(self) -> bool:
        """Whether products are those of floats, which take a table."""
        return self.codes is None or self.widen

    def _load(self, g: t.Index, first: int, kv: int, count: int) -> tuple[t.Tile, t.Tile | None]:
        """Rows [kv, count, D] and scales [kv, count]: zeros from n_past on."""
        valid = (1, t.step.n_past - first)
        rows = t.load(self.rows, (g, first, 0), (kv, count, self.rows.shape[2]), valid=valid)
        return rows, None if self.scales is None else t.load(self.scales, (g, first), (kv, count), valid=valid)

    def numbers(self, g: t.Index, first: int, kv: int, count: int, dtype: t.DType) -> t.Tile:
        """Rows first .. first + count of kv heads from g on, [kv, count, D]; codes become numbers of `dtype`."""
        rows, scales = self._load(g, first, kv, count)
        if self.codes is None or scales is None:
            return rows
        return t.dequant(rows, self.codes, t.reshape(scales, (*scales.shape, 1))).cast(dtype)

    def products(
        self, query: t.Tile, g: t.Index, first: int, kv: int, count: int, scale: float, table: t.Tile | None = None
    ) -> Iterator[tuple[int, t.Tile]]:
        """scale * query [B, m, D] times these rows of keys, where B / kv of the B are for each head.

        Gives one product [B, m, count], or of codes one [B / kv, m, count] for each head, each with its first head. The
        matrix engine multiplies with the scales of codes, `scale` among them. table: as in t.mma, where `floats`.
        """
        if self.floats:
            yield 0, t.mma(query, self.numbers(g, first, kv, count, query.dtype), scale=scale, table=table)
            return
        assert self.codes is not None
        (batch, m, depth), (rows, held) = query.shape, self._load(g, first, kv, count)
        share = batch // kv
        scales = None if held is None else held.cast(t.f32) * scale
        for u in range(kv):
            mine = t.reshape(query[u * share : (u + 1) * share], (share * m, depth))
            factors = None if scales is None else t.reshape(scales[u : u + 1], (count, 1))
            product = t.mma_scaled(mine, t.reshape(rows[u : u + 1], (count, depth)), factors, dtype=self.codes)
            yield u, t.reshape(product, (share, m, count))


def caches(
    past: tuple[t.Array | None, t.Array | None], scales: tuple[t.Array | None, t.Array | None],
    codes: t.DType | None, widen: bool,
) -> tuple[Cache, Cache] | None:  # fmt: skip
    """Keys and values of the past, None where there are none. ValueError where codes and scales do not go together."""
    (keys, values), (k_scales, v_scales) = past, scales
    if keys is None or values is None:
        return None
    if (codes is None, codes is None) != (k_scales is None, v_scales is None):
        raise ValueError("a cache of codes has `codes`, k_scales and v_scales, one of floats none of them")
    if codes not in (None, t.i8, t.e4m3):
        raise ValueError(f"a cache holds codes of i8 or e4m3, not {codes.label}")
    return Cache(keys, k_scales, codes, widen), Cache(values, v_scales, codes, widen)
