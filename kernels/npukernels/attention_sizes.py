"""Tile sizes that are worth trying for each form of attention. On-chip memory is what bounds them, so only what fits is
offered where that is easy to see."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from npuc import tile as t
from npuc.tile import ArrayType

Types = Sequence[ArrayType | None]
Sizes = dict[str, Any]
PANEL = 16  # rows and channels that the DPU computes at once
LONGEST = 2048  # keys of a block, at most: a longer one is no faster
FEWEST = 128  # keys of a block, at least, where there are more: a SHAVE launch costs as much as some 10,000 scores
MANY_ROWS = 16  # rows of all heads in a run, below which several key heads share one
MOST_STEPS = 256  # blocks that one program may unroll


def halvings(extent: int, multiple: int = 1) -> Iterator[int]:
    """extent, then ever smaller sizes that are multiples of `multiple`, each about half of the last."""
    size = max(extent, 1)
    yield size
    while size > multiple:
        size = max(multiple, -(-size // 2 // multiple) * multiple)
        yield size


class _Shape:
    """What the sizes follow: heads, key heads, rows, slots of the past and new keys; item: bytes of a score."""

    def __init__(self, types: Types) -> None:
        q, k_new, v_new, k_past = types[:4]
        assert q is not None and k_new is not None and v_new is not None
        (self.heads, self.rows, self.depth), (self.groups, self.new, _) = q.shape, k_new.shape
        self.past, self.width = 0 if k_past is None else k_past.shape[1], v_new.shape[2]
        self.share, self.item = self.heads // self.groups, q.dtype.nbytes
        coded = k_past is not None and k_past.dtype is t.u8
        self.key_item = self.item + coded  # codes lie beside the numbers that they become

    def key_bytes(self, keys: int) -> int:
        """A block of keys and one of values of one key head."""
        return keys * (self.depth + self.width) * self.key_item


def decomposed(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Fewer key heads in a program, then fewer rows (the scores are what is large), then shorter key blocks."""
    shape = _Shape(types)
    block = min(max(shape.past, 1), 512)
    sizes = [(shape.rows, count) for count in halvings(shape.groups)]
    sizes += [(bm, 1) for bm in list(halvings(shape.rows))[1:]]
    for bm, count in sizes:
        scores = shape.item * count * shape.share * bm * (shape.past + shape.new)
        if free is None or scores <= free:
            yield {"bm": bm, "groups": count, "bk": block}
    for bk in list(halvings(block, PANEL))[1:]:
        yield {"bm": 1, "groups": 1, "bk": bk}


def flash(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Blocks of scores, two of which are on-chip at once: the longest keys first, each with the most rows that fit."""
    shape = _Shape(types)
    longest = max(shape.past, shape.new)
    for bk in halvings(min(longest, LONGEST), PANEL):
        for batch, br in product(_batches(shape), halvings(shape.rows, PANEL)):
            sums = 4 * batch * shape.share * br * (shape.width + 1)
            local = 2 * (batch * shape.share * br * bk * shape.item + sums) + batch * shape.key_bytes(bk)
            if free is None or local <= free:
                bm = _program_rows(shape, br, bk, batch)
                yield {"groups": shape.groups, "batch": batch, "bm": bm, "br": br, "bk": bk}
                if free is not None:
                    break


def _batches(shape: _Shape) -> list[int]:
    """Key heads in one run: several where one alone has few rows."""
    if shape.share * shape.rows >= 2 * FEWEST:
        return [1]
    return list(halvings(shape.groups))


def _program_rows(shape: _Shape, br: int, bk: int, batch: int) -> int:
    """Rows of a program: as many as unroll into a moderate number of blocks."""
    blocks = -(-shape.groups // batch) * (-(-shape.past // bk) + -(-shape.new // bk))
    return min(shape.rows, br * max(1, MOST_STEPS // max(blocks, 1)))


def incremental(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """One row: all key heads, fewer where their keys do not fit; one softmax, or one for each part of the past."""
    shape = _Shape(types)
    if shape.rows != 1:
        return
    for groups, part in product(halvings(shape.groups), halvings(max(shape.past, 1), FEWEST)):
        bk = min(part, 512)
        local = groups * (shape.share * (part + shape.new) * shape.item + shape.key_bytes(bk))
        if free is None or local <= free:
            yield {"groups": groups, "part": part, "bk": bk}
    for bk in list(halvings(min(max(shape.past, 1), FEWEST), PANEL))[1:]:
        yield {"groups": 1, "part": bk, "bk": bk}


def sparse(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """All numbers of a token in one block, then fewer: a block's rows are gathered at once."""
    indices = types[2]
    assert indices is not None
    return ({"bk": bk} for bk in halvings(indices.shape[1], PANEL))
