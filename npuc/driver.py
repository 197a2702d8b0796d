"""The whole compiler in one call: a model file or folder becomes a blob."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuc.answers import AnswerCache
from npuc.authoring.bindings import bindings, call_lines, library_of
from npuc.bound import bound_record
from npuc.check import check
from npuc.emit import write_blob
from npuc.estimate import analytic_record
from npuc.frontend import LoadedModel, check_model, load
from npuc.frontend.configuration import end_tokens, max_positions
from npuc.graph.entry import EntryGraph, ModelGraphs, StateSpec
from npuc.graph.options import BuildOptions
from npuc.graph.pipeline import STEP_NAMES, build
from npuc.graph.steps import Build
from npuc.lower.consts import ConstPool
from npuc.lower.entry import Lowered, lower
from npuc.lower.errors import LoweringRefused
from npuc.lower.forms import FormChooser, form_lines
from npuc.lower.hosted import HostCut, cut_for_host
from npuc.lower.new_rows import state_dtype
from npuc.lower.storage import Storage
from npuc.lower.walk import state_buffers
from npuc.lower.ways import report_lines
from npuc.progress import Report, silent
from npuc.report.metadata import build_metadata, entry_ports
from npuc.report.nodes import write_node_report
from npuc.report.summary import node_rows, summary_lines
from npuc.report.trail import Trail
from npuc.schedule import EntryProgram, OverflowRefused, schedule
from npuc.tasks import Buffer
from npuc.tile import TraceCache
from npurt.abi.dtypes import DType
from npurt.host.program import CONSTANTS
from npurt.target import Target, load_target

PRECISIONS = {"f16": DType.F16, "f32": DType.F32}
# Shares of the scratchpad that lowering may plan with, tried in this order: where placement finds no room for
# alignment and holes, it spills; where that is too much, smaller tiles are better
CMX_SHARES = (1.0, 0.9, 0.75, 0.6, 0.45)


@dataclass(frozen=True)
class CompileOptions:
    """What `npuc compile` can be told. None: the default (prompt 1024, response 128, chunk 128).

    attention: the form of every attention that can have it; None chooses the fastest for each.
    llm: False compiles a language model's graph as a plain one (`npuc exec` runs graphs); None decides by the graph.
    kernels: texts ``WHAT=KERNEL``, see npuc.authoring. choices: a file of tile sizes. values: of inputs that become
    constants, by name. host_ops: operators that the host computes where the device has no kernel, or "all".
    follow_nodes: keep what became of each node, for a report. answers: what earlier searches found, which saves time
    and changes nothing; None: search always.
    """

    target: str = "npu40xx"
    precision: str = "f16"
    requantise: str | None = None
    max_prompt_len: int | None = None
    min_response_len: int | None = None
    chunk: int | None = None
    capacities: tuple[int, ...] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    state_rows: Mapping[str, int] = field(default_factory=dict)
    llm: bool | None = None
    attention: str | None = None
    kernels: tuple[str, ...] = ()
    choices: Path | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    host_ops: tuple[str, ...] = ()
    dump_after: tuple[str, Path] | None = None
    stop_after: str | None = None
    follow_nodes: bool = False
    answers: AnswerCache | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Compiled:
    """A model in all its stages: graphs, tasks, scheduled programs, and what the blob says about itself.

    trail: what became of the model's nodes, where `follow_nodes` asked for it. host: the cut at host steps.
    """

    graphs: ModelGraphs
    target: Target
    lowered: list[Lowered]
    programs: list[EntryProgram]
    states: list[StateSpec]
    metadata: dict[str, Any]
    assets: dict[str, bytes]
    traces: int
    seconds: dict[str, float]
    trail: Trail | None = None
    host: HostCut | None = None


@dataclass(frozen=True)
class CompileSummary:
    """What people are told after a compile.

    lines: chunk, capacities, blob size, CMX peak, time. report: clamped options, inferred dims, classes of states.
    """

    lines: list[str]
    report: list[str]
    blob_bytes: int
    seconds: dict[str, float]


class InternalError(Exception):
    """The compiler contradicts itself: the independent checker found a fault in its schedule."""


def compile_model(path: str | Path, options: CompileOptions, report: Report = silent) -> Compiled | None:
    """All stages up to scheduled and checked programs; None where `stop_after` ended it at the graph level.

    report: told each step. Raises ModelRefused, LoweringRefused, OverflowRefused, OptionError for what the user can
    change.
    """
    report("reading the model", None)
    clock = time.perf_counter()
    loaded = load(path)
    return compile_loaded(loaded, options, report, clock)


def compile_loaded(
    loaded: LoadedModel, options: CompileOptions, report: Report = silent, clock: float | None = None
) -> Compiled | None:
    """`compile_model` for a model that has been read. clock: when reading began."""
    seconds: dict[str, float] = {}
    clock = time.perf_counter() if clock is None else clock
    check_model(loaded)
    assets = read_assets(loaded)
    step, folder = options.dump_after or ("", None)
    limits = build_options(options, assets)
    trail = Trail.of(loaded) if options.follow_nodes else None
    graphs = build(
        loaded, limits, dump_after=(step,) if step else (), dump_dir=folder, stop_after=options.stop_after,
        watch=graph_watch(report, trail),
    )  # fmt: skip
    seconds["graph"] = time.perf_counter() - clock
    if options.stop_after is not None:
        return None
    return replace(compile_graphs(graphs, options, assets, seconds, report), trail=trail)


def graph_watch(report: Report, trail: Trail | None = None) -> Callable[[str, Build], None]:
    """Tells `report` after each step of the graph how many of them are done, and `trail` what it left."""

    def watch(step: str, work: Build) -> None:
        report(f"graph, {step} done", (STEP_NAMES.index(step) + 1) / len(STEP_NAMES))
        if trail is not None:
            trail.watch(step, work)

    return watch


def compile_graphs(
    graphs: ModelGraphs,
    options: CompileOptions,
    assets: Mapping[str, bytes],
    seconds: dict[str, float],
    report: Report = silent,
) -> Compiled:
    """The stages behind the graph level. seconds: by stage so far; the new ones are added. report: told each entry.

    Raises LoweringRefused and OverflowRefused.
    """
    target = load_target(options.target)
    library = library_of(*bindings(options.kernels), options.choices, target)
    storage = Storage(PRECISIONS[options.precision])
    consts, cache = ConstPool(storage), TraceCache()
    forms = FormChooser(library, target, options.attention, options.answers)
    buffers = state_buffers(graphs.states, storage)
    host = cut_for_host(graphs, options.host_ops, library.ops)
    entries = graphs.entries if host is None else host.parts
    lowered, programs = [], []
    clock = time.perf_counter()
    for number, entry in enumerate(entries):
        report(f"lower and schedule {entry.label}", number / len(entries))
        tasks, program = _entry(entry, graphs.states, buffers, storage, consts, cache, forms)
        lowered.append(tasks)
        programs.append(program)
    seconds["lower and schedule"] = time.perf_counter() - clock
    graphs.report.extend(call_lines(library, [call.kernel for tasks in lowered for call, _ in tasks.choices]))
    graphs.report.extend([] if host is None else host.lines)
    for entry, tasks in zip(entries, lowered, strict=True):
        graphs.report.extend(report_lines(entry.label, (c.way for c, _ in tasks.choices if c.way is not None)))
        graphs.report.extend(form_lines(entry.label, tasks.choices))
    states = [_device_state(state, storage) for state in graphs.states]
    stops, start = end_tokens(assets)
    metadata = build_metadata(
        [entry_ports(graph, program) for graph, program in zip(entries, programs, strict=True)],
        states, precision=options.precision, target=target.name, llm=graphs.llm, stop_ids=stops, start_id=start,
        nodes=node_rows(entries, lowered),
        bounds=[bound_record(graph, target, storage.floats) for graph in entries],
        estimates=[analytic_record(graph, target, storage.floats) for graph in entries],
        host=None if host is None else host.metadata,
    )  # fmt: skip
    files = {**assets, **({} if host is None else {CONSTANTS: host.constants})}
    return Compiled(graphs, target, lowered, programs, states, metadata, files, cache.traces, seconds, host=host)


def compile_to_blob(
    path: str | Path, blob: str | Path, options: CompileOptions, report: Report = silent, nodes: Path | None = None
) -> CompileSummary | None:
    """Compiles and writes; nothing is at `blob` that was not there before unless all of it worked.

    nodes: a JSON file to write what became of every node of the model to (docs/cli.md).
    """
    clock = time.perf_counter()
    compiled = compile_model(path, replace(options, follow_nodes=nodes is not None), report)
    if compiled is None:
        return None
    size = write_blob(compiled.programs, compiled.states, compiled.metadata, compiled.assets, blob, report)
    if nodes is not None and compiled.trail is not None:
        write_node_report(
            nodes, compiled.trail, compiled.graphs.entries, compiled.lowered, compiled.host, options.target,
            options.precision,
        )  # fmt: skip
    compiled.seconds["total"] = time.perf_counter() - clock
    lines = summary_lines(compiled.graphs, compiled.programs, compiled.target, size, compiled.seconds["total"])
    return CompileSummary(lines, compiled.graphs.report, size, compiled.seconds)


def build_options(options: CompileOptions, assets: Mapping[str, bytes]) -> BuildOptions:
    """What the graph level is told; the model's own configuration bounds its positions."""
    return BuildOptions(
        max_prompt_len=options.max_prompt_len, min_response_len=options.min_response_len, chunk=options.chunk,
        capacities=options.capacities, dims=options.dims, state_rows=options.state_rows, llm=options.llm,
        max_positions=max_positions(assets), kept_ops=frozenset(bindings(options.kernels)[1]), values=options.values,
        per_channel=options.requantise == "per-channel",
    )  # fmt: skip


def _entry(entry: EntryGraph, states: list[StateSpec], buffers: dict[str, Buffer], storage: Storage, consts: ConstPool,
           cache: TraceCache, forms: FormChooser) -> tuple[Lowered, EntryProgram]:  # fmt: skip
    """Lowers and schedules one entry with the largest tiles that can be placed.

    Where the scheduler has to spill for them, the next smaller tiles are tried, too, and what moves fewer bytes from
    and to DDR is kept; what needs no spilling is never worse with larger tiles.
    """
    target = forms.target
    total = target.memories["cmx"].bytes
    best: tuple[Lowered, EntryProgram] | None = None
    refused: LoweringRefused | OverflowRefused | None = None
    for share in CMX_SHARES:
        try:
            lowered = lower(entry, states, buffers, storage, consts, cache, "cmx", int(total * share), forms)
            program = schedule(lowered.graph, target)
        except LoweringRefused as error:
            refused = error
            break
        except OverflowRefused as error:
            refused = error
            continue
        if best is None or program.ddr_bytes < best[1].ddr_bytes:
            best = lowered, program
        if not program.spills.nbytes:
            break
    if best is None:
        assert refused is not None, "every share gives a program or is refused"
        raise refused
    faults = check(best[1], target)
    if faults:
        raise InternalError(f"entry {entry.label}: the schedule is wrong:\n" + "\n".join(map(str, faults)))
    return best


def _device_state(state: StateSpec, storage: Storage) -> StateSpec:
    dtype = state_dtype(state, storage)
    initial = None if state.initial is None else storage.pack(np.broadcast_to(state.initial, state.shape), dtype)
    return replace(state, dtype=dtype, initial=initial)


def read_assets(loaded: LoadedModel) -> dict[str, bytes]:
    """The files beside the model that a session needs, by name."""
    found = sorted(loaded.assets.items())
    return {name: asset if isinstance(asset, bytes) else asset.read_bytes() for name, asset in found}
