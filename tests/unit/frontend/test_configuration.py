"""The JSON files beside a model: what they may say, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from npuc.frontend import ModelRefused
from npuc.frontend.configuration import end_tokens, max_positions

CONFIG, GENERATION = "config.json", "generation_config.json"


def test_generation_config_wins_and_nulls_say_nothing() -> None:
    assets = {
        CONFIG: b'{"eos_token_id": 1, "bos_token_id": 7}',
        GENERATION: b'{"eos_token_id": [2, 3], "bos_token_id": null}',
    }
    assert end_tokens(assets) == ([2, 3], 7)
    assert end_tokens({}) == ([], None)
    assert max_positions({CONFIG: b'{"max_position_embeddings": 64}'}) == 64
    assert max_positions({CONFIG: b"{}"}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "config.json: no JSON object"),
        (b"{", "config.json: no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"max_position_embeddings": "abc"}',
         "config.json: 'max_position_embeddings' is 'abc'; a whole number above 0 is due"),
        (b'{"max_position_embeddings": -5}',
         "config.json: 'max_position_embeddings' is -5; a whole number above 0 is due"),
        (b'{"max_position_embeddings": true}',
         "config.json: 'max_position_embeddings' is True; a whole number above 0 is due"),
    ],
)  # fmt: skip
def test_positions_that_are_none(text: bytes, message: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        max_positions({CONFIG: text})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"eos_token_id": "abc"}', "generation_config.json: 'eos_token_id' holds 'abc', which is no token id"),
        (b'{"eos_token_id": [1, null]}', "generation_config.json: 'eos_token_id' holds None, which is no token id"),
        (b'{"eos_token_id": 1e400}', "generation_config.json: 'eos_token_id' holds inf, which is no token id"),
        (b'{"bos_token_id": -3}', "generation_config.json: 'bos_token_id' holds -3, which is no token id"),
    ],
)
def test_tokens_that_are_none(text: bytes, message: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        end_tokens({CONFIG: b'{"eos_token_id": 1}', GENERATION: text})
    assert str(caught.value) == message


def test_a_file_that_is_nested_without_end() -> None:
    with pytest.raises(ModelRefused, match=r"^config\.json: no JSON: "):
        max_positions({CONFIG: b"[" * 100_000})
