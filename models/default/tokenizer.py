"""The tokenizer: byte-level BPE over the training chapters, in the `tokenizer.json` form.

Every byte is in the alphabet, so any text can be encoded. Encoding puts `<s>` in front, as Llama tokenizers do.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .shape import BOS, EOS

SPECIAL = ["<s>", "</s>"]


def train_tokenizer(text: str, vocab: int) -> Tokenizer:
    """Learns the merges from `text` (verses on lines). The result does not depend on the thread count."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    for token, number in zip(SPECIAL, (BOS, EOS), strict=True):
        if tokenizer.token_to_id(token) != number:
            raise ValueError(f"{token} has id {tokenizer.token_to_id(token)}, not {number}")
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"the text gives {tokenizer.get_vocab_size()} tokens, not {vocab}")
    return tokenizer


def encode_verses(tokenizer: Tokenizer, documents: list[list[str]]) -> list[list[list[int]]]:
    """Chapters -> verses -> token ids without `<s>`; each verse ends with its line end."""
    return [
        [e.ids for e in tokenizer.encode_batch([v + "\n" for v in verses], add_special_tokens=False)]
        for verses in documents
    ]


def save(tokenizer: Tokenizer, path: Path) -> None:
    """Writes tokenizer.json without indentation, which halves the file."""
    path.write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
