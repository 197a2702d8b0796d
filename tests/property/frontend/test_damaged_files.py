"""Files with changed bytes are read as some model or refused with a message: never a traceback."""

from __future__ import annotations

import random

from npuc.frontend import ModelRefused, check_model, load
from npuc.graph.normalise import normalise
from npuc.graph.state import classify, state_to_arguments
from tests.support.graphs import parsed

BODY = """g (float[2] x, bool c) => (float[2] y, float[2] z) <float[2] start = {3, 4}> {
    [a] t = npuc.Assign <variable_id = "v", shape = [2], dtype = 1> (s)
    [r] b = npuc.ReadValue <variable_id = "v", shape = [2], dtype = 1> (start)
    [s] s = Add (x, b)
    [k] k = Constant <value_ints = [0]> ()
    [m] m = ReduceMax <axes = [0]> (s)
    [i] y = If (c) <then_branch = t () => (float[2] p) { p = Relu (s) },
                    else_branch = e () => (float[2] q) { q = Mul (s, m) }>
    [z] z = Cast <to = 1> (t)
}"""


def test_changed_bytes(tmp_path):
    good = parsed(BODY, extra='"npuc" : 1').SerializeToString(deterministic=True)
    path, rng = tmp_path / "m.onnx", random.Random(5)
    outcomes = {"taken": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(data))
            data[place] = rng.choice((rng.randrange(256), data[place] ^ 1 << rng.randrange(8)))
        path.write_bytes(data)
        try:
            loaded = load(path)
            check_model(loaded)
            pure, states = state_to_arguments(loaded.model)
            classify(states, normalise(pure))
            outcomes["taken"] += 1
        except ModelRefused as error:
            assert error.problems and all(message and "\n" not in message for message in error.problems)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10
