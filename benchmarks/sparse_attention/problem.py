"""What the kernel computes, and the choices that its author has."""

from __future__ import annotations

from dataclasses import dataclass

from npurt.abi.dtypes import DType

VECTORS = 2
"""Vector units of a core; each has half of the heads' rows, and fetches half of each block's keys."""
TILE = 128
"""Channels of one step of the cube."""
FRACTAL = 16
"""Rows and columns of the cube's operand layout."""
THRESHOLD = 6.0
"""A running maximum may rise so far, in logits, before sums are scaled: exp stays below 404."""
BATCH = 640
"""Indices that are fetched and checked at once."""


@dataclass(frozen=True)
class Problem:
    """Attention of `queries` tokens on one core; each over `topk` rows of a cache of `keys` rows.

    heads: rows of a query, all of which share the chosen keys. dim: channels of a row, which is key and value.
    block: keys that are worked on at once. rows_per_request: of a gather. pad: rows of padding of a fractal column in
    the vector unit's memory. split: halves of queries and keys lie in both banks of L1. flag_first: the skip flag is
    written before the next gather is issued.
    """

    queries: int = 1
    topk: int = 640
    keys: int = 4096
    heads: int = 64
    dim: int = 512
    block: int = 64
    scale: float = 0.0625
    rows_per_request: int = 2
    pad: int = 1
    split: bool = True
    flag_first: bool = False

    def __post_init__(self) -> None:
        if self.topk % self.block or (BATCH % self.block and self.topk > BATCH):
            raise ValueError(f"{self.topk} keys are no whole blocks of {self.block}")

    @property
    def blocks(self) -> int:
        """Blocks of one query."""
        return self.topk // self.block

    @property
    def batch(self) -> int:
        """Indices of one batch."""
        return min(self.topk, BATCH)

    @property
    def rows(self) -> int:
        """Heads of one vector unit."""
        return self.heads // VECTORS

    @property
    def fetched(self) -> int:
        """Keys of a block that one vector unit fetches."""
        return self.block // VECTORS

    @property
    def tiles(self) -> int:
        """Steps of the cube over the channels."""
        return self.dim // TILE

    @property
    def macs(self) -> int:
        """Multiplications of the two products of all queries."""
        return 2 * self.queries * self.topk * self.heads * self.dim


TYPE = DType.BF16
"""Of queries, keys, weights and results; sums are f32."""
