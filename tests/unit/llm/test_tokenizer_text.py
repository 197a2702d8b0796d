"""Prompts as the system gives them: also with bytes that the locale could not decode."""

from __future__ import annotations

import pytest

from npurt.llm.tokenizer import ASSET, encode

pytest.importorskip("tokenizers")
WORDS = b'{"model": {"type": "WordLevel", "vocab": {"?": 0, "caf\\u00e9": 1, "?\\ufffd": 2}, "unk_token": "?"}}'


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("café", [1]),
        ("caf\udcc3\udca9", [1]),  # the same two bytes of UTF-8, escaped
        ("\udcff", [0]),
        ("\ud83d", [0]),
        ("\x00\u202e\ufeff", [0]),
    ],
)
def test_every_text_has_ids(text: str, ids: list[int]) -> None:
    assert encode({ASSET: WORDS}, text) == ids
