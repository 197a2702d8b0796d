"""Graphs of all kinds of decoders, run by onnxruntime, against float64 formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from npuc.models import DecoderShape
from npuc.models.decoder import build_decoder
from npuc.models.shape import Experts, Windows
from tests.unit.models_room.formula import logits, random_weights

IDS = [5, 90, 17, 17, 62, 0, 90, 33]
SHAPES = {
    "llama": DecoderShape(96, 48, 64, 2, 4, 4, 12, positions=64, theta=1e4, epsilon=1e-5, tied=False),
    "qwen3": DecoderShape(96, 48, 64, 2, 4, 2, 16, positions=64, theta=1e6, epsilon=1e-6, tied=False, head_norms=True),
    "gemma3": DecoderShape(
        96, 48, 64, 3, 4, 2, 16, positions=64, theta=1e6, epsilon=1e-6, stretch=8.0, head_norms=True, post_norms=True,
        activation="gelu", scaled_embedding=True, windows=Windows(3, 3, 1e4),
    ),
    "experts": DecoderShape(
        96, 48, 24, 2, 4, 2, 16, positions=64, theta=1e6, epsilon=1e-6, head_norms=True, experts=Experts(6, 2)
    ),
}  # fmt: skip


def session(shape: DecoderShape, weights: dict[str, np.ndarray], folder: Path) -> onnxruntime.InferenceSession:
    """The graph with its data file written beside it."""
    model, offsets = build_decoder(shape, shape.weights(), "data")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with (folder / "data").open("wb") as file:
        for name, offset in offsets.items():
            file.seek(offset)
            file.write(weights[name].tobytes())
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", SHAPES)
def test_a_prompt_and_its_continuation(name: str, tmp_path: Path):
    shape, weights = SHAPES[name], random_weights(SHAPES[name])
    run = session(shape, weights, tmp_path)
    caches = [value.name for value in run.get_inputs() if value.name.startswith("past")]
    past = [np.zeros((1, shape.kv_heads, 0, shape.head_dim), np.float32) for _ in caches]
    found = []
    for first, last in ((0, 5), (5, 8)):
        feeds = {
            "input_ids": np.array([IDS[first:last]]),
            "attention_mask": np.ones((1, last), np.int64),
            "position_ids": np.arange(first, last)[None],
        } | dict(zip(caches, past, strict=True))
        rows, *past = run.run(None, feeds)
        found.append(rows[0])
    np.testing.assert_allclose(np.concatenate(found), logits(shape, weights, IDS), atol=5e-5, rtol=1e-4)


def test_the_weights_in_the_order_of_use():
    shape = SHAPES["gemma3"]
    names = [name.removeprefix("model.layers.0.").removesuffix(".weight") for name in shape.weights()][1:14]
    assert names == [
        "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.q_norm",
        "self_attn.k_norm", "self_attn.o_proj", "post_attention_layernorm", "pre_feedforward_layernorm",
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_feedforward_layernorm",
    ]  # fmt: skip
    assert [shape.windowed(i) for i in range(3)] == [True, True, False]
