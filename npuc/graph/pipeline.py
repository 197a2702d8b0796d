"""From a model to its entries: one list of named steps, each timed and verified, each of which can be dumped."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import onnx_ir as ir

from npuc.frontend import LoadedModel, load
from npuc.graph.append import check_caches, cut_to_new_rows, state_specs
from npuc.graph.caches import check_cache_readers
from npuc.graph.clean import clean, remove_dead
from npuc.graph.dims import InputDims, input_dims
from npuc.graph.dump import dump_draft, dump_model
from npuc.graph.entry import LlmInfo, ModelGraphs
from npuc.graph.expand.table import expand
from npuc.graph.fold import fold
from npuc.graph.functions import add_functions
from npuc.graph.fuse.attention_softmax import SoftmaxAttentionRule
from npuc.graph.fuse.gelu import GeluRule
from npuc.graph.fuse.norms import NormRule
from npuc.graph.fuse.rotary import RotaryRule
from npuc.graph.fuse.rule import Proofs, Refusal, Rule, Scope, apply_rules
from npuc.graph.head import HIDDEN, LOGITS, cut_body, find_cut, head_of
from npuc.graph.infer import Inference
from npuc.graph.nodes import dims
from npuc.graph.normalise import normalise
from npuc.graph.options import BuildOptions, OptionError
from npuc.graph.ports import IDS, entry_graph, name_outputs, order_inputs
from npuc.graph.recognise.analyse import StepValues, constants, step_values, uses_by_name
from npuc.graph.recognise.apply import apply_meanings
from npuc.graph.recognise.classify import Meaning
from npuc.graph.recognise.probe import Point
from npuc.graph.roles import Roles, find_roles
from npuc.graph.sizes import Bound, Sizes, choose_sizes, wanted_positions
from npuc.graph.state import state_to_arguments
from npuc.graph.state_class import StateClass, classify
from npuc.graph.state_info import StateInfo
from npuc.graph.static import Draft, drop_step_inputs, llm_drafts, main_draft
from npuc.graph.verify import verify_folded, verify_static, verify_structure

BODY_RULES: tuple[Rule, ...] = (NormRule(), GeluRule())
ROTARY_RULES: tuple[Rule, ...] = (RotaryRule(),)
ATTENTION_RULES: tuple[Rule, ...] = (SoftmaxAttentionRule(),)


@dataclass
class Build:
    """A build on its way: what the steps have found so far. The parts from `roles` on are of language models."""

    model: ir.Model
    options: BuildOptions
    report: list[str] = field(default_factory=list)
    inference: Inference = field(default_factory=Inference)
    proofs: Proofs = field(default_factory=Proofs)
    states: list[StateInfo] = field(default_factory=list)
    classes: list[StateClass] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    llm: LlmParts | None = None


@dataclass
class LlmParts:
    """What is known of a language model. cut: name of the value between body and head, hidden: its width."""

    roles: Roles
    dims: InputDims
    step_values: StepValues
    sizes: Sizes
    meanings: dict[str, Meaning]
    cut: str = ""
    hidden: int = 0
    vocab: int = 0
    refusals: list[Refusal] = field(default_factory=list)


# --- steps on the whole model ---------------------------------------------------------------------------------------


def _state(build: Build) -> None:
    """State becomes arguments and results."""
    build.model, build.states = state_to_arguments(build.model, build.options.state_rows)


def _normalise(build: Build) -> None:
    """One operator set, constants as initializers, a name for every node."""
    build.model = normalise(build.model)


def _expand(build: Build) -> None:
    """Fused operators of exporters are written out in standard ones."""
    count = expand(build.model)
    if count:
        build.report.append(f"{count} fused operators of the exporter written out")
    build.classes = classify(build.states, build.model)


def _measure(build: Build) -> None:
    """A language model's inputs get their roles, its positions and masks their meaning, its graphs their sizes."""
    options, report = build.options, build.report
    roles = find_roles(build.model, build.states, options.llm)
    if roles is None:
        return
    check_caches(build.states, build.classes)
    dims_ = input_dims(build.model.graph, roles, options, build.inference, report)
    values = step_values(dims_, build.inference)
    bounds = [] if options.max_positions is None else [Bound(options.max_positions, "the model's configuration allows")]
    table = values.position_bound(wanted_positions(options, bounds))
    sizes = choose_sizes(options, bounds + ([table] if table else []), dims_.fixed_rows, report)
    meanings = values.meanings(sizes, table.rows if table else None, report)
    build.llm = LlmParts(roles, dims_, values, sizes, meanings)


def _static(build: Build) -> None:
    """A copy for each entry."""
    if build.llm is None:
        build.drafts = [main_draft(build.model, build.states, build.options)]
    else:
        build.drafts = llm_drafts(build.model, build.llm.dims, build.llm.sizes)


# --- steps on each entry --------------------------------------------------------------------------------------------


def _recognise(build: Build, draft: Draft) -> None:
    """Tables, masks and constants take the place of values that follow from the step alone."""
    if build.llm is None or draft.n_past is None:
        return
    llm = build.llm
    uses = uses_by_name(llm.step_values.frontier)
    held = constants(llm.step_values, llm.meanings, Point(draft.capacity, draft.rows))
    apply_meanings(draft.graph, uses, llm.meanings, held, draft.n_past, draft.rows, draft.capacity)
    remove_dead(draft.graph)  # what lies behind the frontier may not fold, and need not


def _fold(build: Build, draft: Draft) -> None:
    """Constants and shape arithmetic are computed; every value gets its type and static shape."""
    fold(draft.graph, draft.shapes, build.inference)
    if build.llm is not None:
        drop_step_inputs(draft, build.llm.roles.inputs)


def _cut(build: Build, draft: Draft) -> None:
    """Caches give their new rows alone; body and head part."""
    llm = build.llm
    if llm is None:
        return
    if not llm.cut:
        llm.cut = find_cut(draft.graph, llm.roles.logits, draft.rows)
        llm.vocab = dims(next(v for v in draft.graph.outputs if v.name == llm.roles.logits))[-1]
    if draft is build.drafts[-1]:
        build.drafts.append(head_of(draft, llm.cut, llm.roles.logits))
    cut_to_new_rows(draft.graph, build.states, build.classes)
    llm.hidden = cut_body(draft, llm.cut, llm.roles.logits)


def _clean(build: Build, draft: Draft) -> None:
    """What changes nothing goes."""
    clean(draft.graph)


def _rules(rules: Sequence[Rule]) -> Callable[[Build, Draft], None]:
    def step(build: Build, draft: Draft) -> None:
        scope = Scope(draft.graph, draft.rows, build.proofs, draft.n_past)
        fired, refusals = apply_rules(rules, scope)
        remove_dead(draft.graph)
        build.report.extend(f"{draft.label}: {name} x {count}" for name, count in fired.items())
        if build.llm is not None:
            build.llm.refusals.extend(refusals)

    return step


def _check_caches(build: Build, draft: Draft) -> None:
    """Only attention may read a cache: it alone knows which slots are filled."""
    if build.llm is not None:
        check_cache_readers(draft, build.llm.refusals)


def _ports(build: Build, draft: Draft) -> None:
    """Inputs and outputs in their order and under their names; bodies of npuc's operators."""
    name_outputs(draft)
    if build.llm is not None and draft.name != "head":
        order_inputs(draft, build.llm.roles.ids, [s.input for s in build.states if s.input is not None])
    add_functions(draft.model)
    verify_folded(draft.graph, "ports")


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
    ModelStep("state", _state),  # first: stock passes delete an Assign and merge two ReadValues across one
    ModelStep("normalise", _normalise),
    ModelStep("expand", _expand),  # before measure, which runs what positions and masks are made of
    ModelStep("measure", _measure),  # on the dynamic graph, which can be run for any number of past tokens
    ModelStep("static", _static),
)

ENTRY_STEPS = (
    EntryStep("recognise", _recognise, static=False),  # before fold, which takes the capacity for n_past
    EntryStep("fold", _fold),
    EntryStep("cut", _cut),  # before clean, which replaces the values that the cuts are known by
    EntryStep("clean", _clean),
    EntryStep("rotary", _rules(ROTARY_RULES)),  # before attention, whose queries and keys start behind it
    EntryStep("attention", _rules(ATTENTION_RULES)),
    EntryStep("caches", _check_caches),
    EntryStep("norms", _rules(BODY_RULES)),
    EntryStep("tidy", _clean),
    EntryStep("ports", _ports),
)

STEP_NAMES = tuple(step.name for step in (*MODEL_STEPS, *ENTRY_STEPS))


def build(
    model: str | PathLike[str] | LoadedModel | ir.Model,
    options: BuildOptions | None = None,
    *,
    dump_after: Sequence[str] = (),
    dump_dir: str | PathLike[str] | None = None,
    stop_after: str | None = None,
) -> ModelGraphs:
    """The static graphs of a model.

    model: a file, an exported folder, or a model in memory, which stays as it is. dump_after: steps (STEP_NAMES, or
    "all") after which graphs are saved to dump_dir as `<step>.onnx` or `<step>.<entry>.onnx`. stop_after: the last step
    to run; what it leaves comes back unfinished. Raises ModelRefused for the model, OptionError for the options.
    """
    for name in (*dump_after, *([stop_after] if stop_after else [])):
        if name not in STEP_NAMES and name != "all":
            raise OptionError(f"there is no step {name!r}; the steps are {', '.join(STEP_NAMES)}")
    if not isinstance(model, (LoadedModel, ir.Model)):
        model = load(model)
    work = Build(model.model if isinstance(model, LoadedModel) else model, options or BuildOptions())
    with _collection_paused():
        timings = _run(work, dump_after, Path(dump_dir) if dump_dir is not None else None, stop_after)
    return _result(work, timings, finished=stop_after in (None, STEP_NAMES[-1]))


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Graphs are large cyclic structures that live to the end: looking for garbage in them takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(work: Build, dump_after: Sequence[str], folder: Path | None, stop_after: str | None) -> dict[str, float]:
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
    entries = [entry_graph(draft) for draft in work.drafts]
    if not finished:
        return ModelGraphs(entries, [], None, work.report, timings)
    rows = work.llm.sizes.physical_rows if work.llm is not None else 0
    states = state_specs(work.states, work.classes, work.drafts[0].graph, rows)
    info = None
    if work.llm is not None:
        llm, sizes = work.llm, work.llm.sizes
        limits = (sizes.chunk, sizes.max_prompt_len, sizes.capacities)
        info = LlmInfo(llm.vocab, llm.hidden, *limits, ids=IDS, hidden_value=HIDDEN, logits=LOGITS)
    return ModelGraphs(entries, states, info, work.report, timings)
