"""The exported graph: its form, and what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from npuc.models.gguf_file import read_gguf
from npuc.models.pull import DATA, FILES, MODEL, write_folder
from npuc.models.weights import unpermute
from tests.unit.models_room import tiny

IDS = [5, 200, 17, 17, 262, 0, 90]


def quiet(step: str, share: float | None) -> None:
    pass


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("folder")
    write_folder(read_gguf(source.gguf), made, quiet)
    return made


@pytest.fixture(scope="module")
def run(folder):
    session = onnxruntime.InferenceSession(folder / MODEL, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs() if value.name.startswith("past")]

    def step(ids, mask, positions, past=None):
        """Logits and caches of one run; ids, mask, positions [batch, n]."""
        empty = np.zeros((len(ids), tiny.KV_HEADS, 0, tiny.HEAD_DIM), np.float32)
        feeds = dict(zip(names, past or [empty] * len(names), strict=True))
        feeds |= {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        logits, *present = session.run(None, {name: np.asarray(value) for name, value in feeds.items()})
        return logits, present

    return step


def agree(found, expected):
    # f32 sums of 96 terms in two layers, against float64; logits are of the size of 1
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=0)


def test_the_graph_computes_what_gguf_means(run):
    logits, _ = run([IDS], np.ones((1, 7), np.int64), [list(range(7))])
    agree(logits[0], tiny.logits(IDS))


def test_the_cache_continues_a_sequence(run):
    _, past = run([IDS[:4]], np.ones((1, 4), np.int64), [[0, 1, 2, 3]])
    logits, present = run([IDS[4:]], np.ones((1, 7), np.int64), [[4, 5, 6]], past)
    agree(logits[0], tiny.logits(IDS)[4:])
    assert {value.shape for value in present} == {(1, tiny.KV_HEADS, 7, tiny.HEAD_DIM)}


def test_a_batch_with_padding_on_the_left(run):
    ids = np.array([IDS, [1, 1, 1, *IDS[:4]]])
    mask = np.array([[1] * 7, [0] * 3 + [1] * 4])
    logits, _ = run(ids, mask, np.maximum(mask.cumsum(1) - 1, 0))
    agree(logits[0], tiny.logits(IDS))
    agree(logits[1, 3:], tiny.logits(IDS[:4]))


def test_the_form_is_that_of_an_export(folder):
    onnx.checker.check_model(folder / MODEL, full_check=True)
    model = onnx.load(folder / MODEL, load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 21)]
    caches = [f"{i}.{part}" for i in range(tiny.LAYERS) for part in ("key", "value")]
    assert [value.name for value in model.graph.input] == [
        "input_ids", "attention_mask", "position_ids", *(f"past_key_values.{cache}" for cache in caches)
    ]  # fmt: skip
    assert [value.name for value in model.graph.output] == ["logits", *(f"present.{cache}" for cache in caches)]
    dims = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert dims["input_ids"] == dims["position_ids"] == ["batch_size", "sequence_length"]
    assert dims["attention_mask"] == ["batch_size", "total_sequence_length"]
    assert dims["past_key_values.1.value"] == ["batch_size", 2, "past_sequence_length", 16]
    assert dims["present.0.key"] == ["batch_size", 2, "total_sequence_length", 16]
    assert dims["logits"] == ["batch_size", "sequence_length", len(tiny.TOKENS)]


def test_each_weight_is_stored_once_at_a_page_of_the_data_file(folder):
    model = onnx.load(folder / MODEL, load_external_data=False)
    places = []
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = {entry.key: entry.value for entry in tensor.external_data}
            assert where["location"] == DATA
            assert int(where["length"]) == 4 * np.prod(tensor.dims)
            places.append((int(where["offset"]), int(where["length"])))
    assert len(places) == 9 * tiny.LAYERS + 2
    assert all(offset % 4096 == 0 for offset, _ in places)
    ends = [offset + length for offset, length in places]
    assert all(end <= offset for end, (offset, _) in zip(ends, places[1:], strict=False))
    assert ends[-1] == (folder / DATA).stat().st_size
    assert (folder / MODEL).stat().st_size < 100_000
    users = [node.op_type for node in model.graph.node if "model.embed_tokens.weight" in node.input]
    assert users == ["Gather", "Transpose"]


def test_equal_files_give_equal_bytes(source, folder, tmp_path):
    write_folder(read_gguf(source.gguf), tmp_path, quiet)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_rows_of_each_head_return_to_halves():
    interleaved = np.array([0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15])
    rows = np.stack([interleaved, -interleaved], axis=1)
    assert unpermute(rows, 2)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert unpermute(rows, 2)[:, 1].tolist() == [0, -1, -2, -3, -4, -5, -10, -11, -12, -13, -14, -15]
