"""Trying kernels: what is compared, and what is said where it differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuc import tile as t
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.trial import try_example
from npukernels import registry
from npukernels.forms import FORMS
from npukernels.forms.form import TILE
from npurt.target import load_target

TARGET = load_target("npu40xx")
TAILS = (1, TILE - 1, TILE, TILE + 1, 13)


@t.kernel
def doubled(x: t.Array, out: t.Array, *, factor: float = 2.0) -> None:
    t.store(out, (0, 0), t.load(x, (0, 0), x.shape) * factor)


ARRAY = t.dense(t.f16, (4, 6))
EXAMPLE = t.Example((ARRAY, ARRAY), {}, lambda x: 2.0 * x)


@pytest.mark.parametrize("memory", ["ddr", "cmx"])
def test_a_right_kernel(memory: str) -> None:
    array = t.dense(t.f16, (4, 6), memory)
    (written,) = try_example(doubled, replace(EXAMPLE, arrays=(array, array)), TARGET).written
    assert (written.name, written.type, written.error, written.equal, written.good) == (
        "out",
        "f16[4, 6]",
        0.0,
        True,
        True,
    )


def test_a_wrong_kernel_is_told_by_place_and_values() -> None:
    (written,) = try_example(doubled, EXAMPLE, TARGET, {"factor": 2.5}).written
    assert not written.good and written.equal
    assert written.error == pytest.approx(0.25, abs=1e-3)
    assert written.found == pytest.approx(1.25 * written.expected, rel=1e-2)


def test_integers_count_what_differs() -> None:
    numbers = np.arange(24, dtype=np.int32).reshape(4, 6)
    example = t.Example((numbers, np.zeros_like(numbers)), {"factor": 2}, lambda x: np.where(x < 3, 0, 2 * x))
    (written,) = try_example(doubled, example, TARGET).written
    assert (written.error, written.bound, written.good) == (2.0, 0.0, False)  # of 0, 1, 2 the zero is right


def test_nan_where_the_reference_has_none_is_an_error() -> None:
    array = np.full((4, 6), np.nan, np.float32)
    example = t.Example((array, np.zeros_like(array)), {}, lambda x: np.zeros((4, 6)))
    assert try_example(doubled, example, TARGET).written[0].error == np.inf


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x: (x, x), "kernel doubled writes out; the reference gives 2 arrays"),
        (lambda x: x[0], "kernel doubled: out is f16[4, 6], the reference gives shape [6]"),
        (lambda x, y: x, "kernel doubled: the reference fails on the arrays that the kernel reads (x): TypeError: "),
    ],
)
def test_a_reference_that_does_not_fit(reference: object, message: str) -> None:
    with pytest.raises(KernelSourceError) as caught:
        try_example(doubled, replace(EXAMPLE, reference=reference), TARGET)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.kernel}: {form.form}")
def test_every_form_at_one_short_block(form) -> None:
    """A sample of the sweep below: each form in its first type, a whole block and a short one."""
    trial = try_example(registry.get(form.kernel).kernel, form.example(form.dtypes[0], TILE + 1), TARGET)
    assert trial.good, trial.written


@pytest.mark.slow
@pytest.mark.parametrize("size", TAILS)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.kernel}: {form.form}")
def test_every_form_type_and_tail(form, size: int) -> None:
    for dtype in form.dtypes:
        trial = try_example(registry.get(form.kernel).kernel, form.example(dtype, size), TARGET)
        assert trial.good, (dtype, trial.written)


def test_a_form_says_which_types_it_has() -> None:
    form = next(form for form in FORMS if form.kernel == "attention")
    with pytest.raises(ValueError, match=r"attention, decomposed, causal, grouped queries: no i8; there are f16, f32"):
        form.example(t.i8)
