"""Properties of the evaluator and of the moves that proofs rest on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.graph.evalops.movement import split_sizes
from npuc.graph.evaluate import evaluate
from npuc.graph.fuse.mask import Visibility, step_mask
from npuc.graph.recognise.classify import visible_columns
from npuc.graph.recognise.probe import Point

BOUNDS = st.integers(-12, 12) | st.sampled_from([np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1])


@settings(max_examples=60, deadline=None)
@given(extent=st.integers(0, 9), start=BOUNDS, end=BOUNDS, step=st.sampled_from([1, 2, 3, -1, -2]))
def test_slice_is_pythons(extent: int, start: int, end: int, step: int) -> None:
    """Bounds are Python's, but for a start before the front of a backward slice: ONNX takes it for the front."""
    x = np.arange(extent)
    start = max(start, -extent) if step < 0 else start
    k = [np.array([v], np.int64) for v in (start, end, 0, step)]
    (found,) = evaluate("", "Slice", [x, *k], {})
    assert found.tolist() == x[slice(start, end, step)].tolist()


@settings(max_examples=40, deadline=None)
@given(extent=st.integers(0, 40), parts=st.integers(1, 9))
def test_split_covers_its_axis(extent: int, parts: int) -> None:
    sizes = split_sizes(extent, parts)
    assert sum(sizes) == extent and len(sizes) == parts and all(size >= 0 for size in sizes)


@settings(max_examples=40, deadline=None)
@given(
    n_past=st.integers(0, 9),
    rows=st.integers(1, 5),
    spare=st.integers(0, 4),
    causal=st.booleans(),
    window=st.integers(0, 6),
)
def test_slots_of_a_step_mask_are_the_columns_of_the_models_mask(
    n_past: int, rows: int, spare: int, causal: bool, window: int
) -> None:
    """A mask over n_past + rows columns, with empty slots pushed in between, is npuc.StepMask."""
    mask = step_mask(n_past, rows, n_past + spare, causal, window)[0, 0]
    columns = visible_columns(Point(n_past, rows), causal, window)
    assert not mask[:, n_past : n_past + spare].any()
    if causal:
        assert np.array_equal(np.delete(mask, np.s_[n_past : n_past + spare], axis=1), columns)


@settings(max_examples=40, deadline=None)
@given(first=st.integers(0, 6), second=st.integers(0, 6), n_past=st.integers(0, 8))
def test_two_masks_together_are_one(first: int, second: int, n_past: int) -> None:
    both = Visibility(True, first).both(Visibility(True, second))
    expected = step_mask(n_past, 3, 8, True, first) & step_mask(n_past, 3, 8, True, second)
    assert np.array_equal(step_mask(n_past, 3, 8, both.causal, both.window), expected)
