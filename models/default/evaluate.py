"""The figures of a trained model: held-out bits per character, and how many sampled words are words of the text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .corpus import Corpus, lines, words
from .net import Net
from .sample import Next, generate
from .shape import BOS

MAX_BITS = 2.2
"""Most held-out bits per character that the recipe accepts."""
MIN_SHARE = 0.95
"""Fewest sampled words, as a share, that must be words of the training text."""
PROMPT = "In the beginning"
SAMPLE_SEED = 7


def following(net: Net) -> Next:
    """Next-token logits from the torch network, without a cache."""

    def call(tokens: Sequence[int]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(net(torch.tensor([list(tokens)]))[0, -1].numpy(), np.float32)

    return call


def bits_per_character(net: Net, tok: Tokenizer, documents: list[list[str]]) -> float:
    """Over whole chapters, in windows of `positions` tokens (`<s>` first) that move by half a window.

    From the second window on only its second half counts, so each token is scored once and with at least half a
    window before it. The line end after each verse counts as a character.
    """
    length = net.shape.positions
    nats, characters = 0.0, 0
    for verses in documents:
        text = lines([verses])
        ids = tok.encode(text, add_special_tokens=False).ids
        characters += len(text)
        done = 0
        while done < len(ids):
            start = max(0, done - length // 2)
            window = ids[start : start + length]
            with torch.no_grad():
                logits = net(torch.tensor([[BOS, *window[:-1]]]))[0]
            skip = done - start
            nats += F.cross_entropy(logits[skip:], torch.tensor(window[skip:]), reduction="sum").item()
            done = start + len(window)
    return nats / math.log(2) / characters


def word_share(text: str, known: set[str]) -> float:
    """The share of the words of `text` that are in `known`."""
    found = words(text)
    return sum(w in known for w in found) / max(1, len(found))


def report(net: Net, tok: Tokenizer, parts: Corpus) -> None:
    """Prints the figures and a sample; fails where one misses its mark."""
    net.eval()
    bits = bits_per_character(net, tok, parts.held_out)
    print(f"held-out bits per character: {bits:.3f} (at most {MAX_BITS})")
    known, prompt, call = set(words(lines(parts.train))), tok.encode(PROMPT).ids, following(net)
    shares, first = [], ""
    for seed in range(SAMPLE_SEED, SAMPLE_SEED + 10):
        new = generate(call, prompt, 200, np.random.default_rng(seed), stop=False)
        text = tok.decode([*prompt, *new])
        first = first or text
        shares.append(word_share(text, known))
    print(
        f"known words in a sample of 200 tokens: {shares[0]:.1%} (at least {MIN_SHARE:.0%}); "
        f"in ten samples: {np.mean(shares):.1%}, the worst {min(shares):.1%}"
    )
    print("---", first, "---", sep="\n")
    if bits > MAX_BITS or shares[0] < MIN_SHARE:
        raise SystemExit("the model misses its marks")


def write_reference(net: Net, tok: Tokenizer, path: Path) -> None:
    """What the tests compare the exported model with: prompts, the logits of their last rows, greedy tokens.

    Arrays of prompt n: prompt_n [length] int64, logits_n [2, vocab] f32 (the last two rows), greedy_n [24] int64.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for n, text in enumerate([PROMPT, "And Jesus said unto them,", "The LORD is my shepherd; I shall"]):
        ids = tok.encode(text).ids
        with torch.no_grad():
            arrays[f"logits_{n}"] = net(torch.tensor([ids]))[0, -2:].numpy()
        arrays[f"prompt_{n}"] = np.array(ids)
        arrays[f"greedy_{n}"] = np.array(generate(following(net), ids, 24, stop=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
