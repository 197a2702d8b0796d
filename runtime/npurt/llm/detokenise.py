"""From token ids to text, one token at a time, without ever showing a part of a character.

The pieces of a vocabulary are bytes, and a character may be cut over several of them. `Utf8Stream` holds back the bytes
of a started character; a byte that can never become one shows as U+FFFD at once, a character that is unfinished at the
end as one U+FFFD. `TokenBytes` reads the pieces from a ``tokenizer.json`` with the standard library alone, so that a
device with NumPy and nothing else still gives text.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import DamagedTokenizerError, TokenizerError
from .stops import StopStrings

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_META_SPACE = "\u2581"


class Utf8Stream:
    """Bytes in, whole characters out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: bytes) -> str:
        """The text that these bytes complete; may be empty."""
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The end of the stream: U+FFFD where a started character is left over, else nothing."""
        return self._decoder.decode(b"", True)


class TokenBytes:
    """The bytes of every token id of a tokenizer. Special tokens (start, end and so on) have none."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = dict(pieces)

    def __getitem__(self, token: int) -> bytes:
        """Bytes of one id; an id that the tokenizer does not know (a padded vocabulary has such) gives none."""
        return self._pieces.get(token, b"")

    @classmethod
    def from_json(cls, asset: bytes) -> TokenBytes:
        """Reads a ``tokenizer.json`` (BPE, Unigram or WordLevel vocabularies; byte-level or metaspace decoders).

        Errors: DamagedTokenizerError where the file is no such JSON, TokenizerError where its decoder is of another
        kind.
        """
        try:
            document = json.loads(asset)
            kinds = _decoder_kinds(document.get("decoder"))
            to_bytes = _byte_level if "ByteLevel" in kinds else _metaspace
            pieces = {token: to_bytes(piece) for token, piece in _vocabulary(document["model"]).items()}
            for added in document.get("added_tokens", ()):
                pieces[added["id"]] = b"" if added["special"] else added["content"].encode()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedTokenizerError(f"tokenizer.json of the blob is not understood: {error!r}") from error
        unknown = [kind for kind in kinds if kind not in _KNOWN_DECODERS]
        if unknown:
            raise TokenizerError(
                f"tokenizer.json of the blob has a decoder of type {unknown[0]}, which is not supported"
            )
        return cls(pieces)


class TextStream:
    """The text of an answer, token by token: whole characters, cut before a stop string.

    silent: ids that never show, the end tokens.
    """

    def __init__(self, pieces: TokenBytes, stops: Sequence[str], *, silent: Sequence[int] = ()) -> None:
        self._pieces, self._silent = pieces, frozenset(silent)
        self._characters, self._stops = Utf8Stream(), StopStrings(stops)
        self._stopped = False

    def push(self, token: int) -> tuple[str, bool]:
        """The text that may be shown after this token, and whether a stop string has been reached."""
        piece = b"" if token in self._silent else self._pieces[token]
        shown, self._stopped = self._stops.push(self._characters.push(piece))
        return shown, self._stopped

    def finish(self) -> str:
        """The text that was held back, at the end of the answer; nothing after a stop string."""
        if self._stopped:
            return ""
        shown, _ = self._stops.push(self._characters.finish())
        return shown + self._stops.finish()


_KNOWN_DECODERS = ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip")


def _decoder_kinds(decoder: Any) -> list[str]:
    """Types of the steps of a decoder entry, a sequence flattened; none where the file has no decoder."""
    if decoder is None:
        return []
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return [str(step["type"]) for step in steps]


def _vocabulary(model: Mapping[str, Any]) -> dict[int, str]:
    """Pieces by id: a mapping piece -> id (BPE, WordLevel), or rows [piece, score] in id order (Unigram)."""
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        return {int(token): str(piece) for piece, token in vocab.items()}
    return {token: str(row[0]) for token, row in enumerate(vocab)}


def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level vocabularies (GPT-2 and after) write for each of the 256 bytes.

    Bytes with a visible Latin-1 character stand for themselves; the others, in order, for U+0100 and on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()


def _byte_level(piece: str) -> bytes:
    """Bytes of a byte-level piece; a piece with a character outside the alphabet is plain text."""
    if all(character in _ALPHABET for character in piece):
        return bytes(_ALPHABET[character] for character in piece)
    return piece.encode()


def _metaspace(piece: str) -> bytes:
    """Bytes of a SentencePiece piece: ``<0xE4>`` is one byte, U+2581 a space."""
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_META_SPACE, " ").encode()
