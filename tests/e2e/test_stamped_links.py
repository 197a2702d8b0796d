"""Equal layers are linked once: the same answers as from linking all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import npurt
from npurt.fast import FastDevice, LinkOptions
from npurt.llm import Request, Session
from tests.support.models import CASES, compile_to

LAYERS = 7
PROMPT, FED = (5, 17, 28, 3, 9, 21, 2), (1, 2, 3, 4, 5, 6, 7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny decoder with more layers than are linked; each has weights of its own."""
    sys.path.insert(0, str(CASES))
    try:
        import tinyllm
        import tinyllm_onnx
    finally:
        sys.path.remove(str(CASES))
    settings = {**tinyllm.BASE, "layers": LAYERS}
    path = tmp_path_factory.mktemp("layers") / "model.onnx"
    path.write_bytes(tinyllm_onnx.build(settings, tinyllm.weights(settings)).SerializeToString())
    return path


@pytest.mark.parametrize(("precision", "attention"), [("f32", "flash"), ("f16", "decomposed")])
def test_stamped_layers_answer_as_linked_ones(model: Path, tmp_path: Path, precision: str, attention: str) -> None:
    sizes = {"max_prompt_len": 8, "chunk": 4, "capacities": (12, 20)}
    image = npurt.load(compile_to(tmp_path / "m.npu", model, precision=precision, attention=attention, **sizes))
    stamped, linked = FastDevice(image), FastDevice(image, LinkOptions(stamp=False))
    found, wanted = (logits(image, device) for device in (stamped, linked))
    assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max()
    assert stamped.notes == linked.notes == []
    for name, stats in entries(stamped).items():
        whole = entries(linked)[name]
        assert whole["linked"] == whole["tasks"] == stats["tasks"]
        if name != "head":
            assert stats["linked"] < stats["tasks"], name
            assert stats["kept"] <= 1.1 * whole["kept"], name


def logits(image: npurt.Image, device: FastDevice) -> np.ndarray:
    request = Request(max_new_tokens=len(FED) + 1, force_ids=FED, collect_logits=True, eos=())
    result = Session(image, device).generate(list(PROMPT), request).finish()
    return np.concatenate([result.prompt_logits, result.step_logits])


def entries(device: FastDevice) -> dict[str, dict[str, int]]:
    found = device.stats["entries"]
    assert isinstance(found, dict)
    return found
