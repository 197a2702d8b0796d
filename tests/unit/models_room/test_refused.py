"""GGUF files that the recipes cannot read."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from npuc.models import PullError
from npuc.models.gguf_file import read_gguf
from npuc.models.pull import write_folder
from tests.unit.models_room import tiny

Q = gguf.GGMLQuantizationType


def without(name):
    return {key: value for key, value in tiny.tensors().items() if key != name}


STORED = {
    "missing": (
        lambda: without("blk.1.attn_v.weight"), "the GGUF file has no tensor blk.1.attn_v.weight (1 missing)"
    ),
    "unknown": (
        lambda: {**tiny.tensors(), "rope_freqs.weight": (np.ones(8, np.float32), Q.F32)},
        "the GGUF file has a tensor rope_freqs.weight, which the recipe does not know",
    ),
    "shape": (
        lambda: {**tiny.tensors(), "output_norm.weight": (np.ones(32, np.float32), Q.F32)},
        "the tensor output_norm.weight is [32], and the sizes of the model ask for [64]",
    ),
    "kind": (
        lambda: {**tiny.tensors(), "blk.0.attn_q.weight": (np.zeros((64, 44), np.uint8), Q.Q5_0)},
        "the tensor blk.0.attn_q.weight is stored as Q5_0: only F32, F16, Q4_1, Q8_0 are read",
    ),
}  # fmt: skip
METADATA = {
    "pre": (
        {"pre": "llama3"},
        "the tokenizer is of the kind 'gpt2' with the rule 'llama3': only 'gpt2' with 'smollm' is read",
    ),
    "turned": (
        {"turned": 8},
        "the GGUF file has 4 query and 2 key heads, hidden size 64 and 8 rotary dimensions, which do not fit together",
    ),
    "arch": ({"arch": "gemma"}, "the GGUF file holds a model of the architecture 'gemma', and only llama is read"),
}  # fmt: skip


@pytest.mark.parametrize("case", STORED)
def test_tensors(tmp_path, case):
    stored, message = STORED[case]
    file = read_gguf(tiny.write_gguf(tmp_path / "x.gguf", stored()))
    with pytest.raises(PullError) as caught:
        write_folder(file, tmp_path, lambda step, share: None)
    assert str(caught.value) == message


@pytest.mark.parametrize("case", METADATA)
def test_metadata(tmp_path, case):
    changed, message = METADATA[case]
    file = read_gguf(tiny.write_gguf(tmp_path / "x.gguf", **changed))
    with pytest.raises(PullError) as caught:
        write_folder(file, tmp_path, lambda step, share: None)
    assert str(caught.value) == message


def test_a_missing_key_is_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(PullError) as caught:
        write_folder(read_gguf(tmp_path / "x.gguf"), tmp_path, lambda step, share: None)
    assert str(caught.value) == "the GGUF file has no metadata llama.attention.head_count"
