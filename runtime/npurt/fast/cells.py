"""Exact overlap of views: device memory cut into the cells that the views of an entry tell apart.

Every first and last byte of a run of adjacent bytes of any view is an edge; a cell lies between two neighbouring edges.
A view is then a set of whole cells, so that "who wrote this last" is a small array lookup, however strided the view.
Passes replace a written view only by others of the same edges, and a read one by parts of others: its cells are then
all that it touches, which errs to the safe side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from npurt.fast.ops import Access, Op
from npurt.fast.refs import Plane, Ref, rows_of

Index = slice | np.ndarray


class Cells:
    """Cells of all views that `ops` touch, in all bases but `constant`, which nobody writes."""

    def __init__(self, ops: Sequence[Op], constant: int, extra: Iterable[Ref] = ()) -> None:
        self.constant = constant
        seen: set[tuple[int, int, tuple[int, ...], tuple[int, ...], int]] = set()
        edges: dict[int, list[np.ndarray]] = {}
        refs = [access.ref for op in ops for access in (*op.reads, *op.writes)]
        for ref in (*refs, *extra):
            key = (ref.base, ref.offset, ref.shape, ref.stride, ref.dtype.nbytes)
            if ref.base == constant or key in seen:
                continue
            seen.add(key)
            found = rows_of(ref)
            low, high = ref.hull
            starts, length = found if found is not None else (np.array([low]), high - low)
            edges.setdefault(ref.base, []).extend((starts, starts + length))
        self._edges = {base: np.unique(np.concatenate(parts)) for base, parts in edges.items()}
        self._known: dict[tuple[int, int, tuple[int, ...], tuple[int, ...], int], Index] = {}

    def index(self, access: Access) -> Index:
        """The cells of an operand."""
        if access.index is None:
            access.index = self.of(access.ref)
        return access.index

    def of(self, ref: Ref) -> Index:
        """The cells of a view; of one whose ends are no edges all cells that it touches."""
        key = (ref.base, ref.offset, ref.shape, ref.stride, ref.dtype.nbytes)
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = self._find(ref)
        return index

    def places(self, ref: Ref) -> np.ndarray:
        """The cells of a view by number."""
        index = self.of(ref)
        return np.arange(index.start, index.stop) if isinstance(index, slice) else index

    def track(self, value: int, dtype: type[np.generic]) -> Track:
        """An array over the cells of each plane of each base, filled with `value`."""
        return Track(self, value, dtype)

    def size(self, base: int) -> int:
        return len(self._edges[base])

    def range_of(self, base: int, first: int, last: int) -> tuple[int, int]:
        """Bytes of the cells first to last (included)."""
        edges = self._edges[base]
        return int(edges[first]), int(edges[last + 1])

    def _find(self, ref: Ref) -> Index:
        edges = self._edges[ref.base]
        low, high = ref.hull
        first, last = int(np.searchsorted(edges, low, "right")) - 1, int(np.searchsorted(edges, high))
        first = max(first, 0)
        found = rows_of(ref)
        if found is None or len(found[0]) <= 1:
            return slice(first, last if high > low else first)
        starts, length = found
        begin = np.maximum(np.searchsorted(edges, starts, "right") - 1, 0)
        end = np.searchsorted(edges, starts + length)
        mask = np.zeros(last - first + 1, np.int32)
        np.add.at(mask, begin - first, 1)
        np.add.at(mask, end - first, -1)
        index = first + np.flatnonzero(np.cumsum(mask) > 0)
        if index.size and index.size == index[-1] - index[0] + 1:
            return slice(int(index[0]), int(index[-1]) + 1)
        return index


def exact(ref: Ref) -> bool:
    """Whether a view has few enough rows to be told apart from what lies between them."""
    return rows_of(ref) is not None


class Track:
    """One value for each cell of each plane, made on first use."""

    def __init__(self, cells: Cells, value: int, dtype: type[np.generic]) -> None:
        self._cells, self._value, self._dtype = cells, value, dtype
        self._arrays: dict[tuple[int, Plane], np.ndarray] = {}

    def _array(self, base: int, plane: Plane) -> np.ndarray:
        found = self._arrays.get((base, plane))
        if found is None:
            found = self._arrays[base, plane] = np.full(self._cells.size(base), self._value, self._dtype)
        return found

    def get(self, access: Access) -> np.ndarray:
        """The values of an operand's cells."""
        part: np.ndarray = self._array(access.ref.base, access.ref.plane)[self._cells.index(access)]
        return part

    def at(self, ref: Ref) -> np.ndarray:
        """The values of a view's cells."""
        part: np.ndarray = self._array(ref.base, ref.plane)[self._cells.of(ref)]
        return part

    def mark(self, access: Access, value: int) -> None:
        self._array(access.ref.base, access.ref.plane)[self._cells.index(access)] = value

    def put(self, ref: Ref, value: int) -> None:
        self._array(ref.base, ref.plane)[self._cells.of(ref)] = value

    def only(self, access: Access) -> int | None:
        """The one value of all of an operand's cells, None where there are several or no cells."""
        part = self.get(access)
        if not part.size:
            return None
        value = int(part[0])
        return value if part.size == 1 or bool((part == value).all()) else None

    def values(self, access: Access) -> set[int]:
        """The different values of an operand's cells."""
        part = self.get(access)
        if part.size <= 64:
            return set(part.tolist())
        first = part[0]
        return {int(first)} if (part == first).all() else set(np.unique(part).tolist())

    def largest(self, ref: Ref) -> int:
        """The largest value of a view's cells, the first one where there are none."""
        part = self.at(ref)
        return int(part.max()) if part.size else self._value
