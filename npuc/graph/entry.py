"""What the graph level hands to lowering: one static, fused ONNX graph per entry, and the states all entries share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from npurt.abi.dtypes import DType

if TYPE_CHECKING:
    import onnx_ir as ir

StateKind = Literal["append", "ring", "replace", "read_only", "write_only"]
EntryName = Literal["prefill", "generate", "head", "main"]


@dataclass(frozen=True)
class StateSpec:
    """A value that lives on the device between runs.

    id: the variable's name, unique in a model.
    shape: physical and static. An append state of a language model is [1, G, rows, D] with rows = largest capacity +
        max(C, 1) - 1; in a plain graph it has the rows of `--state-rows` along any axis.
    dtype: element type in memory. (Lowering may store a float state narrower; this is what the graph says.)
    kind: "append" (rows are added along row_axis), "ring" (so, too, and token i lies in row i modulo the rows),
        "replace" (a whole new value per run), "read_only", "write_only".
    initial: the value before the first run in the state's shape, or None for zeros.
    input: name of the graph input that holds the value before a run, None for write_only.
    output: name of the graph output with the new rows (append, ring) or the new value, None for read_only. New rows
        of a plain graph go behind the rows that the entry's input has, those of a language model to row n_past.
    why: the proof of the kind, one sentence for the report.
    """

    id: str
    shape: tuple[int, ...]
    dtype: DType
    kind: StateKind
    row_axis: int | None
    initial: np.ndarray | None
    input: str | None
    output: str | None
    why: str

    @property
    def gains_rows(self) -> bool:
        """Whether its output holds new rows, and not its whole next value."""
        return self.kind in ("append", "ring")


@dataclass(frozen=True)
class PortSpec:
    """A graph input or output: its name, static shape and onnx.TensorProto element type."""

    name: str
    shape: tuple[int, ...]
    onnx_dtype: int


@dataclass(frozen=True)
class EntryGraph:
    """One static graph that the device can run.

    rows: rows of a run: the chunk C for prefill; 1 for generate and head, or those that the model was exported with, of
        which the first counts; for main those that a run adds to its growing
        states (0: none grows).
    capacity: slots of the past that the graph's cache inputs have (0: the graph reads none); for main the rows that
        earlier runs have added.
    model: the graph; every value has a static shape and a type. It runs in onnxruntime as saved.
    part: its number among the parts of a graph that steps of the host cut, None for a whole one.
    """

    name: EntryName
    rows: int
    capacity: int
    model: ir.Model
    inputs: list[PortSpec]
    outputs: list[PortSpec]
    part: int | None = None

    @property
    def label(self) -> str:
        """Name of the entry in a blob."""
        whole = entry_label(self.name, self.capacity)
        return whole if self.part is None else f"{whole}.part{self.part}"


def entry_label(name: EntryName, capacity: int) -> str:
    """``prefill``, ``generate.<capacity>``, ``head``, ``main``; for later runs of growing states ``main.<rows>``."""
    return f"{name}.{capacity}" if name == "generate" or (name == "main" and capacity) else name


@dataclass(frozen=True)
class LlmInfo:
    """The numbers of a language model that sessions need.

    ids, hidden_value, logits: names of the token ids input, of the value between body and head, of the logits output.
    whole_runs: each run must have all its rows valid: a state that it replaces would take padding in.
    """

    vocab: int
    hidden: int
    chunk: int
    max_prompt_len: int
    capacities: tuple[int, ...]
    ids: str
    hidden_value: str
    logits: str
    whole_runs: bool = False


@dataclass(frozen=True)
class ModelGraphs:
    """Everything lowering needs of a model: entries, the states they share, and report lines for people.

    timings: seconds per pipeline step, in order.
    """

    entries: list[EntryGraph]
    states: list[StateSpec]
    llm: LlmInfo | None
    report: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    def entry(self, label: str) -> EntryGraph:
        """The entry with this label; KeyError names the labels there are."""
        for entry in self.entries:
            if entry.label == label:
                return entry
        raise KeyError(f"no entry {label!r}; this model has {', '.join(entry.label for entry in self.entries)}")
