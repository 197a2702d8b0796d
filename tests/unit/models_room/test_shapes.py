"""Named shapes, config.json files, and folders without weights."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from npuc.models import SHAPES, PullError, read_shape, write_hollow
from npuc.models.configuration import shape_config
from npuc.models.shape import DecoderShape, Experts

# as published: 6.74, 8.19 and 30.5 thousand million; the text part of Gemma 3 4B has 3.9, SmolLM2 134.5 million
PARAMETERS = {
    "smollm2-135m": 134_515_008,
    "llama2-7b": 6_738_415_616,
    "qwen3-8b": 8_190_735_360,
    "gemma3-4b": 3_880_099_328,
    "qwen3-30b-a3b": 30_532_122_624,
}
LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
}  # fmt: skip


def test_the_numbers_of_parameters():
    assert {name: found.shape.parameters for name, found in SHAPES.items()} == PARAMETERS


def test_llama_by_hand():
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    assert SHAPES["llama2-7b"].shape.parameters == 2 * 32000 * 4096 + 32 * layer + 4096


@pytest.mark.parametrize("name", SHAPES)
def test_a_configuration_gives_the_shape_back(name: str, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape_config(SHAPES[name].shape)))
    assert read_shape(path) == SHAPES[name].shape


def test_a_configuration_as_it_is_published(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert read_shape(path) == SHAPES["llama2-7b"].shape
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    path.write_text(json.dumps(mixtral))
    assert read_shape(path).experts == Experts(8, 2)
    path.write_text(json.dumps({"model_type": "wrapper", "text_config": LLAMA}))
    assert read_shape(path) == SHAPES["llama2-7b"].shape


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "no JSON object"),
        (
            '{"model_type": "rwkv"}',
            "the model_type is 'rwkv'; known: llama, mistral, qwen3, qwen3_moe, mixtral, gemma3_text",
        ),
        ('{"model_type": "llama"}', "there is no 'hidden_size'"),
        (
            json.dumps({**LLAMA, "num_key_value_heads": 5}),
            "32 query heads, 5 key heads of 128, 32 layers of 4096 and 11008, 32000 tokens do not fit together",
        ),
        (json.dumps({**LLAMA, "hidden_size": "wide"}), "invalid literal for int() with base 10: 'wide'"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_no_decoder(content: str, message: str, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(PullError) as caught:
        read_shape(path)
    assert str(caught.value) == f"{path}: {message}"


TINY = DecoderShape(64, 32, 48, 2, 4, 2, 8, positions=64, theta=1e4, epsilon=1e-6)


def test_a_folder_without_weights(tmp_path: Path):
    files = write_hollow(TINY, tmp_path / "tiny", force=False)
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == ["config.json", "model.onnx"]
    assert files == {path.name: path.stat().st_size for path in sorted((tmp_path / "tiny").iterdir(), reverse=True)}
    model = onnx.load(tmp_path / "tiny" / "model.onnx", load_external_data=False)
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert len(external) == 2 + 2 * 9
    again = write_hollow(TINY, tmp_path / "again", force=False)
    assert (
        again == files and (tmp_path / "again/model.onnx").read_bytes() == (tmp_path / "tiny/model.onnx").read_bytes()
    )


def test_the_command(npuc, tmp_path: Path):
    done = npuc("models", "shape", "llama2-7b", "-o", tmp_path / "l")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        f"{tmp_path / 'l'}: 2 files, 0.4 MB, of 6.74e9 parameters", f"next: npuc estimate {tmp_path / 'l'}"
    ]  # fmt: skip
    again = npuc("models", "shape", "llama2-7b", "-o", tmp_path / "l")
    assert (again.code, again.err) == (
        2, f"error: {tmp_path / 'l'}: the folder holds config.json: --force replaces a model that was pulled before\n"
    )  # fmt: skip
    assert npuc("models", "shape", "llama2-7b", "-o", tmp_path / "l", "--force", "--json").code == 0
    wrong = npuc("models", "shape", "llama3", "-o", tmp_path / "x")
    assert wrong.code == 2
    assert "there is no shape 'llama3' and no such file; known: smollm2-135m, llama2-7b, qwen3-8b" in wrong.err


def test_the_command_on_a_configuration(npuc, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape_config(TINY)))
    done = npuc("models", "shape", path, "-o", tmp_path / "t", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["parameters"] == TINY.parameters


def test_the_list(npuc):
    found = json.loads(npuc("models", "list", "--json").out)
    assert [row["name"] for row in found["shapes"]] == list(SHAPES)
    assert set(found["shapes"][0]) == {"name", "summary", "parameters", "source"}
    lines = npuc("models", "list").out.splitlines()
    assert lines[0] == "with weights, for npuc models pull:"
    assert "sizes alone, for npuc models shape:" in lines
