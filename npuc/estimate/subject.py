"""The model that an estimate is about: its canonical graphs for the asked sizes, and its constants by shape alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from npuc.estimate.plan import Plan
from npuc.estimate.weights import Weights, initializers_of, weights_of
from npuc.frontend import LoadedModel, check_model, load
from npuc.frontend.configuration import CONFIG, max_positions
from npuc.graph.entry import ModelGraphs, StateSpec, entry_label
from npuc.graph.options import (
    DEFAULT_CHUNK,
    DEFAULT_MAX_PROMPT_LEN,
    DEFAULT_MIN_RESPONSE_LEN,
    BuildOptions,
    OptionError,
)
from npuc.graph.pipeline import Watch, build
from npuc.graph.steps import Build
from npuc.progress import Report, silent


@dataclass(frozen=True)
class Sizes:
    """What is asked; None: 1,024 tokens of prompt, 128 new ones, chunks of 128, or what the model allows of these.
    dims, state_rows: as for `npuc compile`."""

    prompt: int | None = None
    tokens: int | None = None
    chunk: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    state_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """plans: by entry label. prompt, tokens: as used; 0 for a graph that is no language model. absent: weights without
    data. notes: what the user should know of the sizes."""

    name: str
    graphs: ModelGraphs
    plans: Mapping[str, Plan]
    weights: Weights
    prompt: int
    tokens: int
    absent: int
    notes: tuple[str, ...]

    def plan(self, name: str) -> Plan:
        """Of "prefill", "head" or "main"; of "generate" that with the largest cache."""
        return self.plans[self.label(name)]

    def label(self, name: str) -> str:
        """The same entry's label."""
        if name != "generate" or self.graphs.llm is None:
            return name
        return entry_label("generate", self.graphs.llm.capacities[-1])

    @property
    def caches(self) -> list[StateSpec]:
        """States that gain a row a token."""
        return [state for state in self.graphs.states if state.kind == "append" and state.row_axis is not None]


def subject(path: str | Path, sizes: Sizes, report: Report = silent) -> Subject:
    """Reads a model, whose weights may lack their data, and builds its graphs; no weight is read.

    Raises ModelRefused for the model and OptionError for sizes that it cannot have. Sizes beyond the positions of its
    configuration give a note: the caches do not know.
    """
    report("reading the model", None)
    loaded = load(path, values=False)
    check_model(loaded)
    positions = _positions(loaded)
    prompt, tokens, notes = _wanted(sizes, positions)
    roots: dict[str, str] = {}

    def watch(step: str, state: Build) -> None:
        report(f"graph, {step} done", None)
        if step == "expand":  # the last step of the whole model; later ones know constants by the views of them
            roots.update(initializers_of(state.model))

    graphs = _graphs(loaded, sizes, prompt, tokens, watch)
    plans = {entry.label: Plan(entry) for entry in graphs.entries}
    weights = weights_of(list(plans.values()), roots)
    llm = graphs.llm
    if llm is None:
        return Subject(loaded.name, graphs, plans, weights, 0, 0, len(loaded.absent), ())
    used = min(prompt, llm.max_prompt_len)
    left = min(tokens, llm.capacities[-1] - used + 1)
    if (used, left) != (prompt, tokens):
        notes.append(f"the model allows {llm.capacities[-1]} tokens: {used} of prompt and {left} new ones are taken")
    return Subject(loaded.name, graphs, plans, weights, used, left, len(loaded.absent), tuple(notes))


def state_bytes(state: StateSpec, item: int) -> int:
    """With all its rows; item: of a float."""
    return prod(state.shape) * (item if state.dtype.is_float else state.dtype.nbytes)


def _positions(loaded: LoadedModel) -> int | None:
    asset = loaded.assets.get(CONFIG)
    if asset is None:
        return None
    return max_positions({CONFIG: asset if isinstance(asset, bytes) else asset.read_bytes()})


def _wanted(sizes: Sizes, positions: int | None) -> tuple[int, int, list[str]]:
    """Prompt and tokens; defaults shrink to the positions of the configuration, what is given does not."""
    prompt, tokens = sizes.prompt or DEFAULT_MAX_PROMPT_LEN, sizes.tokens or DEFAULT_MIN_RESPONSE_LEN
    if positions is None or prompt + tokens <= positions:
        return prompt, tokens, []
    if sizes.prompt is None:
        shrunk = positions - (tokens if sizes.tokens is not None else min(tokens, max(1, positions // 2)))
        if shrunk >= 1:
            new = positions - shrunk
            return (
                shrunk,
                new,
                [f"the model has {positions} positions: {shrunk} of prompt and {new} new ones are taken"],
            )
    elif sizes.tokens is None and prompt < positions:
        return (
            prompt,
            positions - prompt,
            [f"the model has {positions} positions: {positions - prompt} new ones behind the prompt are taken"],
        )
    return prompt, tokens, [
        f"{prompt} and {tokens} tokens are beyond the {positions} positions that the model's configuration allows"
    ]  # fmt: skip


def _graphs(loaded: LoadedModel, sizes: Sizes, prompt: int, tokens: int, watch: Watch) -> ModelGraphs:
    least = BuildOptions(chunk=sizes.chunk, dims=sizes.dims, state_rows=sizes.state_rows)
    chunk = sizes.chunk or min(DEFAULT_CHUNK, prompt)
    try:
        asked = replace(least, max_prompt_len=prompt, chunk=chunk, capacities=(prompt + tokens,))
        return build(loaded, asked, watch=watch)
    except OptionError:
        if sizes.prompt is not None or sizes.tokens is not None:
            raise
    return build(loaded, least, watch=watch)  # a table of positions in the graph is shorter: defaults shrink to it
