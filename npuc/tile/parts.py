"""Parts of arrays: where a load or store begins, what size it has, and what of that is known on the device alone."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.tile.affine import Affine, Index, SplitNeeded, affine
from npuc.tile.arrays import Array
from npuc.tile.errors import refused
from npuc.tile.trace import Memory

Valid = tuple[int, Index]
"""A dimension, and how many of its indices exist: an expression of t.step."""


def memory_of(array: Array, what: str) -> Memory:
    if not isinstance(array, Array):
        raise refused(f"{what} takes an array argument or scratch first, got {type(array).__name__}")
    return array.memory


def clip(memory: Memory, index: Sequence[Index], shape: Sequence[int]) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
    """Start and size of a part, cut at the array's end; equal sizes for the whole class of programs."""
    type_ = memory.type
    if len(index) != type_.rank or len(shape) != type_.rank:
        raise refused(
            f"{type_} needs an index and a shape of rank {type_.rank}, got {tuple(map(str, index))} and {tuple(shape)}"
        )
    starts, sizes = [], []
    for dimension, (first, size, extent) in enumerate(zip(map(affine, index), shape, type_.shape, strict=True)):
        low, high = first.without_step().range()
        if low < 0 or (high >= extent and size > 0 and extent > 0) or size < 0:
            raise refused(f"index {first} is outside dimension {dimension} of {type_}")
        cut = int(size)
        if first.step_field is None:
            cut = min(size, extent - high)
            if cut != min(size, extent - low):
                raise SplitNeeded(
                    next(
                        term
                        for term, _ in first.terms
                        if isinstance(term, int) and first.bounds[term][0] != first.bounds[term][1]
                    )
                )
        elif high + size > extent:
            raise refused(f"{size} rows from {first} do not fit dimension {dimension} of {type_}")
        starts.append(first)
        sizes.append(cut)
    return tuple(starts), tuple(sizes)


def runtime_extent(memory: Memory, valid: Valid | None, index: Sequence[Index]) -> tuple[int, Affine | None]:
    """The runtime dimension of a transfer and its extent; the index's step field must be in the same dimension."""
    shifted = [d for d, first in enumerate(index) if affine(first).step_field is not None]
    if shifted and memory.type.on_chip:
        raise refused(f"{memory.type} is on-chip; an index may depend on t.step only in DDR arrays")
    if valid is None:
        if len(shifted) > 1:
            raise refused("only one dimension of an index may depend on t.step")
        return (shifted[0] if shifted else 0), None
    axis, rows = valid
    if not 0 <= axis < memory.type.rank:
        raise refused(f"valid axis {axis} is not a dimension of {memory.type}")
    if shifted not in ([], [axis]):
        raise refused(
            f"valid is along dimension {axis}, the step offset along {shifted[0]}; a transfer has one such dimension"
        )
    expression = affine(rows)
    if [c for term, c in expression.terms if isinstance(term, str)] != [1]:
        raise refused(
            f"valid rows must have the form step.field + number, got {expression}; "
            "for a static extent use a smaller tile"
        )
    return axis, expression
