"""`run` for people and for programs: a prompt on a blob, the text as it comes or one JSON object.

Shared by `npuc run` and `python -m npurt run`, so that both mean the same by every option.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, BinaryIO, TextIO

import numpy as np

from .chat import chat_prompt
from .errors import OptionError
from .generation import Request, Result
from .protocol import HoldsModel, RunsEntries
from .session import Session
from .tokenizer import encode


def parse_ids(text: str, option: str) -> list[int]:
    """Token ids from a text such as ``'1 2 3'`` or ``'1,2,3'``. Errors: OptionError names what is no id."""
    ids = []
    for word in text.replace(",", " ").split():
        if not (word.isascii() and word.isdigit()):
            raise OptionError(f"{option}: {word!r} is no token id, give numbers such as '1 2 3'")
        ids.append(int(word))
    return ids


def prompt_of(
    image: HoldsModel, prompt: str | None, ids: str | None, *, chat: bool = False, system: str | None = None
) -> list[int]:
    """The ids of a prompt, given as ids or else as text; none for an empty text, whatever start token a tokenizer adds.

    chat: the text is a user's message and goes through the blob's chat template, behind a `system` message if there is
    one. Errors: OptionError where `ids` are no ids; TokenizerError where text needs a tokenizer that is not there;
    TemplateError as `npurt.llm.chat.chat_prompt`.
    """
    if ids is not None:
        return parse_ids(ids, "--prompt-ids")
    if not prompt:
        return []
    if chat:  # the template writes the start token itself
        return encode(image.assets, chat_prompt(image.assets, prompt, system), start=False)
    return encode(image.assets, prompt)


def answer(
    image: HoldsModel, device: RunsEntries, prompt: Sequence[int], request: Request, out: TextIO | None
) -> Result:
    """Runs one prompt. out: where text goes as it comes, or ids where the blob carries no tokenizer; None: nowhere."""
    generation = Session(image, device).generate(prompt, request)
    has_text = generation.has_text
    for piece in generation:
        if out is not None:
            out.write(piece.text if has_text else f"{piece.token} ")
            out.flush()
    if out is not None:
        out.write("\n")
    return generation.finish()


def result_json(result: Result) -> str:
    """The JSON object of ``--json``: tokens, text (null without a tokenizer), stop_reason, stats."""
    document: dict[str, Any] = {
        "tokens": result.tokens,
        "text": result.text,
        "stop_reason": str(result.stop_reason),
        "stats": dataclasses.asdict(result.stats),
    }
    return json.dumps(document)


def save_logits(result: Result, file: BinaryIO) -> None:
    """Writes `prompt` [n, vocab] and `step` [k, vocab], float32, as the content of an .npz file."""
    assert result.prompt_logits is not None and result.step_logits is not None, "the logits were not asked for"
    np.savez(file, prompt=result.prompt_logits, step=result.step_logits)


def summary(result: Result) -> str:
    """One line for people about an answer's counts and host speed."""
    stats = result.stats
    line = f"{len(result.tokens)} tokens ({result.stop_reason}) after {stats.prompt_tokens} of prompt"
    line += f"; prompt {stats.prefill_seconds:.2f} s"
    if stats.fed_tokens:
        line += f", then {stats.fed_tokens / stats.generate_seconds:.1f} tokens/s"
    return line + " on this host, not on the NPU"
