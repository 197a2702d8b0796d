"""Linear layers and tables whose weights stay codes of a few bits, in rows that hold their scales, too."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from npuc import tile as t
from npukernels.blocks import load_block

Epilogue = Callable[..., t.Tile]
ALIGN = 16  # bytes that a row is a multiple of: the DPU asks for it of weights (npu40xx.toml)


@dataclass(frozen=True)
class Row:
    """One output channel, or one row of a table, in bytes: k codes, a scale for each `group` of them, and shifts.

    Number i is (code i - zero) * scale of its group + shift of its group. shifts: their type, None where all are zero.
    """

    k: int
    codes: t.DType
    group: int
    zero: int
    scales: t.DType
    shifts: t.DType | None = None

    @property
    def groups(self) -> int:
        return t.cdiv(self.k, self.group)

    @property
    def code_bytes(self) -> int:
        """Codes begin the row; scales begin where an element of theirs may lie."""
        size = self.k * self.codes.bits // 8
        return t.cdiv(size, self.scales.nbytes) * self.scales.nbytes

    @property
    def scale_bytes(self) -> int:
        return self.groups * self.scales.nbytes

    @property
    def nbytes(self) -> int:
        shifts = 0 if self.shifts is None else self.groups * self.shifts.nbytes
        return t.cdiv(self.code_bytes + self.scale_bytes + shifts, ALIGN) * ALIGN

    def parts(self, rows: t.Tile) -> tuple[t.Tile, t.Tile, t.Tile | None]:
        """Bytes of the codes, scales [n, groups] and shifts [n, groups] of rows [n, nbytes]."""
        after = self.code_bytes + self.scale_bytes
        codes = rows[:, 0 : self.k * self.codes.bits // 8]
        scales = t.unpack(rows[:, self.code_bytes : after], self.scales)
        if self.shifts is None:
            return codes, scales, None
        return codes, scales, t.unpack(rows[:, after : after + self.groups * self.shifts.nbytes], self.shifts)


def product(x: t.Tile, rows: t.Tile, row: Row, ones: t.Tile | None, widen: bool) -> t.Tile:
    """x [m, k] times the transpose of rows' numbers. ones: codes [groups, k] that pick the groups, for shifts.

    The shifts' part is the product of x's sums over groups with them: both by the matrix engine, which reads codes.
    widen: dequantise by vector code first, for engines that take no such codes.
    """
    if widen:
        return t.mma(x, numbers(rows, row).cast(x.dtype))
    codes, scales, shifts = row.parts(rows)
    if shifts is None or ones is None:
        return t.mma_scaled(x, codes, scales, dtype=row.codes, group=row.group, zero=row.zero)
    acc = t.accumulator((x.shape[0], rows.shape[0]))
    t.mma_scaled(x, codes, scales, dtype=row.codes, group=row.group, zero=row.zero, acc=acc)
    sums = t.mma_scaled(x, ones, None, dtype=t.u8 if ones.shape[1] == row.k else t.u4)
    return t.mma(sums.cast(x.dtype), shifts, acc=acc)


def numbers(rows: t.Tile, row: Row) -> t.Tile:
    """f32 [n, k] of rows, by vector code."""
    codes, scales, shifts = row.parts(rows)
    wide = t.dequant(codes, row.codes, scales, zero=row.zero or None, group=row.group)
    if shifts is None:
        return wide
    pairs = [(first, min(row.group, row.k - first)) for first in range(0, row.k, row.group)]
    columns = [t.broadcast(shifts[:, i : i + 1].cast(t.f32), (rows.shape[0], n)) for i, (_, n) in enumerate(pairs)]
    return wide + t.concat(columns, 1)


def _blocks(
    x: t.Array, weights: Sequence[t.Array], sizes: tuple[int, int], ones: t.Array | None, row: Row, widen: bool
) -> Iterator[tuple[tuple[t.Index, t.Index], list[t.Tile]]]:
    """For each block of this program, which has the weights of one block of columns: its place and the products."""
    bm, bn = sizes
    (j,) = t.programs(t.cdiv(weights[0].shape[0], bn))
    held = [t.load(w, (j * bn, 0), (bn, row.nbytes)) for w in weights]
    picks = None if ones is None else t.load(ones, (0, 0), ones.shape)
    for i in range(0, x.shape[0], bm):
        block = t.load(x, (i, 0), (bm, row.k))
        yield (i, j * bn), [product(block, rows, row, picks, widen) for rows in held]


@t.kernel
def matmul_codes(
    x: t.Array, w: t.Array, out: t.Array, ones: t.Array | None = None, *extra: t.Array,
    bm: int, bn: int, row: Row, epilogue: Epilogue | None = None, widen: bool = False,
) -> None:  # fmt: skip
    """out[M, N] = epilogue(x[M, K] w^T, *extra), w: u8 [N, row.nbytes]. ones: with shifts, codes of 0 and 1.

    They are u4 [groups, K / 2] in bytes, or u8 [groups, K] where K is odd. widen: see `product`.
    """
    for index, (result,) in _blocks(x, [w], (bm, bn), ones, row, widen):
        more = [load_block(array, index, (bm, bn)) for array in extra]
        t.store(out, index, result if epilogue is None else epilogue(result, *more))


@t.kernel
def matmul_codes_pair(
    x: t.Array, w0: t.Array, w1: t.Array, out: t.Array, ones: t.Array | None = None, *extra: t.Array,
    bm: int, bn: int, row: Row, epilogue: Epilogue, widen: bool = False,
) -> None:  # fmt: skip
    """out[M, N] = epilogue(x w0^T, x w1^T, *extra): a gated layer in one pass, its weights of one form."""
    for index, pair in _blocks(x, [w0, w1], (bm, bn), ones, row, widen):
        t.store(out, index, epilogue(*pair, *(load_block(array, index, (bm, bn)) for array in extra)))


@t.kernel
def gather_codes(table: t.Array, ids: t.Array, out: t.Array, *, bt: int, row: Row) -> None:
    """out[T, K] = the numbers of table[ids[T]], u8 rows; a number outside the table gives zeros."""
    (i,) = t.programs(t.cdiv(ids.shape[0], bt))
    rows = t.gather(table, t.load(ids, (i * bt,), (bt,)))
    t.store(out, (i * bt, 0), numbers(rows, row))
