"""Exact messages of kernel errors, with the author's line and a caret under the call."""

from __future__ import annotations

import linecache
import textwrap
from typing import Any

import numpy as np
import pytest

from npuc import tile as t
from tests.support.kernels import types_of

F16 = np.zeros((8, 8), np.float16)
I32 = np.zeros((8, 8), np.int32)
HEADER = """
from npuc import tile as t
@t.kernel
def kernel(x, y, out, *, n=8):
    i, = t.programs(t.cdiv(x.shape[0], 4))
    a = t.load(x, (i * 4, 0), (4, 8))
"""
NO_NUMBER = (
    "a tile is no number of Python's, such as a loop bound: its numbers are only known when the device runs; "
    "loop over the most turns there can be, each in a when(flag) block"
)


def compile_kernel(body: str, name: str) -> t.Kernel:
    """A kernel from source text, known to linecache as file `name`."""
    source = HEADER.lstrip("\n") + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {}
    exec(compile(source, name, "exec"), scope)
    kernel: t.Kernel = scope["kernel"]
    return kernel


CASES = {
    "shapes": (
        "t.store(out, (i * 4, 0), a + t.zeros((3, 8)))",
        "shapes [4, 8] and [3, 8] do not broadcast: from the right, sizes must be equal or 1",
        "a + t.zeros((3, 8))",
    ),
    "types": (
        "b = t.iota((4, 8), 0) * 0.5",
        "the number 0.5 does not fit a tile of i32; cast the tile to f32 first",
        "t.iota((4, 8), 0) * 0.5",
    ),
    "mix": (
        "b = a + t.load(y, (0, 0), (4, 8))",
        "operands of f16 and i32 do not mix; cast one of them: .cast(t.f16)",
        "a + t.load(y, (0, 0), (4, 8))",
    ),
    "mma k": (
        "b = t.mma(a, t.load(x, (0, 0), (8, 4)))",
        "mma sums over k: a [4, 8] has 8, b [8, 4] has 4; b is stored [k, n]: pass kn=True",
        "t.mma(a, t.load(x, (0, 0), (8, 4)))",
    ),
    "mma types": (
        "b = t.mma(a, t.load(y, (0, 0), (8, 8)))",
        "mma of f16 and i32 does not mix floats and integers; cast one",
        "t.mma(a, t.load(y, (0, 0), (8, 8)))",
    ),
    "outside": (
        "b = t.load(x, (9, 0), (1, 8))",
        "index 9 is outside dimension 0 of f16[8, 8]",
        "t.load(x, (9, 0), (1, 8))",
    ),
    "rank": (
        "b = t.load(x, (0,), (1,))",
        "f16[8, 8] needs an index and a shape of rank 2, got ('0',) and (1,)",
        "t.load(x, (0,), (1,))",
    ),
    "fit": (
        "t.store(out, (6, 0), a)",
        "a tile of shape [4, 8] does not fit: f16[8, 8] has room for [2, 8] there",
        "t.store(out, (6, 0), a)",
    ),
    "store type": (
        "t.store(out, (i * 4, 0), t.iota((4, 8), 0))",
        "a tile of i32 cannot be stored in f16[8, 8]; cast it: .cast(t.f32)",
        "t.store(out, (i * 4, 0), t.iota((4, 8), 0))",
    ),
    "truth": (
        "b = a if a > 0.0 else -a",
        "a tile has no truth value while the kernel is traced; use where(), or when() on t.step",
        "a > 0.0",
    ),
    "first mma": (
        """
        acc = t.accumulator((4, 4))
        with t.when(t.step.n_past > 0):
            t.mma(a, a, acc=acc)
        """,
        "the first mma of this accumulator may be skipped by when(); give accumulator(..., init=0)",
        "t.mma(a, a, acc=acc)",
    ),
    "unwritten": (
        "b = t.accumulator((4, 4)).read()",
        "the accumulator is read before the first mma; give it init=0, or let an mma run first",
        "t.accumulator((4, 4)).read()",
    ),
    "step in python": (
        "b = list(range(t.step.n_past))",
        "step.n_past is only known when the device runs; use it in tile arithmetic, valid= or when()",
        "range(t.step.n_past)",
    ),
    "when": (
        """
        with t.when(n > 3):
            pass
        """,
        "when() takes a condition on t.step, such as t.step.n_past > 64, or a flag tile; use `if` for static values",
        "t.when(n > 3)",
    ),
    "half a range": (
        "t.when((t.step.n_past > 3) & (t.step.n_past > 5))",
        "(step.n_past > 3) & (step.n_past > 5): a range has one lower and one upper bound of one field "
        "of the step block, such as (t.step.n_past > a) & (t.step.n_past <= b)",
        "(t.step.n_past > 3) & (t.step.n_past > 5)",
    ),
    "range of two fields": (
        "t.when((t.step.n_past > 3) & (t.step.n_new < 5))",
        "(step.n_past > 3) & (step.n_new <= 4): a range has one lower and one upper bound of one field "
        "of the step block, such as (t.step.n_past > a) & (t.step.n_past <= b)",
        "(t.step.n_past > 3) & (t.step.n_new < 5)",
    ),
    "chained": (
        "t.when(3 < t.step.n_past < 9)",
        "step.n_past > 3 is only known when the device runs; write `with t.when(...)` in place of `if` or `while`, "
        "and (a) & (b) for a range",
        "3 < t.step.n_past < 9",
    ),
    "valid": (
        "b = t.load(x, (0, 0), (4, 8), valid=(0, 3))",
        "valid rows must have the form step.field + number, got 3; for a static extent use a smaller tile",
        "t.load(x, (0, 0), (4, 8), valid=(0, 3))",
    ),
    "step as a block": (
        """
        if t.step.n_past > 3:
            a = a + 1.0
        """,
        "step.n_past > 3 is only known when the device runs; write `with t.when(...)` in place of `if` or `while`, "
        "and (a) & (b) for a range",
        "t.step.n_past > 3",
    ),
    "step as a loop": (
        """
        while t.step.n_past > 3:
            a = a + 1.0
        """,
        "step.n_past > 3 is only known when the device runs; write `with t.when(...)` in place of `if` or `while`, "
        "and (a) & (b) for a range",
        "t.step.n_past > 3",
    ),
    "step as a bound": (
        "b = t.range(t.step.n_new)",
        "step.n_new is only known when the device runs; use it in tile arithmetic, valid= or when()",
        "t.range(t.step.n_new)",
    ),
    "tile as a bound": (
        "b = t.range(t.max(t.load(y, (0, 0), (8, 8)), (0, 1)))",
        NO_NUMBER,
        "t.range(t.max(t.load(y, (0, 0), (8, 8)), (0, 1)))",
    ),
    "tile as python's bound": ("b = range(a)", NO_NUMBER, "range(a)"),
    "tile as a number": ("b = int(a)", NO_NUMBER, "int(a)"),
    "fraction as a bound": (
        "b = t.range(0, 2.5)",
        "range() takes one to three whole numbers, got (0, 2.5)",
        "t.range(0, 2.5)",
    ),
    "step of 0": (
        "b = t.range(0, n, n - 8)",
        "range() with a step of 0 never ends; is a tile size 0?",
        "t.range(0, n, n - 8)",
    ),
    "turns": (
        "b = t.range(10**9)",
        "range() of 1000000000 turns, 200000 unroll at most; take larger tiles",
        "t.range(10**9)",
    ),
    "store outside": (
        "t.store(out, (8, 0), a)",
        "index 8 is outside dimension 0 of f16[8, 8]",
        "t.store(out, (8, 0), a)",
    ),
    "scratch outside": (
        "t.store(t.scratch((4, 8)), (2, 0), a)",
        "a tile of shape [4, 8] does not fit: f32[4, 8] has room for [2, 8] there",
        "t.store(t.scratch((4, 8)), (2, 0), a)",
    ),
    "nothing stored": (
        """
        box = t.scratch((4, 8), t.f16)
        t.store(out, (i * 4, 0), t.load(box, (0, 0), (4, 8)))
        """,
        "nothing has stored what this reads from the f16[4, 8] scratch of nothing_stored.py:6; store there first, "
        "t.zeros(...) for instance",
        "t.load(box, (0, 0), (4, 8))",
    ),
    "part stored": (
        """
        box = t.scratch((4, 8), t.f16)
        t.store(box, (0, 0), a[0:2])
        t.store(box, (1, 4), a[1:4, 0:4])
        t.store(out, (i * 4, 0), t.load(box, (0, 0), (4, 8)) * 2.0)
        """,
        "nothing has stored 8 of the 32 numbers that this reads from the f16[4, 8] scratch of part_stored.py:6; "
        "store there first, t.zeros(...) for instance",
        "t.load(box, (0, 0), (4, 8))",
    ),
    "nothing gathered": (
        """
        box = t.scratch((4, 8))
        b = t.gather(box, t.iota((2,), 0))
        """,
        "nothing has stored what this reads from the f32[4, 8] scratch of nothing_gathered.py:6; store there first, "
        "t.zeros(...) for instance",
        "t.gather(box, t.iota((2,), 0))",
    ),
    "grid twice": ("t.programs(2)", "programs() may be called once, as the first statement", "t.programs(2)"),
    "slices": (
        "b = a[0]",
        "a tile of rank 2 takes up to 2 slices of step 1, such as x[:, 0:4]",
        "a[0]",
    ),
    "reshape": (
        "b = t.reshape(a, (5, 5))",
        "a tile of shape [4, 8] has 32 elements, not those of [5, 5]",
        "t.reshape(a, (5, 5))",
    ),
    "flag of many": (
        """
        with t.when(a > 0.0):
            t.store(out, (i * 4, 0), a)
        """,
        "a flag is a bool or i32 tile of one element, got Tile(bool[4, 8]); reduce and compare first",
        "t.when(a > 0.0)",
    ),
    "flag of floats": (
        """
        with t.when(a[0:1, 0:1]):
            t.store(out, (i * 4, 0), a)
        """,
        "a flag is a bool or i32 tile of one element, got Tile(f16[1, 1]); reduce and compare first",
        "t.when(a[0:1, 0:1])",
    ),
    "untaken step": (
        """
        with t.when(t.step.n_past > 2, taken=False):
            t.store(out, (i * 4, 0), a)
        """,
        "taken=False goes with a flag tile; write the opposite condition on t.step",
        "t.when(t.step.n_past > 2, taken=False)",
    ),
    "index type": (
        "b = t.load(x, (a, 0), (4, 8))",
        "an index must be a number or an i32 tile of rank 0 or 1, got Tile(f16[4, 8])",
        "t.load(x, (a, 0), (4, 8))",
    ),
    "index count": (
        "b = t.load(x, (t.iota((3,), 0), 0), (4, 8))",
        "the index tile has 3 numbers, the part 4 rows along dimension 0",
        "t.load(x, (t.iota((3,), 0), 0), (4, 8))",
    ),
    "two indices": (
        "b = t.load(x, (t.iota((4,), 0), t.iota((8,), 0)), (4, 8))",
        "dimensions 0 and 1 are both chosen by a tile; a transfer has one such",
        "t.load(x, (t.iota((4,), 0), t.iota((8,), 0)), (4, 8))",
    ),
    "index and valid": (
        "b = t.load(x, (t.iota((4,), 0), 0), (4, 8), valid=(0, t.step.n_new))",
        "valid= does not go with an index tile: give -1 for rows that do not exist",
        "t.load(x, (t.iota((4,), 0), 0), (4, 8), valid=(0, t.step.n_new))",
    ),
    "scatter type": (
        "t.scatter(y, t.iota((4,), 0), a)",
        "a tile of f16 cannot be scattered into i32[8, 8]: the transfer converts among floats alone; "
        "store it into scratch of that type and load it from there",
        "t.scatter(y, t.iota((4,), 0), a)",
    ),
    "topk": (
        "b = t.topk(a, 9, 1)",
        "topk of 9 along axis 1: a tile of shape [4, 8] has 8 there",
        "t.topk(a, 9, 1)",
    ),
    "flag escapes": (
        """
        with t.when(t.max(a, (0, 1)) > 0.0):
            b = a + 1.0
        t.store(out, (i * 4, 0), b)
        """,
        "this tile is made inside when(flag) and used outside; store it in scratch inside the block and load that",
        "t.store(out, (i * 4, 0), b)",
    ),
    "escapes when": (
        """
        with t.when(t.step.n_past > 2):
            b = t.exp(a)
        t.store(out, (i * 4, 0), b)
        """,
        "this tile is made inside when(step.n_past > 2) and used outside; "
        "store it in scratch inside the block and load that",
        "t.store(out, (i * 4, 0), b)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message_and_caret(name: str) -> None:
    body, reason, marked = CASES[name]
    file = f"/kernels/{name.replace(' ', '_')}.py"
    kernel = compile_kernel(body, file)
    with pytest.raises(t.KernelError) as caught:
        kernel.trace(types_of([F16, I32, F16]), {})
    source = [
        line.strip() for line in HEADER.lstrip("\n").splitlines() + textwrap.dedent(body).strip("\n").splitlines()
    ]
    row = next(number for number, line in enumerate(source) if marked in line)
    carets = " " * source[row].index(marked) + "^" * len(marked)
    assert str(caught.value) == f"{file}:{row + 1}: {reason}\n    {source[row]}\n    {carets}"


def test_a_loop_without_end_stops() -> None:
    """Tracing and eager execution stop after a bounded number of operations, at the line of the last one."""
    file = "/kernels/endless.py"
    kernel = compile_kernel("while True:\n    a = a + 1.0", file)
    reason = (
        "more than 200000 operations in one program: does this loop end? A kernel's loops unroll while it is traced; "
        "take larger tiles, or more programs"
    )
    with pytest.raises(t.KernelError) as caught:
        kernel.trace(types_of([F16, I32, F16]), {})
    assert str(caught.value) == f"{file}:7: {reason}\n    a = a + 1.0\n        ^^^^^^^"


def test_scratch_that_a_block_may_have_stored_counts_as_stored() -> None:
    body = """
    box = t.scratch((4, 8), t.f16)
    with t.when(t.step.n_past > 3):
        t.store(box, (0, 0), a)
    t.store(out, (i * 4, 0), t.load(box, (0, 0), (4, 8)))
    """
    kernel = compile_kernel(body, "/kernels/perhaps.py")
    assert kernel.trace(types_of([F16, I32, F16]), {}).templates
    kernel.eager(F16.copy(), I32.copy(), F16.copy(), step={"n_past": 1, "n_new": 1})


@pytest.mark.parametrize("name", sorted(set(CASES) - {"escapes when", "flag escapes"}))
def test_eager_execution_gives_the_same_reasons(name: str) -> None:
    body, reason, _ = CASES[name]
    kernel = compile_kernel(body, f"/kernels/eager_{name.replace(' ', '_')}.py")
    with pytest.raises(t.KernelError) as caught:
        kernel.eager(F16.copy(), I32.copy(), F16.copy(), step={"n_past": 1, "n_new": 1})
    assert caught.value.reason == reason.replace(f"{name.replace(' ', '_')}.py", f"eager_{name.replace(' ', '_')}.py")


def test_arguments_are_checked_against_the_signature() -> None:
    kernel = compile_kernel("t.store(out, (i * 4, 0), a)", "/kernels/signature.py")
    with pytest.raises(
        t.KernelError, match=r"^kernel kernel\(x, y, out, \*, n=8\): missing a required argument: 'out'$"
    ):
        kernel.trace(types_of([F16, I32]), {})
    with pytest.raises(t.KernelError, match=r"^kernel kernel: parameter n must be hashable, got list$"):
        kernel.trace(types_of([F16, I32, F16]), {"n": [1]})


def test_a_tile_function_outside_a_kernel() -> None:
    with pytest.raises(t.KernelError) as caught:
        t.zeros((2, 2))
    assert caught.value.reason == "tile functions work only inside a kernel that is being traced or run"


def test_eager_names_the_step_field_that_is_missing() -> None:
    kernel = compile_kernel("t.store(out, (i * 4, 0), a * t.step.n_new)", "/kernels/step.py")
    with pytest.raises(t.KernelError) as caught:
        kernel.eager(F16.copy(), I32.copy(), F16.copy())
    assert caught.value.reason == "the kernel reads step.n_new; pass it: kernel.eager(..., step={'n_new': 0})"
    with pytest.raises(t.KernelError) as caught:
        kernel.eager(F16.astype(np.float64), I32.copy(), F16.copy())
    assert caught.value.reason.startswith("no device type for a NumPy array of float64; known: float32, float16")


def test_regions_must_match_the_trace() -> None:
    from npuc.tasks import Buffer, Origin, Region

    kernel = compile_kernel("t.store(out, (i * 4, 0), a)", "/kernels/regions.py")
    trace = kernel.trace(types_of([F16, I32, F16]), {})
    with pytest.raises(t.KernelError, match=r"^kernel kernel was traced for 3 arrays, got 1 regions$"):
        trace.instantiate([None], Origin(), "p")
    wrong = Region(Buffer("b", "ddr", 128), 0, t.f16, (8, 8), (32, 2))
    with pytest.raises(t.KernelError, match=r"^kernel kernel, array 0: region .* was traced$"):
        trace.instantiate([wrong, wrong, wrong], Origin(), "p")


@t.kernel
def overwritten_in_when(x: t.Array, out: t.Array) -> None:
    box = t.scratch((8, 8), t.f16)
    t.store(box, (0, 0), t.load(x, (0, 0), (8, 8)))
    before = t.load(box, (0, 0), (8, 8))
    with t.when(t.step.n_past > 2):
        t.store(box, (0, 0), (before * 2.0).cast(t.f16))
    t.store(out, (0, 0), before * 3.0)


def test_overwriting_inside_when_what_is_used_after_it() -> None:
    with pytest.raises(t.KernelError) as caught:
        overwritten_in_when.trace(types_of([F16, F16]), {})
    assert caught.value.reason == (
        "this overwrites, inside when(), an array from which an earlier load is used after the block; "
        "load it again there"
    )


def test_a_call_over_several_lines_is_marked_to_the_end_of_its_first() -> None:
    kernel = compile_kernel("t.store(\n    out, (i * 4, 0),\n    t.iota((4, 8), 0),\n)", "/kernels/lines.py")
    with pytest.raises(t.KernelError) as caught:
        kernel.trace(types_of([F16, I32, F16]), {})
    assert str(caught.value) == (
        "/kernels/lines.py:6: a tile of i32 cannot be stored in f16[8, 8]; cast it: .cast(t.f32)\n"
        "    t.store(\n"
        "    ^^^^^^^^"
    )


def test_numbers_can_be_looked_at_in_eager_execution_only() -> None:
    seen: list[np.ndarray] = []

    @t.kernel
    def looks(x: t.Array, out: t.Array) -> None:
        tile = t.load(x, (0, 0), (2, 8)) + 1.0
        seen.append(tile.numpy())
        t.store(out, (0, 0), tile)

    looks.eager(F16.copy(), F16.copy())
    np.testing.assert_array_equal(seen[0], np.ones((2, 8), np.float32))
    with pytest.raises(t.KernelError) as caught:
        looks.trace(types_of([F16, F16]), {})
    assert caught.value.reason == "a traced tile holds no numbers; run kernel.eager(...) to look at values"
