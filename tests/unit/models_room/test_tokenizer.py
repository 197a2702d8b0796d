"""The tokenizer and configuration files."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from npuc.models.gguf_file import read_gguf
from npuc.models.pull import write_folder
from npurt.llm.detokenise import TokenBytes
from tests.unit.models_room import tiny


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    made = tmp_path_factory.mktemp("folder")
    write_folder(read_gguf(source.gguf), made, lambda step, share: None)
    return made


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def ids(*pieces: str) -> list[int]:
    return [tiny.TOKENS.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hell", ["hell"]),  # h e, then l l, then both
        ("helo", ["he", "l", "o"]),
        ("12", ["1", "2"]),  # digits stand alone, although the vocabulary has their pair
        (" a12b", ["Ġa", "1", "2", "b"]),
        ("  a", ["Ġ", "Ġa"]),
        ("é\n", ["Ã", "©", "Ċ"]),
        ("<|im_start|>he<|im_end|>", ["<|im_start|>", "he", "<|im_end|>"]),
        ("", []),
    ],
)
def test_ids_of_texts(tokenizer, text, pieces):
    assert tokenizer.encode(text).ids == ids(*pieces)
    assert tokenizer.decode(ids(*pieces), skip_special_tokens=False) == text


def test_the_runtime_reads_the_pieces(folder):
    pieces = TokenBytes.from_json((folder / "tokenizer.json").read_bytes())
    assert b"".join(pieces[i] for i in ids("<|im_start|>", "Ã", "©", "Ġa", "hell")) == "é ahell".encode()


def test_the_configuration_files(folder):
    assert (folder / "chat_template.jinja").read_text() == tiny.TEMPLATE
    assert json.loads((folder / "generation_config.json").read_text()) == {
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    expected = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 264, "eos_token_id": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    }  # fmt: skip
    assert {name: config[name] for name in expected} == expected
    names = json.loads((folder / "tokenizer_config.json").read_text())
    assert [names[f"{role}_token"] for role in ("unk", "bos", "eos")] == tiny.SPECIAL
