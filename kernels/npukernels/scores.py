"""What the attention kernels share: which columns a row sees, and what is done to scores before the softmax.

Columns are slots of the past or rows of this step's input. A position is counted from n_past: slot j is at j - n_past,
new row i at i.
"""

from dataclasses import dataclass

from npuc import tile as t


@dataclass(frozen=True)
class Rule:
    """scale, softcap (0: none), window (0: none), causal: as the kernels document them."""

    scale: float
    softcap: float = 0.0
    window: int = 0
    causal: bool = True

    @property
    def product_scale(self) -> float:
        """What the products are multiplied with as they are made."""
        return self.scale / self.softcap if self.softcap else self.scale

    def capped(self, s: t.Tile) -> t.Tile:
        """Scores from products."""
        return self.softcap * t.tanh(s) if self.softcap else s

    def hides_nothing(self, row: int, rows: int, column: int, columns: int) -> bool:
        """Whether each of `rows` new rows from `row` sees each of `columns` new columns from `column`."""
        before = not self.causal or column + columns - 1 <= row
        return before and not (self.window and column <= row + rows - 1 - self.window)

    def hides_all(self, row: int, rows: int, column: int, columns: int) -> bool:
        """Whether none of these rows sees any of these columns."""
        later = self.causal and column > row + rows - 1
        return later or bool(self.window and column + columns - 1 <= row - self.window)

    def sees_past(self, row: t.Index) -> bool:
        """Whether new rows from `row` on see any slot of the past: the nearest one is at -1."""
        return not self.window or row <= self.window - 2

    def past_shown(self, first: int, last: int, row: t.Index) -> t.Condition | bool:
        """Whether new rows from `row` on, which see the past, see any of its slots from `first` to `last`.

        Slot j is at j - n_past, and row i sees what lies behind i - window. So the first row still sees the last slot
        where n_past < last - row + window.
        """
        valid = t.step.n_past > first
        return valid & (t.step.n_past < last - row + self.window) if self.window else valid


def visible(rule: Rule, position: t.Tile, row: t.Tile, exists: t.Tile | None = None) -> t.Tile:
    """Bool [rows, columns] from i32 positions [1, columns] and [rows, 1]. exists: bool, columns that hold anything."""
    seen = exists
    if rule.causal:
        before = position <= row
        seen = before if seen is None else seen & before
    if rule.window:
        near = position > row - rule.window
        seen = near if seen is None else seen & near
    return t.full((row.shape[0], position.shape[1]), True, t.boolean) if seen is None else seen


def of_heads(numbers: t.Array, first: t.Index, kv: int, share: int) -> t.Tile:
    """A number per query head as [kv, share, 1, 1], against scores."""
    return t.reshape(t.load(numbers, (first,), (kv * share,)), (kv, share, 1, 1))


def score_type(queries: t.Array) -> t.DType:
    """How scores are stored: f16 beside f16 operands, else f32, as bf16 has too few digits for an exponent."""
    return t.f16 if queries.dtype is t.f16 else t.f32
