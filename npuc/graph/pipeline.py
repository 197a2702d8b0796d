"""From a model to its entries: one list of named steps, each timed and verified, each of which can be dumped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import onnx_ir as ir

from npuc.frontend import LoadedModel, load
from npuc.graph import steps
from npuc.graph.append import state_specs
from npuc.graph.dump import dump_draft, dump_model
from npuc.graph.entry import LlmInfo, ModelGraphs
from npuc.graph.fuse.attention_softmax import SoftmaxAttentionRule
from npuc.graph.fuse.gelu import GeluRule
from npuc.graph.fuse.norms import NormRule
from npuc.graph.fuse.rotary import RotaryRule
from npuc.graph.head import HIDDEN, LOGITS
from npuc.graph.options import BuildOptions, OptionError
from npuc.graph.ports import IDS, entry_graph
from npuc.graph.static import Draft
from npuc.graph.steps import Build
from npuc.graph.verify import verify_static, verify_structure
from npuc.graph.windows import needs_whole_runs
from npurt.collector import collection_paused


@dataclass(frozen=True)
class ModelStep:
    """A step on the whole model. name: for --dump-after and --stop-after."""

    name: str
    run: Callable[[Build], None]


@dataclass(frozen=True)
class EntryStep:
    """A step on each entry. static: whether every value must be static and typed after it."""

    name: str
    run: Callable[[Build, Draft], None]
    static: bool = True


MODEL_STEPS = (
    ModelStep("state", steps.split_state),  # first: stock passes delete an Assign and merge two ReadValues across one
    ModelStep("bodies", steps.write_out_definitions),  # before normalise: bodies are of the model's own operator set
    ModelStep("normalise", steps.say_in_one_set),
    ModelStep("weights", steps.dequantise_weights),  # once for all entries, which share the constants
    ModelStep("expand", steps.write_out),  # before measure, which runs what positions and masks are made of
    ModelStep("experts", steps.say_experts),  # before all that asks for sizes, which its parts take from data
    ModelStep("measure", steps.measure),  # on the dynamic graph, which can be run for any number of past tokens
    ModelStep("static", steps.copy_for_entries),
)

ENTRY_STEPS = (
    EntryStep("recognise", steps.recognise, static=False),  # before fold, which takes the capacity for n_past
    EntryStep("fold", steps.fold_constants),
    EntryStep("codes", steps.write_out_codes),  # behind fold, for scales of channels and blocks follow the shapes
    EntryStep("cut", steps.cut),  # before clean, which replaces the values that the cuts are known by
    EntryStep("clean", steps.tidy),
    EntryStep("rotary", steps.fuse(RotaryRule())),  # before attention, whose queries and keys start behind it
    EntryStep("attention", steps.fuse(SoftmaxAttentionRule())),
    EntryStep("plain", steps.run_other_attention),
    EntryStep("caches", steps.check_caches_are_fused),
    EntryStep("norms", steps.fuse(NormRule(), GeluRule())),
    EntryStep("tidy", steps.tidy),
    EntryStep("ports", steps.name_ports),
)

STEP_NAMES = tuple(step.name for step in (*MODEL_STEPS, *ENTRY_STEPS))
Watch = Callable[[str, Build], None]


def build(
    model: str | PathLike[str] | LoadedModel | ir.Model,
    options: BuildOptions | None = None,
    *,
    dump_after: Sequence[str] = (),
    dump_dir: str | PathLike[str] | None = None,
    stop_after: str | None = None,
    watch: Watch | None = None,
) -> ModelGraphs:
    """The static graphs of a model.

    model: a file, an exported folder, or a model in memory, which stays as it is. dump_after: steps (STEP_NAMES, or
    "all") after which graphs are saved to dump_dir as `<step>.onnx` or `<step>.<entry>.onnx`. stop_after: the last step
    to run; what it leaves comes back unfinished. watch: called after each step with its name and the build, which it
    must leave as it is. Raises ModelRefused for the model, OptionError for the options.
    """
    for name in (*dump_after, *([stop_after] if stop_after else [])):
        if name not in STEP_NAMES and name != "all":
            raise OptionError(f"there is no step {name!r}; the steps are {', '.join(STEP_NAMES)}")
    if not isinstance(model, (LoadedModel, ir.Model)):
        model = load(model)
    work = Build(model.model if isinstance(model, LoadedModel) else model, options or BuildOptions())
    # graphs are large, cyclic and live to the end: looking for garbage in them costs a quarter of the time
    with collection_paused():
        timings = _run(work, dump_after, Path(dump_dir) if dump_dir is not None else None, stop_after, watch)
    return _result(work, timings, finished=stop_after in (None, STEP_NAMES[-1]))


def _run(
    work: Build, dump_after: Sequence[str], folder: Path | None, stop_after: str | None, watch: Watch | None
) -> dict[str, float]:
    """Runs the steps; seconds by step."""
    timings: dict[str, float] = {}
    for step in (*MODEL_STEPS, *ENTRY_STEPS):
        start = time.perf_counter()
        if isinstance(step, ModelStep):
            step.run(work)
        else:
            for draft in list(work.drafts):  # cutting adds the head
                step.run(work, draft)
                verify_structure(draft.graph, step.name)
                if step.static:
                    verify_static(draft.graph, step.name)
        timings[step.name] = time.perf_counter() - start
        if folder is not None and (step.name in dump_after or "all" in dump_after):
            _dump(work, step, folder)
        if watch is not None:
            watch(step.name, work)
        if step.name == stop_after:
            break
    return timings


def _dump(work: Build, step: ModelStep | EntryStep, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(step, ModelStep) and not work.drafts:
        dump_model(work.model, folder / f"{step.name}.onnx")
    for draft in work.drafts:
        dump_draft(draft, folder / f"{step.name}.{draft.label}.onnx")


def _result(work: Build, timings: dict[str, float], finished: bool) -> ModelGraphs:
    if not finished:
        static = [
            draft
            for draft in work.drafts
            if all(v.shape is not None and v.shape.is_static() for v in draft.graph.outputs)
        ]
        return ModelGraphs([entry_graph(draft) for draft in static], [], None, work.report, timings)
    entries = [entry_graph(draft) for draft in work.drafts]
    rows = work.llm.sizes.physical_rows if work.llm is not None else None
    physical = {state.id: rows if rows is not None else state.max_rows or 0 for state in work.states}
    rings = work.llm.rings or {} if work.llm is not None else {}
    states = state_specs(work.states, work.classes, work.drafts[0].graph, physical, rings)
    info = None
    if work.llm is not None:
        llm, sizes = work.llm, work.llm.sizes
        limits = (sizes.chunk, sizes.max_prompt_len, sizes.capacities)
        whole = needs_whole_runs(work.classes)
        info = LlmInfo(llm.vocab, llm.hidden, *limits, ids=IDS, hidden_value=HIDDEN, logits=LOGITS, whole_runs=whole)
    return ModelGraphs(entries, states, info, work.report, timings)
