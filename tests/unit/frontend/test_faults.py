"""A fault that layers share is told once, wherever it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.driver import CompileOptions, compile_to_blob
from npuc.frontend import ModelRefused
from npuc.frontend.errors import Problems
from npuc.lower.errors import LoweringRefused
from tests.support.graphs import written

LAYERS = 30


def chain(node: str, head: str = "") -> str:
    """A graph of 30 layers of one node, which reads h and gives out; L stands for the layer's number."""
    nodes = []
    for layer in range(LAYERS):
        made = "y" if layer == LAYERS - 1 else f"v{layer}"
        text = node.replace("L", str(layer)).replace("(h", "(x" if not layer else f"(v{layer - 1}", 1)
        nodes.append(f"[layer_{layer}] {made} = {text}")
    return f"g (float[2,4] x) => (float[2,4] y) {head} {{ {' '.join(nodes)} }}"


def refused(folder: Path, body: str, extra: str = "") -> str:
    with pytest.raises(ModelRefused) as error:
        compile_to_blob(written(folder, body, 21, extra), folder / "m.blob", CompileOptions())
    return str(error.value)


def test_the_same_text_for_many_places() -> None:
    problems = Problems()
    for layer in range(LAYERS):
        problems.add("no kernel", f"node /layers.{layer}/mlp")
    (message,) = problems.messages()
    assert message == "node /layers.0/mlp, node /layers.1/mlp, node /layers.2/mlp and 27 more: no kernel"


def test_texts_that_differ_in_the_numbers_of_names() -> None:
    problems = Problems()
    for layer in range(LAYERS):
        problems.add(f"value 'layers.{layer}.mask' is no mask", f"node /layers.{layer}/Softmax")
        problems.add(f"state 'past.{layer}.key' has a rank of 3")
        problems.add(f"node /layers.{layer}/Pad (Pad of [1, 4]): mode 'reflect' has no kernel")
    assert problems.count == 3 * LAYERS
    assert problems.messages() == [
        "node /layers.0/Softmax and 29 more: value 'layers.0.mask' is no mask",
        "state 'past.0.key' has a rank of 3 (and 29 more like it)",
        "node /layers.0/Pad (Pad of [1, 4]): mode 'reflect' has no kernel (and 29 more like it)",
    ]


def test_numbers_outside_of_names_make_another_fault() -> None:
    problems = Problems()
    problems.add("'w.0' has 4 channels, 8 are due")
    problems.add("'w.1' has 4 channels, 6 are due")
    assert problems.messages() == ["'w.0' has 4 channels, 8 are due", "'w.1' has 4 channels, 6 are due"]


def test_by_the_check_of_a_file(tmp_path: Path) -> None:
    said = refused(tmp_path, chain("other.Thing (h)"), '"other" : 1')
    shown = ", ".join(f"node layer_{layer} (other.Thing)" for layer in range(3))
    assert said.startswith(f"model.onnx: {shown} and 27 more: ")
    assert "\n" not in said


def test_by_the_graph_level(tmp_path: Path) -> None:
    weights = "<uint8[4,1,3] b = {1,1,1, 1,1,1, 1,1,1, 1,1,1}, float[4,1] s = {1,1,1,1}>"
    node = "com.microsoft.MatMulNBits <N = 4, K = 4, bits = 5, block_size = 4> (h, b, s)"
    assert refused(tmp_path, chain(node, weights), '"com.microsoft" : 1') == (
        "node 'layer_0' (com.microsoft::MatMulNBits): codes of 5 bits are not supported; 2, 4, 8 are "
        "(and 29 more like it)"
    )


def test_by_lowering(tmp_path: Path) -> None:
    body = chain('Pad <mode = "reflect"> (h, none)', "<int64[4] none = {0, 1, 0, -1}>")
    with pytest.raises(LoweringRefused) as error:
        compile_to_blob(written(tmp_path, body, 21), tmp_path / "m.blob", CompileOptions())
    (message,) = error.value.problems
    assert message == (
        "node layer_0 (Pad of [2, 4], [4]): the mode is 'constant', and the value that fills is known when the "
        "model is compiled (and 29 more like it)"
    )
