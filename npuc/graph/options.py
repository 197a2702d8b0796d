"""What a user can ask of the graph level. `None` means: the default, which the model's own limits may shrink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

DEFAULT_MAX_PROMPT_LEN = 1024
DEFAULT_MIN_RESPONSE_LEN = 128
DEFAULT_CHUNK = 128
DEFAULT_WHOLE_CHUNK = 16
"""Of models whose chunks must be whole: the rest of a prompt, up to this less one, goes row by row."""
MAX_TOKENS = 1 << 17
"""Most rows of a cache: each is tried, since masks and position tables are proven by evaluation."""


class OptionError(ValueError):
    """An option asks for what the model cannot give. The message names the option, the bound and what sets it."""

    exit_code = 2


@dataclass(frozen=True)
class BuildOptions:
    """Sizes of the static graphs. Batch is 1.

    max_prompt_len: longest prompt in tokens (default 1024). min_response_len: tokens that fit after the longest prompt
    (default 128). chunk: rows of the prefill entry (default 128). capacities: cache slots of each generate entry
    (default: a small one and max_prompt_len + min_response_len). dims: values of named dims (`--dim NAME=VALUE`).
    state_rows: rows of a growing variable in a graph that is no language model (`--state-rows ID=ROWS`).
    max_positions: positions the model was made for, where its files say so. llm: False compiles a language model's
    graph as a plain one; None decides by its inputs and outputs. kept_ops: (domain, operator) of functions of the model
    that are not written out, because a kernel computes them. per_channel: weights with scales for groups are quantised
    again with one for each channel. values: of inputs that become constants, by name
    (`--value NAME=NUMBERS`): shapes, axes and counts, which a static program must know.
    """

    max_prompt_len: int | None = None
    min_response_len: int | None = None
    chunk: int | None = None
    capacities: tuple[int, ...] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    state_rows: Mapping[str, int] = field(default_factory=dict)
    max_positions: int | None = None
    llm: bool | None = None
    kept_ops: frozenset[tuple[str, str]] = frozenset()
    per_channel: bool = False
    values: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_prompt_len", "min_response_len", "chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; it must be at least 1")
            if value is not None and value > MAX_TOKENS and name != "chunk":  # the prompt bounds a chunk
                raise OptionError(f"{name} is {value}; it must be at most {MAX_TOKENS}")
        for capacity in self.capacities or ():
            if capacity < 1:
                raise OptionError(f"a capacity is {capacity}; it must be at least 1")
            if capacity > MAX_TOKENS:
                raise OptionError(f"a capacity is {capacity}; it must be at most {MAX_TOKENS}")
        for name, value in (*self.dims.items(), *self.state_rows.items()):
            if value < 0:
                raise OptionError(f"the value of {name} is {value}; it must not be negative")
