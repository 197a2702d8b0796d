"""Random kernels whose transfers and blocks depend on data: eager execution, both devices and the tasks agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc import tile as t
from npurt import open_device
from tests.support.kernelblob import kernel_image
from tests.support.kernels import run_both

ROWS, WIDTH = 6, 4


@dataclass(frozen=True)
class Act:
    """One statement over a shared scratch array. flag: the row whose first number decides, -1 for none."""

    kind: str
    at: int
    other: int
    flag: int
    taken: bool


KINDS = ("pick", "place", "copy", "product", "far", "best", "number")
ACTS = st.lists(
    st.builds(
        Act, st.sampled_from(KINDS), st.integers(0, 4), st.integers(0, 4), st.integers(-1, ROWS - 1), st.booleans()
    ),
    min_size=1, max_size=8,
).map(tuple)  # fmt: skip


@t.kernel
def random_acts(x: t.Array, table: t.Array, numbers: t.Array, out: t.Array, *, acts: tuple[Act, ...]) -> None:
    """Rows move between arrays by numbers from memory, or from the rows themselves, in blocks under flags or not."""
    box, places = t.scratch((ROWS, WIDTH), t.f16), t.scratch((ROWS,), t.i32)
    t.store(box, (0, 0), t.load(x, (0, 0), x.shape))
    t.store(places, (0,), t.load(numbers, (0,), numbers.shape))
    for act in acts:
        if act.flag < 0:
            _act(act, table, box, places, out)
        else:
            flag = t.load(box, (act.flag, 0), (1, 1)) > 0.0 if act.at % 2 else t.load(places, (act.flag,), (1,))
            with t.when(flag, taken=act.taken):
                _act(act, table, box, places, out)
    t.store(out, (0, 0), t.load(box, (0, 0), box.shape).cast(t.f32))


def _act(act: Act, table: t.Array, box: t.Array, places: t.Array, out: t.Array) -> None:
    two = t.load(places, (act.at,), (2,))
    if act.kind == "pick":
        t.store(box, (act.other, 0), t.load(table, (two, 0), (2, WIDTH)))
    elif act.kind == "place":
        t.scatter(box, two, t.load(box, (act.other, 0), (2, WIDTH)))
    elif act.kind == "copy":
        t.store(box, (act.other, 0), t.load(box, (act.at, 0), (2, WIDTH)) * 0.5)
    elif act.kind == "product":
        square = t.load(box, (act.at % 3, 0), (WIDTH, WIDTH))
        t.store(box, (act.other, 0), t.mma(t.load(box, (act.other, 0), (2, WIDTH)), square) * 0.25)
    elif act.kind == "far":
        t.scatter(out, two, t.load(box, (act.other, 0), (2, WIDTH)).cast(t.f32) + 1.0)
    elif act.kind == "best":
        values, _ = t.topk(t.load(box, (act.at, 0), (2, WIDTH)), 2, 1)
        t.store(box, (act.other, 1), values)
    else:
        _, index = t.topk(t.load(box, (0, 0), (ROWS, WIDTH)), 2, 0)
        t.store(places, (act.other,), t.reshape(index[:, 0:1], (2,)))


@settings(max_examples=40, deadline=None)
@given(ACTS, st.lists(st.integers(-1, 9), min_size=ROWS, max_size=ROWS), st.integers(0, 2**32 - 1), st.booleans())
def test_random_dependence(acts: tuple[Act, ...], numbers: list[int], seed: int, blob: bool) -> None:
    rng = np.random.default_rng(seed)
    x, table = (rng.standard_normal((n, WIDTH)).astype(np.float16) for n in (ROWS, 8))
    index = np.array(numbers, np.int32)
    out = np.zeros((ROWS, WIDTH), np.float32)
    for memory in ("ddr", "cmx"):
        want = run_both(random_acts, [x, table, index, out], memory=memory, acts=acts)[-1]
    if not blob:
        return
    inputs = {"x": x, "table": table, "numbers": index}
    with TemporaryDirectory() as folder:
        image = kernel_image(random_acts, inputs, {"out": out}, Path(folder), acts=acts)
        exact, fast = (open_device(image, mode).run("main", inputs)["out"] for mode in ("exact", "fast"))
    np.testing.assert_array_equal(exact, want)
    np.testing.assert_allclose(fast, want, rtol=1e-2, atol=1e-2)
