"""Einsum, Det, and the bitwise operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from npurt.host.op import Attributes, Shape, StepFault, bounded

MAX_WORK = 1 << 40  # products that one Einsum may sum up
_EQUATION = re.compile(r"[A-Za-z,.]*(->[A-Za-z.]*)?")
_DOTS = "..."


def einsum_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """The extents of the labels of the result."""
    terms, result = _terms(str(attributes.get("equation", "")), shapes)
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            known = extents.setdefault(label, extent)
            if known != extent and not (label.startswith(_DOTS) and 1 in (known, extent)):
                raise StepFault(f"label {label} is {known} and {extent}")
            extents[label] = known if extent == 1 else extent
    if any(label not in extents for label in result) or len(set(result)) != len(result):
        raise StepFault("the labels of the result are not those of the inputs")
    if prod(extents.values()) > MAX_WORK:
        raise StepFault(f"more than {MAX_WORK} products")
    return bounded([extents[label] for label in result], "the result")


def einsum(attributes: Attributes, inputs: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """NumPy's, floats in float64."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    return np.asarray(np.einsum("".join(str(attributes["equation"]).split()), *wide))


def _terms(equation: str, shapes: Sequence[Shape]) -> tuple[list[list[str]], list[str]]:
    """Labels of each input and of the result; the axes of an ellipsis are ...1, ...2 from the last one on."""
    text = "".join(equation.split())
    if not _EQUATION.fullmatch(text):
        raise StepFault(f"equation {equation!r} is not of the form ij,jk->ik")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    if len(words) != len(shapes):
        raise StepFault(f"equation {equation!r} has {len(words)} terms for {len(shapes)} inputs")
    terms = [
        _labels(word, len(shape) - len(word.replace(_DOTS, ""))) for word, shape in zip(words, shapes, strict=True)
    ]
    for word, term, shape in zip(words, terms, shapes, strict=True):
        if len(term) != len(shape):
            raise StepFault(f"term {word!r} has not the rank of {list(shape)}")
    dots = max((sum(label.startswith(_DOTS) for label in term) for term in terms), default=0)
    if arrow:
        return terms, _labels(right, dots)
    count = Counter(letter for word in words for letter in word.replace(_DOTS, ""))
    return terms, _labels(_DOTS, dots) + sorted(letter for letter, times in count.items() if times == 1)


def _labels(word: str, dots: int) -> list[str]:
    before, ellipsis, after = word.partition(_DOTS)
    if "." in before + after:
        raise StepFault(f"term {word!r} has dots that are no ellipsis")
    return [*before, *(f"{_DOTS}{n}" for n in range(dots if ellipsis else 0, 0, -1)), *after]


def det_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """[..., n, n]: [...]."""
    if len(shapes[0]) < 2 or shapes[0][-1] != shapes[0][-2]:
        raise StepFault(f"{list(shapes[0])} holds no square matrices")
    return shapes[0][:-2]


def det(attributes: Attributes, inputs: Sequence[np.ndarray], shape: Shape) -> np.ndarray:
    """NumPy's, in float64."""
    return np.asarray(np.linalg.det(inputs[0].astype(np.float64)))


def broadcast_shape(attributes: Attributes, shapes: Sequence[Shape]) -> Shape:
    """The shape that all inputs are broadcast to."""
    try:
        return bounded(np.broadcast_shapes(*shapes), "the result")
    except ValueError as error:
        raise StepFault(str(error)) from None


def elementwise(function: Callable[..., np.ndarray]) -> Callable[[Attributes, Sequence[np.ndarray], Shape], np.ndarray]:
    """A NumPy function of all inputs."""
    return lambda attributes, inputs, shape: np.asarray(function(*inputs))
