"""What each step of the pipeline does, and what the steps know of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx_ir as ir

from npuc.graph.append import check_caches, cut_to_new_rows, release_growing_pairs
from npuc.graph.asked import check_dims, unused_llm_options
from npuc.graph.bodies import write_out_bodies
from npuc.graph.branches import join_branches, refuse_loops
from npuc.graph.caches import check_cache_readers
from npuc.graph.clean import clean, remove_dead
from npuc.graph.dims import InputDims, input_dims
from npuc.graph.edit import cloned
from npuc.graph.expand.table import expand
from npuc.graph.experts import apply as experts
from npuc.graph.experts.find import routers
from npuc.graph.experts.sizes import probe_shapes
from npuc.graph.fold import fold
from npuc.graph.functions import add_functions
from npuc.graph.fuse.region import graph_order
from npuc.graph.fuse.rule import Proofs, Refusal, Rule, Scope, apply_rules
from npuc.graph.given import give_inputs
from npuc.graph.growth import check_growth, plain_drafts
from npuc.graph.head import cut_body, find_cut, head_of
from npuc.graph.infer import Inference
from npuc.graph.liken import write_out_casts
from npuc.graph.nodes import dims
from npuc.graph.normalise import normalise
from npuc.graph.options import BuildOptions
from npuc.graph.plain.attention import run_as_written
from npuc.graph.plain.padding import neutral_padding
from npuc.graph.ports import name_outputs, order_inputs
from npuc.graph.quantised.caches import round_new_rows
from npuc.graph.quantised.plain import quantise_as_written
from npuc.graph.quantised.table import dequantise
from npuc.graph.recognise.analyse import StepValues, constants, step_values, uses_by_name
from npuc.graph.recognise.apply import apply_meanings
from npuc.graph.recognise.classify import Meaning
from npuc.graph.recognise.probe import Point
from npuc.graph.rings import find_rings, say_rings
from npuc.graph.roles import Role, Roles, find_roles, roles_by_operand
from npuc.graph.scatter import check_counts, find_fixed_caches
from npuc.graph.sizes import Bound, Sizes, choose_sizes, wanted_positions
from npuc.graph.state import state_to_arguments
from npuc.graph.state_class import StateClass, classify
from npuc.graph.state_info import StateInfo
from npuc.graph.static import Draft, drop_step_inputs, give_caches_their_capacity, llm_drafts
from npuc.graph.static_forms import write_out_static_forms
from npuc.graph.tokens import ids_input, is_plain
from npuc.graph.verify import verify_folded
from npuc.graph.windows import check_single_rows, needs_whole_runs, take_windows

_PROBE_PAST, _PROBE_ROWS = 4, 5  # tokens of the size at which experts are looked for


@dataclass
class Build:
    """A build on its way: what the steps have found so far. llm: None for a graph that is no language model."""

    model: ir.Model
    options: BuildOptions
    report: list[str] = field(default_factory=list)
    inference: Inference = field(default_factory=Inference)
    proofs: Proofs = field(default_factory=Proofs)
    states: list[StateInfo] = field(default_factory=list)
    classes: list[StateClass] = field(default_factory=list)
    known_roles: dict[str, Role] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    llm: LlmParts | None = None


@dataclass
class LlmParts:
    """What is known of a language model. cut: name of the value between body and head, hidden: its width. rings: slots
    of the states that are rings by the names of their inputs, None before attention has been recognised."""

    roles: Roles
    dims: InputDims
    step_values: StepValues
    sizes: Sizes
    meanings: dict[str, Meaning]
    cut: str = ""
    hidden: int = 0
    vocab: int = 0
    rings: dict[str, int] | None = None
    refusals: list[Refusal] = field(default_factory=list)


# --- steps on the whole model ---------------------------------------------------------------------------------------


def split_state(build: Build) -> None:
    """State becomes arguments and results."""
    check_dims(build.model, build.options)
    if build.options.values:
        build.model = cloned(build.model)
        give_inputs(build.model, build.options.values)
    kept = build.options.kept_ops
    build.model, build.states = state_to_arguments(build.model, build.options.state_rows, kept)
    build.inference.keep(build.model.functions.values())


def write_out_definitions(build: Build) -> None:
    """Operators without a rule of their own become what the standard defines them by."""
    count = write_out_bodies(build.model, llm=build.options.llm)
    if count:
        build.report.append(f"{count} operators written out by the standard's definitions")


def say_in_one_set(build: Build) -> None:
    """One operator set, constants as initializers, a name for every node."""
    join_branches(build.model)
    refuse_loops(build.model)
    build.model = normalise(build.model)
    if write_out_bodies(build.model, llm=build.options.llm, all_=True):
        build.model = normalise(build.model)


def dequantise_weights(build: Build) -> None:
    """Quantised weights become packed codes of one form, or constants of floats, computed when they are read."""
    plain = is_plain(build.model, build.options.llm)
    build.report.extend(round_new_rows(build.model.graph, build.states, build.inference))
    build.report.extend(dequantise(build.model, build.inference, plain=plain, per_channel=build.options.per_channel))


def write_out(build: Build) -> None:
    """Fused operators of exporters are written out in standard ones."""
    build.known_roles = roles_by_operand(build.model)
    count = expand(build.model)
    if count:
        build.report.append(f"{count} fused operators of the exporter written out")
    build.classes = classify(build.states, build.model)
    if build.options.llm is not False and ids_input(build.model) is not None:
        build.states, build.classes = find_fixed_caches(build.model, build.states, build.classes)


def say_experts(build: Build) -> None:
    """Mixtures of experts become one operator each, by proof on the graph at a small size."""
    graph, options = build.model.graph, build.options
    if not routers(graph):
        return
    roles = find_roles(build.model, build.states, options.llm, build.classes, build.known_roles)
    if roles is None:
        shapes = probe_shapes(graph, options)
    else:
        dims_ = input_dims(graph, roles, build.classes, options, build.inference, [])
        shapes = dims_.shapes(_PROBE_PAST, dims_.fixed_rows or _PROBE_ROWS)
    experts.say_experts(graph, shapes, build.inference, build.report)
    remove_dead(graph)


def measure(build: Build) -> None:
    """A language model's inputs get their roles, its positions and masks their meaning, its graphs their sizes."""
    options, report = build.options, build.report
    roles = find_roles(build.model, build.states, options.llm, build.classes, build.known_roles)
    if roles is None:
        return
    check_caches(build.states, build.classes)
    dims_ = input_dims(build.model.graph, roles, build.classes, options, build.inference, report)
    check_single_rows(build.classes, dims_.fixed_rows)
    whole_runs = needs_whole_runs(build.classes)
    if whole_runs and dims_.fixed_rows is None:
        report.append(
            "a state is replaced by each run and would take padding in: chunks are run where all their rows are valid, "
            "and the rest of a prompt row by row"
        )
    values = step_values(dims_, build.inference, build.classes)
    bounds = [] if options.max_positions is None else [Bound(options.max_positions, "the model's configuration allows")]
    slots = [kind.slots for kind in build.classes if kind.slots is not None and not kind.circular]
    bounds += [Bound(count, "its cache of a fixed size has") for count in slots]
    table = values.position_bound(wanted_positions(options, bounds))
    bounds += [table] if table else []
    sizes = choose_sizes(options, bounds, dims_.fixed_rows, report, bool(roles.growing), whole_runs)
    limit = min([*slots, *([table.rows] if table else [])], default=None)
    check_counts(build.model.graph, build.states, build.classes, values.prober, values.points(sizes, limit))
    meanings = values.meanings(sizes, limit, report)
    build.llm = LlmParts(roles, dims_, values, sizes, meanings)


def copy_for_entries(build: Build) -> None:
    """A copy for each entry."""
    if build.llm is None:
        build.report.extend(unused_llm_options(build.options))
        build.states = release_growing_pairs(build.model.graph, build.states)
        build.classes = classify(build.states, build.model)
        build.drafts = plain_drafts(
            build.model, build.states, build.classes, build.options, build.inference, build.report
        )
    else:
        build.drafts = llm_drafts(build.model, build.llm.dims, build.llm.sizes)


# --- steps on each entry --------------------------------------------------------------------------------------------


def recognise(build: Build, draft: Draft) -> None:
    """Tables, masks and constants take the place of values that follow from the step alone."""
    if build.llm is None or draft.n_past is None:
        return
    llm = build.llm
    uses = uses_by_name(llm.step_values.frontier)
    held = constants(llm.step_values, llm.meanings, Point(draft.capacity, draft.rows))
    apply_meanings(draft.graph, uses, llm.meanings, held, draft.n_past, draft.rows, draft.capacity)
    remove_dead(draft.graph)  # what lies behind the frontier may not fold, and need not


def fold_constants(build: Build, draft: Draft) -> None:
    """Constants and shape arithmetic are computed; every value gets its type and static shape."""
    fold(draft.graph, draft.shapes, build.inference, empty_is_known=build.llm is None)
    if build.llm is not None:
        drop_step_inputs(draft, build.llm.roles.inputs)


def write_out_codes(build: Build, draft: Draft) -> None:
    """Casts to the type of another value, and quantisation of values of a plain graph's run in arithmetic."""
    write_out_casts(draft.graph)
    if build.llm is None:
        write_out_static_forms(draft.graph)
        quantise_as_written(draft.graph)


def cut(build: Build, draft: Draft) -> None:
    """Caches give their new rows alone; body and head part."""
    llm = build.llm
    if llm is None:
        check_growth(draft, build.states, build.classes)
        return
    if not llm.cut:
        llm.cut = find_cut(draft.graph, llm.roles.logits, draft.rows)
        llm.vocab = dims(next(v for v in draft.graph.outputs if v.name == llm.roles.logits))[-1]
    if draft is build.drafts[-1]:
        build.drafts.append(head_of(draft, llm.cut, llm.roles.logits))
    cut_to_new_rows(draft.graph, build.states, build.classes)
    take_windows(draft, build.states, build.classes)
    llm.hidden = cut_body(draft, llm.cut, llm.roles.logits)


def tidy(build: Build, draft: Draft) -> None:
    """What changes nothing goes."""
    clean(draft.graph)


def fuse(*rules: Rule) -> Callable[[Build, Draft], None]:
    """A step that applies fusion rules, in this order."""

    def step(build: Build, draft: Draft) -> None:
        scope = Scope(draft.graph, draft.rows, build.proofs, draft.n_past, draft.capacity)
        fired, refusals = apply_rules(rules, scope)
        remove_dead(draft.graph)
        build.report.extend(f"{draft.label}: {name} x {count}" for name, count in fired.items())
        if build.llm is not None:
            build.llm.refusals.extend(refusals)

    return step


def run_other_attention(build: Build, draft: Draft) -> None:
    """Padding becomes neutral where it counts; attention that no rule has taken stays as it is written."""
    if build.llm is None or draft.n_past is None:
        return
    neutral_padding(draft, build.llm.roles.ids)
    scope = Scope(draft.graph, draft.rows, build.proofs, draft.n_past, draft.capacity, graph_order(draft.graph))
    count = run_as_written(draft, scope, build.llm.roles.ids, build.llm.refusals)
    if count:
        closest = next((f": {r.node}: {r.reason}" for r in build.llm.refusals if r.rule.startswith("attention")), "")
        build.report.append(f"{draft.label}: plain masked attention over {count} caches, for no rule takes it{closest}")


def check_caches_are_fused(build: Build, draft: Draft) -> None:
    """Only attention may read a cache: it alone knows which slots are filled."""
    if build.llm is not None:
        caches = {s.input for s, kind in zip(build.states, build.classes, strict=True) if kind.kind == "append"}
        check_cache_readers(draft, caches, build.llm.refusals)
        if draft.n_past is not None:
            rings = _rings(build, build.llm)
            say_rings(draft, rings)
            give_caches_their_capacity(draft, caches, rings)


def _rings(build: Build, llm: LlmParts) -> dict[str, int]:
    """Slots of the rings, the same for all entries: found when the first of them gets here."""
    if llm.rings is None:
        llm.rings = find_rings(build.drafts, build.states, build.classes, llm.sizes.capacity)
        if llm.rings:
            slots = ", ".join(map(str, sorted(set(llm.rings.values()))))
            build.report.append(f"{len(llm.rings)} caches are rings of {slots} slots")
    return llm.rings


def name_ports(build: Build, draft: Draft) -> None:
    """Inputs and outputs in their order and under their names; bodies of npuc's operators."""
    name_outputs(draft)
    if build.llm is not None and draft.name != "head":
        order_inputs(draft, build.llm.roles.ids, [s.input for s in build.states if s.input is not None])
    add_functions(draft.model)
    verify_folded(draft.graph, "ports")
