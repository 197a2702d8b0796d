"""Python's errors in a kernel's own code are shown at the author's line."""

from __future__ import annotations

import pytest

from npuc import tile as t
from npuc.tile import Kernel, KernelError


@t.kernel
def divides(x: t.Array, out: t.Array) -> None:
    t.store(out, (0, 0), t.load(x, (0, 0), (1 // 0, 4)))


def deeper(x: t.Array) -> t.Tile:
    return deeper(x) + t.load(x, (0, 0), x.shape)


@t.kernel
def recursive(x: t.Array, out: t.Array) -> None:
    t.store(out, (0, 0), deeper(x))


@pytest.mark.parametrize(
    ("kernel", "reason", "source"),
    [
        (divides, "ZeroDivisionError: ", "t.store(out, (0, 0), t.load(x, (0, 0), (1 // 0, 4)))"),
        (recursive, "RecursionError: maximum recursion depth exceeded", "t.store(out, (0, 0), deeper(x))"),
    ],
)
def test_the_line_is_the_authors(kernel: Kernel, reason: str, source: str) -> None:
    array = t.dense(t.f16, (4, 4))
    with pytest.raises(KernelError) as caught:
        kernel.trace([array, array], {})
    assert caught.value.reason.startswith(reason)
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    assert str(caught.value).splitlines()[1].strip() == source
