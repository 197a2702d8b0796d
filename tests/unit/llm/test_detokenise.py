"""Text from pieces of bytes: whole characters only, and the same text as the tokenizers package gives."""

import json
from pathlib import Path

import pytest

import npuc
from npurt.llm import TokenizerError
from npurt.llm.detokenise import TextStream, TokenBytes, Utf8Stream

DEFAULT = Path(npuc.__file__).parent / "data" / "default_model" / "tokenizer.json"

# Pieces that cut characters in two, three and four, a wrong byte and a cut end; and the text after each piece and at
# the end, by the Unicode standard (section 3.9): one U+FFFD for a byte that can never begin or continue one, and
# one for a started character that the end cuts.
STREAMS = [
    ([b"ok ", b"\xf0\x9f", b"\x99\x82", b"!"], ["ok ", "", "\U0001f642", "!", ""]),
    ([b"\xe4", b"\xbd", b"\xa0\xe5\xa5", b"\xbd"], ["", "", "\u4f60", "\u597d", ""]),
    ([b"a\xc3", b"\xa9", b"\xff", b"z"], ["a", "\xe9", "\ufffd", "z", ""]),
    ([b"end \xf0\x9f\x99"], ["end ", "\ufffd"]),
    ([b"\xf0", b"\x9f", b"\x99", b"\x82", b"\xcc\x81"], ["", "", "", "\U0001f642", "\u0301", ""]),
]


@pytest.mark.parametrize(("pieces", "shown"), STREAMS)
def test_a_started_character_is_held_back(pieces: list[bytes], shown: list[str]) -> None:
    stream = Utf8Stream()
    assert [*(stream.push(piece) for piece in pieces), stream.finish()] == shown


@pytest.mark.parametrize(("pieces", "shown"), STREAMS)
def test_a_token_stream_shows_the_same(pieces: list[bytes], shown: list[str]) -> None:
    stream = TextStream(TokenBytes(dict(enumerate(pieces))), ())
    assert [*(stream.push(token)[0] for token in range(len(pieces))), stream.finish()] == shown


def tokenizer_json(vocabulary: object, decoder: object, **extra: object) -> bytes:
    return json.dumps({"model": {"vocab": vocabulary}, "decoder": decoder, **extra}).encode()


def test_byte_level_pieces_become_bytes() -> None:
    pieces = TokenBytes.from_json(
        tokenizer_json({"\u0120hi": 0, "\u00f0\u0141": 1, "\u010a": 2}, {"type": "ByteLevel"})
    )
    assert [pieces[token] for token in range(4)] == [b" hi", b"\xf0\x9f", b"\n", b""]


def test_byte_fallback_pieces_and_meta_spaces_become_bytes() -> None:
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    pieces = TokenBytes.from_json(tokenizer_json([["\u2581you", 0.0], ["<0xE4>", 0.0]], decoder))
    assert [pieces[0], pieces[1]] == [b" you", b"\xe4"]


def test_special_tokens_are_silent_and_added_ones_are_not() -> None:
    added = [{"id": 1, "content": "<s>", "special": True}, {"id": 2, "content": "<think>", "special": False}]
    pieces = TokenBytes.from_json(tokenizer_json({"a": 0, "<s>": 1}, {"type": "ByteLevel"}, added_tokens=added))
    assert [pieces[token] for token in range(3)] == [b"a", b"", b"<think>"]


def test_the_embedded_tokenizer_gives_the_text_of_the_tokenizers_package() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer.from_file(str(DEFAULT))
    pieces = TokenBytes.from_json(DEFAULT.read_bytes())
    text = "And the LORD said, na\u00efve \u4f60\u597d \U0001f642\n  twice  spaced"
    ids = reference.encode(text).ids
    every = list(range(reference.get_vocab_size()))
    assert reference.decode(ids) == text
    for tokens in (ids, every):
        assert b"".join(pieces[token] for token in tokens).decode("utf-8", "replace") == reference.decode(tokens)


@pytest.mark.parametrize(
    ("asset", "words"),
    [
        (b"", "tokenizer.json of the blob is not understood"),
        (b"\xff\xfe", "tokenizer.json of the blob is not understood"),
        (b"[]", "tokenizer.json of the blob is not understood"),
        (b"{}", "tokenizer.json of the blob is not understood: KeyError('model')"),
        (b"[" * 100_000, "tokenizer.json of the blob is not understood"),
        (tokenizer_json({"a": 0}, {"type": "WordPiece"}), "has a decoder of type WordPiece, which is not supported"),
    ],
)
def test_a_damaged_tokenizer_is_one_error(asset: bytes, words: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        TokenBytes.from_json(asset)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
