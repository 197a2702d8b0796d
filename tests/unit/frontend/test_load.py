"""What loading accepts: files, folders, assets, external data beside the model."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused, check_model, load
from tests.support.graphs import parsed, written

RELU = "g (float[2] x) => (float[2] y) { [a] y = Relu (x) }"
LINEAR = "g (float[2,64] x) => (float[2,64] y) { [a] y = MatMul (x, w) }"


def with_weight(folder, location="w.bin", count=64 * 64, offset=0, name="model.onnx"):
    """LINEAR with its weight in an external file, which is not written here."""
    model = parsed(LINEAR)
    weight = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[64, 64])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(64 * 64 * 4))):
        weight.external_data.add(key=key, value=value)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(model.SerializeToString())
    return np.arange(count, dtype=np.float32)


def test_folder_with_assets(tmp_path):
    folder = tmp_path / "tiny-chat"
    written(folder, RELU)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "training_args.bin").write_text("not an asset")
    loaded = load(folder)
    assert loaded.name == "tiny-chat"
    assert loaded.assets == {
        "generation_config.json": folder / "generation_config.json",
        "tokenizer.json": folder / "tokenizer.json",
        "tokenizer_config.json": folder / "tokenizer_config.json",
        "chat_template.jinja": b"{{ messages }}",
    }
    assert load(folder / "model.onnx").name == "model"


@pytest.mark.parametrize(
    ("template", "expected"),
    [([{"name": "rag", "template": "A"}, {"name": "default", "template": "B"}], b"B"), ([], None), (7, None)],
)
def test_named_templates(tmp_path, template, expected):
    written(tmp_path, RELU)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert load(tmp_path).assets.get("chat_template.jinja") == expected


def test_repository_layout(tmp_path):
    written(tmp_path / "onnx", RELU)
    (tmp_path / "config.json").write_text("{}")
    loaded = load(tmp_path)
    assert loaded.source == "model.onnx" and list(loaded.assets) == ["config.json"]


def test_one_model_of_another_name(tmp_path):
    written(tmp_path, RELU).rename(tmp_path / "decoder.onnx")
    assert load(tmp_path).source == "decoder.onnx"


def test_text_dims_and_overridable_weights_become_plain(tmp_path):
    model = parsed(
        'g (float[B,"16"] x, float[16,16] w) => (float[B,"16"] y) { [a] y = MatMul (x, w) }'.replace('"16"', "N")
    )
    for value in (*model.graph.input[:1], *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "16"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 16), np.float32), "w"))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    graph = load(tmp_path).model.graph
    assert [v.name for v in graph.inputs] == ["x"]
    assert graph.inputs[0].shape == ir.Shape(["B", 16]) and graph.outputs[0].shape == ir.Shape(["B", 16])


def test_nodes_are_put_in_order(tmp_path):
    path = written(tmp_path, "g (float[2] x) => (float[2] z) { [b] z = Neg (y) [a] y = Relu (x) }")
    assert [n.name for n in load(path).model.graph] == ["a", "b"]


def test_external_weights_are_mapped_on_first_use(tmp_path):
    weights = with_weight(tmp_path, offset=4096)
    (tmp_path / "w.bin").write_bytes(bytes(4096) + weights.tobytes())
    loaded = load(tmp_path)
    check_model(loaded)
    tensor = loaded.model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor) and tensor.raw is None
    np.testing.assert_array_equal(tensor.numpy().ravel(), weights)
    assert not tensor.numpy().flags.owndata


def test_download_cache_layout(tmp_path):
    """Model and weights are links into one store, as in the caches of model hubs."""
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    weights = with_weight(store, name="0a1b")
    (store / "2c3d").write_bytes(weights.tobytes())
    snapshot.mkdir()
    (snapshot / "model.onnx").symlink_to(store / "0a1b")
    (snapshot / "w.bin").symlink_to(store / "2c3d")
    tensor = load(snapshot).model.graph.initializers["w"].const_value
    np.testing.assert_array_equal(tensor.numpy().ravel(), weights)


BAD_PLACES = [
    ("../w.bin", "external data path '../w.bin' leaves the model's folder"),
    ("/etc/hostname", "external data path '/etc/hostname' leaves the model's folder"),
    ("a/../../w.bin", "external data path 'a/../../w.bin' leaves the model's folder"),
    ("link.bin", "external data path 'link.bin' is a link out of the model's folder"),
    ("gone.bin", "external data file 'gone.bin' is missing"),
    ("short.bin", "weight w: external data file 'short.bin' ends at 100 bytes, before the data of a weight do"),
]


@pytest.mark.parametrize(("location", "message"), BAD_PLACES)
def test_external_data_elsewhere(tmp_path, location, message):
    folder = tmp_path / "model"
    weights = with_weight(folder, location)
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "short.bin").write_bytes(bytes(100))
    with pytest.raises(ModelRefused) as error:
        load(folder)
    assert error.value.problems == (message,)
