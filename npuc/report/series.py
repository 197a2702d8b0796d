"""Many tasks in few words: coordinate sets as boxes, and numbers that follow a coordinate as a formula."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from npurt.errors import BlobError

Coord = tuple[int, ...]
Box = tuple[tuple[int, int], ...]  # an inclusive range per place
_BOX = re.compile(r"\[([\d.,-]*)\](?:\*(\d+(?:\.\.\d+)?))?")


def boxes(coords: Iterable[Coord]) -> list[Box]:
    """Disjoint boxes that cover exactly these coordinates (all of one rank), in rising order."""
    return _boxes(sorted(set(coords)))


def _boxes(coords: Sequence[Coord]) -> list[Box]:
    if not coords or not coords[0]:
        return [()] if coords else []
    rest: dict[int, list[Coord]] = {}
    for first, *others in coords:
        rest.setdefault(first, []).append(tuple(others))
    out: list[Box] = []
    start = end = 0
    inner: list[Box] | None = None
    for value, tails in rest.items():
        cover = _boxes(tails)
        if inner is not None and cover == inner and value == end + 1:
            end = value
            continue
        if inner is not None:
            out += [((start, end), *box) for box in inner]
        start, end, inner = value, value, cover
    assert inner is not None
    return out + [((start, end), *box) for box in inner]


def boxes_text(coords: Iterable[Coord]) -> str:
    """For example ``[0..3,0..2]``. A coordinate's last place counts tasks of one name: ``*0..3``, left out for 0."""
    words = []
    for *places, repeat in boxes(coords):
        words.append(f"[{','.join(_range(r) for r in places)}]" + (f"*{_range(repeat)}" if repeat != (0, 0) else ""))
    return " ".join(words)


def _range(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"{low}..{high}"


def parse_boxes(text: str) -> Iterator[Coord]:
    """The coordinates of `boxes_text`, with the count as last place. BlobError where the text is none."""
    for word in text.split(" "):
        match = _BOX.fullmatch(word)
        if match is None:
            raise BlobError(f"{word!r} is no set of coordinates")
        places = [*(match[1].split(",") if match[1] else []), match[2] or "0"]
        yield from product(*(_values(place) for place in places))


def _values(text: str) -> range:
    low, _, high = text.partition("..")
    return range(int(low), int(high or low) + 1)


def formula(coords: np.ndarray, values: np.ndarray) -> str:
    """values (int64 [tasks]) as an affine function of coords (int64 [tasks, places]), exactly.

    ``64+256*c1+32*k``: c1 is the coordinate's second place, k its last, the count. A set that is not affine gives its
    length and digest, so that a change is still seen.
    """
    first = int(values[0])
    if (values == first).all():
        return str(first)
    moving = [i for i in range(coords.shape[1]) if np.ptp(coords[:, i])]
    matrix = np.concatenate([np.ones((len(values), 1)), coords[:, moving]], axis=1)
    solution = np.rint(np.linalg.lstsq(matrix, values.astype(np.float64), rcond=None)[0]).astype(np.int64)
    if not (matrix.astype(np.int64) @ solution == values).all():
        return f"{{{len(values)} values {hashlib.sha256(values.astype('<i8').tobytes()).hexdigest()[:8]}}}"
    names = [f"c{i}" if i < coords.shape[1] - 1 else "k" for i in moving]
    terms = [str(solution[0])] if solution[0] else []
    terms += [f"{factor}*{name}" for factor, name in zip(solution[1:], names, strict=True) if factor]
    return "+".join(terms).replace("+-", "-")
