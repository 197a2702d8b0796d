"""Whether a region is a mixture of experts of a given form: both are evaluated on the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npuc.graph.evaluate import EvaluationError
from npuc.graph.experts.find import Candidate
from npuc.graph.experts.form import Activation, Experts, mixture
from npuc.graph.experts.forms import forms
from npuc.graph.experts.products import Parameters
from npuc.graph.experts.sizes import Sizes

TOLERANCE = 1e-4  # of the largest result: regions may round to float32 on the way
_SCALES = (0.3, 1.0, 30.0)  # of the input: small, usual, and beyond every limit


Probe = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""x [T, K], numbers and weights [T, k], the region's result [T, N]."""


def forms_of(candidate: Candidate, sizes: Sizes) -> Iterator[tuple[Experts, Activation]]:
    """What the region of a candidate may be, in a fixed order."""
    shape = sizes.shape(candidate.x)
    return forms(Parameters(candidate.region), shape[-1]) if shape else iter(())


def prove(candidate: Candidate, sizes: Sizes) -> int | str:
    """The number in `forms_of` of the form that gives what the region gives, for all experts and inputs of several
    sizes; or why there is none."""
    shapes = [sizes.shape(value) for value in (candidate.x, candidate.indices)]
    leaves = [sizes.content(value) for value in candidate.region.sources[3:]]
    if not shapes[0] or not shapes[1] or any(leaf is None for leaf in leaves):
        return "the shapes that go in are not known"
    x_shape, shape = shapes[0], shapes[1]
    rows = int(np.prod(shape[:-1]))
    if int(np.prod(x_shape[:-1])) != rows or not rows:
        return f"the input {candidate.x.name!r} has other rows than the numbers"
    probes: list[Probe] | str | None = None
    tried = 0
    for experts, activation in forms_of(candidate, sizes):
        probes = _probes(candidate, x_shape, shape, experts, leaves) if probes is None else probes
        if isinstance(probes, str):
            return probes
        if all(
            _agrees(want, mixture(x, indices, weights, experts, activation)) for x, indices, weights, want in probes
        ):
            return tried
        tried += 1
    if not tried:
        return "its products are not those of two layers of experts"
    return f"none of {tried} forms gives what its {len(candidate.region.nodes)} nodes give"


def _agrees(want: np.ndarray, found: np.ndarray) -> bool:
    if want.shape != found.shape:
        return False
    return bool(np.abs(want - found).max(initial=0.0) <= TOLERANCE * max(np.abs(want).max(initial=0.0), 1e-6))


def _probes(
    candidate: Candidate,
    x_shape: tuple[int, ...],
    shape: tuple[int, ...],
    experts: Experts,
    leaves: Sequence[np.ndarray | None],
) -> list[Probe] | str:
    """The probes, or why the region cannot be run."""
    found = []
    sized = [leaf for leaf in leaves if leaf is not None]
    due = (*x_shape[:-1], experts.down.shape[1])
    for x, indices, weights in _feeds(x_shape, shape, experts.count):
        feeds = [x.reshape(x_shape), indices.reshape(shape), weights.reshape(shape), *sized]
        try:
            result = candidate.region.run(feeds)
        except (EvaluationError, KeyError, AssertionError) as error:
            return f"its nodes cannot be evaluated: {error}"
        if result.shape != due:
            return f"its result {candidate.result.name!r} is {list(result.shape)}, {list(due)} is due"
        found.append((x, indices, weights, result.reshape(len(x), -1).astype(np.float64)))
    return found


def _feeds(
    x_shape: tuple[int, ...], shape: tuple[int, ...], count: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs [T, K], numbers and weights [T, k] such that every expert is picked at every scale."""
    rng = np.random.default_rng(0)
    k, width = shape[-1], x_shape[-1]
    rows = int(np.prod(shape[:-1]))
    for scale in _SCALES:
        waiting: list[int] = []
        used: set[int] = set()
        while len(used) < count:
            indices = np.empty((rows, k), np.int64)
            for row in range(rows):
                while len(waiting) < k or len(set(waiting[:k])) < k:
                    waiting = rng.permutation(count).tolist()
                indices[row], waiting = waiting[:k], waiting[k:]
            used.update(indices.reshape(-1).tolist())
            yield scale * rng.standard_normal((rows, width)), indices, rng.uniform(0.1, 1.0, (rows, k))
