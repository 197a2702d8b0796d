"""Where positions come from: an input, the attention mask, the caches' length, or a length with padding in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions
from tests.support.decoders import FLOAT, HIDDEN, INT, VOCAB, GraphMaker
from tests.support.models import answer, compile_to

PROMPT, FED = [3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7, 9, 3]
SIZES = {"max_prompt_len": 9, "capacities": (11, 20)}
PLACES, OFFSET = 32, 2


def _input(g: GraphMaker) -> str:
    return "position_ids"


def _counted_mask(g: GraphMaker) -> str:
    """OPT: cumsum of the mask, less one, of the last rows; zero where the mask is."""
    mask = g.op("Cast", "attention_mask", to=INT)
    place = g.op("Sub", g.op("Mul", g.op("CumSum", mask, g.const(1)), mask), g.const(1))
    rows = g.op("Shape", "input_ids", start=1)
    return g.op("Slice", place, g.op("Neg", rows), g.const([2**63 - 1]), g.const([1]))


def _cache_length(g: GraphMaker) -> str:
    """Behind the rows of the cache."""
    past = g.op("Squeeze", g.op("Shape", "past_k", start=2, end=3))
    rows = g.op("Squeeze", g.op("Shape", "input_ids", start=1))
    return g.op("Unsqueeze", g.op("Range", past, g.op("Add", past, rows), g.const(1)), g.const([0]))


def _mask_length(g: GraphMaker) -> str:
    """The last rows of all that the mask has, padding or not."""
    total = g.op("Squeeze", g.op("Shape", "attention_mask", start=1))
    rows = g.op("Squeeze", g.op("Shape", "input_ids", start=1))
    return g.op("Unsqueeze", g.op("Range", g.op("Sub", total, rows), total, g.const(1)), g.const([0]))


POSITIONS = {"input": _input, "mask": _counted_mask, "cache": _cache_length, "length": _mask_length}


def decoder(path: Path, kind: str) -> Path:
    """One layer of one head with learned positions (at an offset, as OPT has them) and a float mask over padding."""
    g = GraphMaker(7)
    places = POSITIONS[kind](g)
    place = g.op("Gather", g.weight(PLACES, HIDDEN), g.op("Add", places, g.const(OFFSET)))
    x = g.op("Add", g.op("Gather", g.weight(VOCAB, HIDDEN), "input_ids"), place)
    q, k, v = (g.op("Unsqueeze", g.op("MatMul", x, g.weight(HIDDEN, HIDDEN)), g.const([1])) for _ in range(3))
    k, v = (
        g.op("Concat", past, new, out=after, axis=2)
        for past, new, after in (("past_k", k, "new_k"), ("past_v", v, "new_v"))
    )
    total = g.op("Squeeze", g.op("Shape", "attention_mask", start=1))
    rows = g.op("Squeeze", g.op("Shape", "input_ids", start=1))
    own = g.op("Unsqueeze", g.op("Range", g.op("Sub", total, rows), total, g.const(1)), g.const([1]))
    before = g.op("LessOrEqual", g.op("Range", g.const(0), total, g.const(1)), own)
    seen = g.op("And", before, g.op("Cast", g.op("Unsqueeze", "attention_mask", g.const([1, 2])), to=9))
    bias = g.op("Where", seen, g.const(0, np.float32), g.const(-3.4e38, np.float32))
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.op("Add", g.op("Mul", scores, g.const(HIDDEN**-0.5, np.float32)), bias)
    mixed = g.op("Squeeze", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), g.const([1]))
    g.op("MatMul", g.op("Add", x, mixed), g.weight(HIDDEN, VOCAB), out="logits")
    ids = [("input_ids", INT, [1, "rows"]), ("attention_mask", INT, [1, "all"])]
    ids += [("position_ids", INT, [1, "rows"])] if kind == "input" else []
    caches = [
        [(f"{when}_{n}", FLOAT, [1, 1, size, HIDDEN]) for n in "kv"] for when, size in (("past", "p"), ("new", "all"))
    ]
    return g.write(path, [*ids, *caches[0]], [("logits", FLOAT, [1, "rows", VOCAB]), *caches[1]], 17)


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("kind", POSITIONS)
def test_every_source_agrees_with_onnxruntime(kind, chunk, tmp_path):
    options = CompileOptions(precision="f32", chunk=chunk, **SIZES)
    assert check(Check(decoder(tmp_path / "m.onnx", kind), options, prompt=PROMPT, tokens=9)).agrees


def test_sources_give_one_answer(tmp_path):
    found = [
        answer(
            compile_to(tmp_path / f"{kind}.npu", decoder(tmp_path / f"{kind}.onnx", kind), chunk=4, **SIZES),
            PROMPT,
            FED,
        )
        for kind in POSITIONS
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.prompt, found[0].prompt)
        np.testing.assert_array_equal(other.step, found[0].step)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_means_what_the_device_gives_without_it(side, tmp_path):
    """The exporter's graph, padded, against the device, which is given the tokens alone."""
    model = decoder(tmp_path / "m.onnx", "mask")
    pad, count = 3, len(PROMPT)
    before = pad if side == "left" else 0
    ids, mask = np.zeros((1, count + pad), np.int64), np.zeros((1, count + pad), np.int64)
    ids[0, before : before + count], mask[0, before : before + count] = PROMPT, 1
    empty = np.zeros((1, 1, 0, HIDDEN), np.float32)
    feeds = {"input_ids": ids, "attention_mask": mask, "past_k": empty, "past_v": empty}
    (wanted,) = onnxruntime.InferenceSession(model).run(["logits"], feeds)
    got = answer(compile_to(tmp_path / "m.npu", model, precision="f32", chunk=4, **SIZES), PROMPT, [])
    np.testing.assert_allclose(got.prompt, wanted[0, before : before + count], rtol=1e-4, atol=1e-4)
