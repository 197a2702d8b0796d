"""The steps of the graph pipeline in onnxruntime: the first one after which the graph gives other numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from npuc.compare.errors import OracleRefused
from npuc.compare.tolerance import Difference, Tolerance, measure
from npuc.graph.dump import stage_of
from npuc.graph.pipeline import ENTRY_STEPS, MODEL_STEPS
from npuc.graph.steps import Build

# `measure` and `caches` only look; `static` copies; what `recognise` leaves has no shapes yet and is run after `fold`
_NOT_RUN = ("measure", "static", "recognise", "caches")
MODEL_STAGES = tuple(step.name for step in MODEL_STEPS if step.name not in _NOT_RUN)
ENTRY_STAGES = tuple(step.name for step in ENTRY_STEPS if step.name not in _NOT_RUN)
_SHOWN = {"fold": "fold, or recognise before it,"}


@dataclass
class Watcher:
    """Looks over the pipeline's shoulder. build: the last seen. models: of the whole model after a step, if keep.
    entries: after a step, by label. Copies of graphs: their constants are shared."""

    keep: bool
    build: Build | None = None
    models: dict[str, ir.Model] = field(default_factory=dict)
    entries: dict[str, dict[str, ir.Model]] = field(default_factory=dict)

    def __call__(self, step: str, build: Build) -> None:
        self.build = build
        if not self.keep:
            return
        if step in MODEL_STAGES:
            self.models[step] = build.model.clone()
        elif step in ENTRY_STAGES:
            self.entries[step] = {draft.label: stage_of(draft) for draft in build.drafts}


@dataclass(frozen=True)
class StepFinding:
    """The first step that changes the result. part: which result; error: why the stage did not run, else ""."""

    step: str
    part: str = ""
    difference: Difference | None = None
    error: str = ""

    def __str__(self) -> str:
        name = _SHOWN.get(self.step, self.step)
        if self.difference is None:
            return f"step {name} gives a graph that does not run: {self.error}"
        return f"step {name} changes the result: {self.part} {list(self.difference.shape)}: {self.difference}"


Parts = Mapping[str, np.ndarray]
ModelRun = Callable[[ir.Model, str], Parts]
EntriesRun = Callable[[Mapping[str, ir.Model], str], Parts]


def first_changing_step(
    watcher: Watcher, run_model: ModelRun, run_entries: EntriesRun, wanted: Parts, tolerance: Tolerance
) -> StepFinding | None:
    """The first stage that gives something else than `wanted`. The last stage runs before the others, which need not
    run where it is right."""

    def finding(step: str) -> StepFinding | None:
        try:
            if step in MODEL_STAGES:
                found = run_model(watcher.models[step], step)
            else:
                found = run_entries(watcher.entries[step], step)
        except OracleRefused as refused:
            return StepFinding(step, error=str(refused))
        for part, want in wanted.items():
            difference = measure(found[part], want, tolerance)
            if not difference.within:
                return StepFinding(step, part, difference)
        return None

    steps = (*MODEL_STAGES, *ENTRY_STAGES)
    last = finding(steps[-1])
    if last is None:
        return None
    return next((found for step in steps[:-1] if (found := finding(step)) is not None), last)
