"""The model's numbers from a blob's metadata, which is untrusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npurt.errors import BlobError
from npurt.llm import ModelInfo
from tests.unit.llm.fake import FakeImage


def test_numbers_are_read_and_capacities_ascend() -> None:
    info = ModelInfo.from_meta(FakeImage(capacities=(16, 10), eos=(3, 4)).meta)
    assert (info.vocab, info.chunk, info.max_prompt_len, info.capacities, info.eos) == (23, 4, 8, (10, 16), (3, 4))
    assert (info.context, info.bos, info.ids_dtype) == (16, None, np.dtype(np.int32))


@pytest.mark.parametrize(
    ("n_past", "entry"), [(0, "generate.10"), (9, "generate.10"), (10, "generate.16"), (15, "generate.16")]
)
def test_an_entry_holds_the_past_and_one_row_more(n_past: int, entry: str) -> None:
    assert ModelInfo.from_meta(FakeImage().meta).generate_entry(n_past)[0] == entry


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chunk", 0),
        ("chunk", "4"),
        ("vocab", -1),
        ("max_prompt_len", None),
        ("capacities", []),
        ("capacities", 7),
        ("capacities", [4, 0]),
        ("eos", [{}]),
        ("bos", "x"),
    ],
)
def test_damaged_numbers_are_one_error(key: str, value: Any) -> None:
    meta = FakeImage().meta
    meta["llm"][key] = value
    with pytest.raises(BlobError, match=r"^the metadata of the language model is damaged: "):
        ModelInfo.from_meta(meta)


@pytest.mark.parametrize("missing", ["vocab", "eos", "capacities"])
def test_missing_numbers_are_named(missing: str) -> None:
    meta = FakeImage().meta
    del meta["llm"][missing]
    with pytest.raises(BlobError, match=f"damaged: KeyError.'{missing}'"):
        ModelInfo.from_meta(meta)


def test_metadata_without_prefill_is_damaged() -> None:
    meta = FakeImage().meta
    meta["entries"] = []
    with pytest.raises(BlobError, match=r"^the metadata of the language model is damaged: StopIteration"):
        ModelInfo.from_meta(meta)
