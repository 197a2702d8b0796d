"""The recipe's parts that need neither torch nor the text: splitting, words, shape, sampling, tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

from models.default import corpus, sample
from models.default.shape import BOS, EOS, Shape, shape_of

RAW = "Ge1:1 In the  beginning.\nGe1:2 And the earth.\nGe2:1 Thus the heavens.\n1Ki2:1 Now the days.\n"


def test_chapters_are_split_where_book_or_chapter_changes() -> None:
    assert corpus.chapters(RAW, verses=4) == [
        ["In the beginning.", "And the earth."],
        ["Thus the heavens."],
        ["Now the days."],
    ]


def test_a_broken_text_is_refused() -> None:
    with pytest.raises(ValueError, match="4 verses found, 31102 expected"):
        corpus.chapters(RAW)
    with pytest.raises(ValueError, match="line 2 is no verse: 'no verse'"):
        corpus.chapters("Ge1:1 In the beginning.\nno verse\n", verses=1)


def test_the_split_is_a_partition_and_follows_the_seed() -> None:
    documents = [[f"verse {i}"] for i in range(100)]
    parts = corpus.split(documents, share=0.1, seed=3)
    assert len(parts.held_out) == 10
    assert sorted(parts.train + parts.held_out) == sorted(documents)
    assert corpus.split(documents, share=0.1, seed=3) == parts
    assert corpus.split(documents, share=0.1, seed=4) != parts


def test_words_keep_inner_apostrophes_only() -> None:
    assert corpus.words("And AARON'S rod, the sons' 7") == ["and", "aaron's", "rod", "the", "sons"]


def test_config_and_shape_are_inverse() -> None:
    shape = Shape(vocab=300, layers=2, positions=64)
    assert shape_of(shape.config()) == shape


def test_weight_shapes_count_the_parameters() -> None:
    assert sum(int(np.prod(s)) for s in Shape().weight_shapes().values()) == 1_246_592


def test_pick_draws_among_the_likeliest_only() -> None:
    logits, rng = np.array([0.0, 3.0, 2.0, -1.0], np.float32), np.random.default_rng(0)
    drawn = [sample.pick(logits, rng, temperature=1.0, top_k=2) for _ in range(2000)]
    assert set(drawn) == {1, 2}
    assert abs(drawn.count(1) / 2000 - 1 / (1 + np.exp(-1))) < 0.04


def test_generate_stops_at_the_end_or_never_draws_it() -> None:
    def following(tokens: object) -> np.ndarray:
        return np.array([0, 9, 5], np.float32)

    assert EOS == 1
    assert sample.generate(following, [BOS], 4) == []
    assert sample.generate(following, [BOS], 4, stop=False) == [2, 2, 2, 2]


def test_the_tokenizer_restores_any_text() -> None:
    pytest.importorskip("tokenizers")
    from models.default.tokenizer import encode_verses, train_tokenizer

    tokenizer = train_tokenizer("And it came to pass.\nAnd it was so.\n" * 3, vocab=270)
    for text in ("And it was", "naïve, 日本\n", ""):
        ids = tokenizer.encode(text).ids
        assert ids[0] == BOS
        assert tokenizer.decode(ids) == text
    assert tokenizer.decode(encode_verses(tokenizer, [["And it"]])[0][0]) == "And it\n"
