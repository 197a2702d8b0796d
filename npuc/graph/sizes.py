"""The sizes of a language model's static graphs: chunk, prompt limit, capacities, and how they bound each other."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.graph.options import (
    DEFAULT_CHUNK,
    DEFAULT_MAX_PROMPT_LEN,
    DEFAULT_MIN_RESPONSE_LEN,
    DEFAULT_WHOLE_CHUNK,
    BuildOptions,
    OptionError,
)

_STEP = 64
"""Default capacities are multiples of this, where nothing bounds them."""


@dataclass(frozen=True)
class Bound:
    """A limit of the model and what sets it, for messages."""

    rows: int
    reason: str


@dataclass(frozen=True)
class Sizes:
    """chunk: rows of prefill. max_prompt_len: tokens. capacities: cache slots of the generate entries, ascending."""

    chunk: int
    max_prompt_len: int
    capacities: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """Slots of the cache; a prompt of P tokens gives capacity - P + 1 new ones."""
        return self.capacities[-1]

    @property
    def prefill_capacity(self) -> int:
        """Past slots that prefill can read: those that are full before the last chunk of the longest prompt."""
        return (self.max_prompt_len - 1) // self.chunk * self.chunk

    @property
    def physical_rows(self) -> int:
        """Rows of a cache buffer: a chunk that starts at the last slot may write past it."""
        return self.capacity + self.chunk - 1


def wanted_positions(options: BuildOptions, bounds: list[Bound]) -> int:
    """Positions that the options ask for, as far as the bounds known before any table has been looked at allow them."""
    prompt = options.max_prompt_len or DEFAULT_MAX_PROMPT_LEN
    wanted = max(options.capacities or (prompt + (options.min_response_len or DEFAULT_MIN_RESPONSE_LEN),))
    return min([max(wanted, prompt), *(bound.rows for bound in bounds)])


def choose_sizes(
    options: BuildOptions,
    bounds: list[Bound],
    fixed_rows: int | None,
    report: list[str],
    grows: bool = True,
    whole_runs: bool = False,
) -> Sizes:
    """Sizes from the options and the model's limits.

    bounds: largest capacities that parts of the model allow. fixed_rows: rows of a run that the graph has been exported
    with, None if it takes any number. grows: whether there is a cache; without one all capacities are one program, and
    the largest is kept. whole_runs: whether a chunk must have all its rows valid. Clamps of defaults and of the chunk
    are reported, one line each. Raises OptionError for an explicit prompt limit or capacity beyond a bound.
    """
    bound = min(bounds, key=lambda b: b.rows, default=None)
    prompt, response = _prompt_and_response(options, bound, report)
    capacities = _capacities(options, bound, prompt, response)
    chunk = options.chunk or min(DEFAULT_WHOLE_CHUNK if whole_runs else DEFAULT_CHUNK, prompt)
    if options.chunk is not None and chunk > prompt:
        report.append(f"chunk {chunk} is more than the prompt limit: {prompt} is used")
        chunk = prompt
    if fixed_rows is not None and chunk != fixed_rows:
        if options.chunk is not None:
            report.append(f"chunk {chunk}: the graph was exported with {fixed_rows} rows a run: {fixed_rows} is used")
        chunk = fixed_rows
    if not grows:
        capacities = capacities[-1:]
    return Sizes(chunk, prompt, capacities)


def _prompt_and_response(options: BuildOptions, bound: Bound | None, report: list[str]) -> tuple[int, int]:
    explicit = max(options.capacities) if options.capacities else None
    limit = explicit if explicit is not None else bound.rows if bound is not None else None
    prompt = options.max_prompt_len or DEFAULT_MAX_PROMPT_LEN
    response = options.min_response_len or (1 if explicit is not None else DEFAULT_MIN_RESPONSE_LEN)
    if bound is not None and (options.max_prompt_len or 0) > bound.rows:
        raise OptionError(f"max_prompt_len {prompt} is beyond the {bound.rows} tokens that {bound.reason}")
    if explicit is not None and (options.max_prompt_len or 0) > explicit:
        raise OptionError(f"max_prompt_len {prompt} is beyond the largest capacity, {explicit}")
    if limit is None or prompt + response - 1 <= limit:
        return prompt, response
    if options.max_prompt_len is None:
        response = min(response, max(1, limit // 2)) if options.min_response_len is None else min(response, limit)
        prompt = max(1, limit - response)
    else:
        response = limit - prompt + 1
    why = "the capacity" if explicit is not None or bound is None else bound.reason
    report.append(f"limited to {limit} tokens ({why}): prompts up to {prompt}, then {response} new tokens or more")
    return prompt, response


def _capacities(options: BuildOptions, bound: Bound | None, prompt: int, response: int) -> tuple[int, ...]:
    if options.capacities:
        capacities = tuple(sorted(set(options.capacities)))
        if bound is not None and capacities[-1] > bound.rows:
            raise OptionError(f"capacity {capacities[-1]} is beyond the {bound.rows} tokens that {bound.reason}")
        return capacities
    full = prompt + response
    if bound is not None:
        full = min(full, bound.rows)
    small = -(-(full // 4) // _STEP) * _STEP
    return (small, full) if 0 < small < full else (full,)
