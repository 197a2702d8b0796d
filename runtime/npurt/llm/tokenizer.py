"""The tokenizer that travels in the blob: text to ids, with the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .detokenise import TokenBytes
from .errors import DamagedTokenizerError, TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ASSET = "tokenizer.json"


def encode(assets: Mapping[str, bytes], text: str, *, start: bool = True) -> list[int]:
    """Ids of a text. start: with the start token where the tokenizer's own template adds one.

    Errors: TokenizerError where the blob carries no tokenizer, the file is damaged, or the package is missing.
    """
    return list(_load(_asset(assets)).encode(_whole(text), add_special_tokens=start).ids)


def _whole(text: str) -> str:
    """The text without lone surrogates. Bytes of a command line that its locale cannot decode come as U+DC80 and on;
    most are UTF-8 all the same."""
    escaped = all("\udc80" <= character <= "\udcff" for character in text if "\ud800" <= character <= "\udfff")
    return text.encode("utf-8", "surrogateescape" if escaped else "replace").decode("utf-8", "replace")


def token_bytes(assets: Mapping[str, bytes]) -> TokenBytes | None:
    """The pieces for text output, or None where the blob carries no tokenizer. Needs no package."""
    return TokenBytes.from_json(bytes(assets[ASSET])) if ASSET in assets else None


def _asset(assets: Mapping[str, bytes]) -> bytes:
    if ASSET not in assets:
        raise TokenizerError(
            f"the blob carries no {ASSET}: give token ids with --prompt-ids, or compile a folder that holds one"
        )
    return bytes(assets[ASSET])


def _load(asset: bytes) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerError(
            "a prompt as text needs the package tokenizers: pip install 'npuc[chat]', or give ids with --prompt-ids"
        ) from error
    try:
        return Tokenizer.from_str(asset.decode("utf-8"))
    except Exception as error:  # the package raises bare Exception for every fault of the file
        raise DamagedTokenizerError(f"{ASSET} of the blob is not understood: {error}") from error
