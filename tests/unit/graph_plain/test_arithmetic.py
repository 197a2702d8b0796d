"""What elementwise operators make of unfilled slots."""

from __future__ import annotations

import pytest

from npuc.graph.plain.arithmetic import elementwise
from npuc.graph.plain.facts import ANY, FALSE, FINITE, TRUE, ZERO, Held
from tests.support.graphs import graph

MASK = Held(float("-inf"), -(2.0**90))
CASES = [
    ("y = Add (x, m)", (FINITE, MASK), MASK),
    ("y = Add (x, m)", (ANY, MASK), ANY),
    ("y = Sub (x, m)", (MASK, None), MASK),
    ("y = Sub (x, m)", (None, MASK), ANY),
    ("y = Mul (x, m)", (ZERO, FINITE), ZERO),
    ("y = Mul (x, m)", (ZERO, MASK), ANY),
    ("y = Mul (x, half)", (Held(-(2.0**90), -(2.0**14)), None), Held(-(2.0**89), -(2.0**13))),
    ("y = Mul (x, two)", (MASK, None), Held(float("-inf"), -(2.0**91))),
    ("y = Div (x, m)", (ZERO, None), ZERO),
    ("y = Div (x, m)", (FINITE, FINITE), ANY),
    ("y = Exp (x)", (MASK,), ZERO),
    ("y = Exp (x)", (FINITE,), ANY),
    ("y = Sqrt (x)", (FINITE,), ANY),
    ("y = Pow (x, two)", (FINITE, None), FINITE),
    ("y = Pow (x, half)", (FINITE, None), ANY),
    ("y = Tanh (x)", (MASK,), Held(-1.0, -1.0)),
    ("y = Clip (x, low, two)", (FINITE, None, None), FINITE),
    ("y = Clip (x, low, two)", (ANY, None, None), ANY),
    ("y = Where (b, x, low)", (FALSE, ANY, None), Held(-32768.0, -32768.0)),
    ("y = Where (b, x, low)", (TRUE, FINITE, None), FINITE),
    ("y = Where (b, x, low)", (FINITE, FINITE, None), ANY),
    ("c = IsNaN (x) y = Where (c, two, x)", (ZERO,), FALSE),
    ("c = And (b, b) y = Where (c, x, x)", (FALSE, FINITE), FALSE),
    ("c = Greater (x, two) y = Where (c, x, x)", (ANY, None), FINITE),
]


@pytest.mark.parametrize(("body", "helds", "wanted"), CASES)
def test_first_node(body: str, helds: tuple[Held | None, ...], wanted: Held) -> None:
    model = graph(
        f"g (float[2] x, float[2] m, bool[2] b) => (float[2] y) <float half = {{0.5}}, float two = {{2.0}}, "
        f"float low = {{-32768.0}}> {{ {body} }}"
    )
    node = next(iter(model.graph))
    assert elementwise(node, helds) == wanted
