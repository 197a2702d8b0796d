"""Reading, checking and normalising a large decoder takes less than a second of a processor and reads no weight."""

from __future__ import annotations

import sys
import time

import onnx
import onnx_ir as ir
import pytest

from npuc.frontend import check_model, load
from npuc.graph.normalise import normalise
from npuc.graph.state import classify, state_to_arguments
from tests.support.models import CASES


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A decoder of 28 layers with its weights in an external file."""
    sys.path.insert(0, str(CASES))
    try:
        import tinyllm
        import tinyllm_onnx
    finally:
        sys.path.remove(str(CASES))
    settings = {**tinyllm.BASE, "layers": 28}
    path = tmp_path_factory.mktemp("large") / "model.onnx"
    model = tinyllm_onnx.build(settings, tinyllm.weights(settings))
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=512)
    return path


def prepare(path):
    loaded = load(path)
    check_model(loaded)
    pure, states = state_to_arguments(loaded.model)
    model = normalise(pure)
    return model, classify(states, model)


def test_less_than_a_second_for_1900_nodes(decoder):
    seconds = []
    for _ in range(4):
        start = time.process_time()
        model, classes = prepare(decoder)
        seconds.append(time.process_time() - start)
    assert len(model.graph) > 1900 and len(classes) == 56
    assert min(seconds) < 1.0
    held = [v.const_value for v in model.graph.initializers.values()]
    external = [t for t in held if isinstance(t, ir.ExternalTensor)]
    assert len(external) > 190 and all(t.raw is None for t in external)
