"""The comparison from the whole to the part: the answer, then the steps of the graph, then the groups of each entry."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

import npurt
from npuc.compare.blob import blob_lines, options_of, other_ports
from npuc.compare.device import Found, GroupFinding, Tally
from npuc.compare.entries import AnyDevice
from npuc.compare.errors import CompareError
from npuc.compare.feeds import check_inputs, check_prompt, seeded_inputs, seeded_prompt
from npuc.compare.groups import find_groups, probed
from npuc.compare.oracle import onnxruntime
from npuc.compare.result import Result
from npuc.compare.scenario import AnswerScenario, Parts, PlainScenario, Scenario
from npuc.compare.stages import StepFinding, Watcher, first_changing_step
from npuc.compare.tolerance import Difference, measure, tolerance_for
from npuc.driver import Compiled, CompileOptions, build_options, compile_graphs, graph_watch, read_assets
from npuc.emit import write_blob
from npuc.frontend import LoadedModel, check_model
from npuc.frontend import load as load_model
from npuc.graph.entry import ModelGraphs
from npuc.graph.pipeline import build
from npuc.graph.state import state_to_arguments
from npuc.graph.steps import Build
from npuc.progress import Report, silent
from npurt.llm.tokenizer import encode

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Request:
    """What to compare.

    blob: a finished blob in the place of a fresh one; its metadata then give the options. inputs: of a plain graph.
    prompt: ids or text, None for a seeded one; tokens: fed after it. rtol, atol: see `tolerance_for`. everything: also
    steps and groups of a model that agrees. mode: of the device, exact or fast. note: takes a line that people should
    read. report: told each step.
    """

    model: Path
    options: CompileOptions
    blob: Path | None = None
    inputs: Mapping[str, np.ndarray] | None = None
    prompt: Sequence[int] | str | None = None
    tokens: int = 4
    rtol: float | None = None
    atol: float | None = None
    everything: bool = False
    mode: str = "exact"
    note: Callable[[str], None] = field(default=lambda _: None)
    report: Report = silent


def check(request: Request) -> Result:
    """Compares. Raises CompareError for a request that does not fit the model, OracleRefused where onnxruntime does not
    run it, and what compiling and loading raise."""
    onnxruntime()  # before any work
    with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
        return _Check(request, Path(folder)).run()


class _Check:
    """One comparison on its way."""

    def __init__(self, request: Request, folder: Path) -> None:
        self._request, self._folder = request, folder
        self._loaded = load_model(request.model)
        check_model(self._loaded)
        self._assets = read_assets(self._loaded)
        self._given = None if request.blob is None else npurt.load(request.blob)
        self._options = request.options
        if self._given is not None:
            self._options = options_of(self._given, self._loaded.model, request.options)
        watcher = Watcher(keep=False)
        self._graphs = self._build(watcher)
        self._scenario, pure = _scenario(request, self._loaded, self._assets, self._graphs, watcher)
        own = "f16" if _is_narrow(self._graphs) else "f32"
        widest = "f16" if "f16" in (own, self._options.precision) else "f32"
        self._tolerance = tolerance_for(widest, request.rtol, request.atol)
        self._stage_tolerance = tolerance_for(own, request.rtol, request.atol)
        request.report("running the model in onnxruntime", None)
        self._wanted = self._scenario.original(pure or self._loaded.model, pure=pure is not None)
        self._compiled: Compiled | None = None

    def run(self) -> Result:
        """End to end; where that diverges (or on request) the blob, the steps, the groups."""
        request = self._request
        if self._given is not None:
            why = other_ports(self._given, self._graphs)
            if why:
                return Result(str(self._tolerance), {}, blob=self._blob_lines(why))
        found = self._run(npurt.load(self._fresh()) if self._given is None else self._given)
        result = Result(str(self._tolerance), self._measure(found), self._tokens(found))
        if result.agrees and not request.everything:
            return result
        if not result.agrees and self._given is not None:
            fresh = self._measure(self._run(npurt.load(self._fresh())))
            if all(part.within for part in fresh.values()):
                return replace(result, blob=self._blob_lines("a fresh one agrees with onnxruntime"))
        return self._inside(result)

    def _inside(self, result: Result) -> Result:
        """Steps first: groups are compared with the graph that the last step leaves."""
        self._request.report("running the steps of the graph in onnxruntime", None)
        step = self._changing_step()
        if step is not None:
            return replace(result, step=step)
        self._request.report("compiling a program that writes every value", None)
        tally = Tally()
        group = self._diverging_group(tally)
        return replace(result, group=group, tally=tally)

    def _changing_step(self) -> StepFinding | None:
        watcher = Watcher(keep=True)
        self._build(watcher)
        scenario = self._scenario
        return first_changing_step(watcher, scenario.whole, scenario.entries, self._wanted, self._stage_tolerance)

    def _diverging_group(self, tally: Tally) -> GroupFinding | None:
        compiled = self._compile()
        if compiled.host is not None:
            self._request.note("groups are not compared in a program with steps of the host")
            return None
        states = self._graphs.states
        lowered = zip(self._graphs.entries, compiled.lowered, strict=True)
        groups = {entry.label: find_groups(entry, states, tasks) for entry, tasks in lowered}
        entries = [probed(entry, groups[entry.label]) for entry in self._graphs.entries]
        probe = compile_graphs(replace(self._graphs, entries=entries), self._options, self._assets, {})
        device = self._device(npurt.load(_write(probe, self._folder / "probe.npu")))
        self._request.report("comparing the node groups", None)
        try:
            self._scenario.groups(device, groups, self._tolerance, tally)
        except Found as found:
            return found.finding
        return None

    def _measure(self, found: Parts) -> dict[str, Difference]:
        return {name: measure(found[name], want, self._tolerance) for name, want in self._wanted.items()}

    def _tokens(self, found: Parts) -> tuple[list[int], list[int]] | None:
        if not isinstance(self._scenario, AnswerScenario):
            return None
        last = found["logits of the prompt"][-1:]
        rows = np.concatenate([last, found["logits of the steps"]]) if self._request.tokens else last
        device = [int(row.argmax()) for row in rows]
        return self._scenario.recording.tokens, device

    def _build(self, watcher: Watcher) -> ModelGraphs:
        told = graph_watch(self._request.report)

        def watch(step: str, work: Build) -> None:
            watcher(step, work)
            told(step, work)

        return build(self._loaded, build_options(self._options, self._assets), watch=watch)

    def _compile(self) -> Compiled:
        if self._compiled is None:
            self._compiled = compile_graphs(self._graphs, self._options, self._assets, {}, self._request.report)
        return self._compiled

    def _fresh(self) -> Path:
        """The blob that the model compiles to."""
        path = self._folder / "fresh.npu"
        return path if path.exists() else _write(self._compile(), path)

    def _run(self, image: npurt.Image) -> Parts:
        self._request.report("running the program on the device", None)
        return self._scenario.device(self._device(image))

    def _device(self, image: npurt.Image) -> AnyDevice:
        return npurt.open_device(image, self._request.mode, warn=self._request.note)

    def _blob_lines(self, why: str) -> tuple[str, ...]:
        assert self._request.blob is not None
        return blob_lines(self._request.blob, self._fresh(), why)


def _write(compiled: Compiled, path: Path) -> Path:
    write_blob(compiled.programs, compiled.states, compiled.metadata, compiled.assets, path)
    return path


def _scenario(
    request: Request, loaded: LoadedModel, assets: Mapping[str, bytes], graphs: ModelGraphs, watcher: Watcher
) -> tuple[Scenario, ir.Model | None]:
    """The scenario for a model, and the model with its states as arguments where the file's form does not run."""
    assert watcher.build is not None
    states = watcher.build.states
    pure = None
    if any(state.form == "variable" for state in states):
        pure = state_to_arguments(loaded.model, request.options.state_rows).model
    if graphs.llm is None:
        if request.prompt is not None:
            raise CompareError("the model is a plain graph: it takes --input, and no prompt")
        entry = graphs.entry("main")
        ports = [port for port in entry.inputs if port.name not in {state.input for state in graphs.states}]
        inputs = request.inputs
        if inputs is None:
            inputs = seeded_inputs(entry.model.graph, ports)
        check_inputs(ports, inputs)
        return PlainScenario(graphs, states, inputs), pure
    if request.inputs is not None:
        raise CompareError("the blob is a language model's: it takes a prompt, and no --input")
    parts = watcher.build.llm
    assert parts is not None
    prompt = request.prompt
    if prompt is None:
        prompt = seeded_prompt(graphs.llm, request.tokens)
    elif isinstance(prompt, str):
        prompt = encode(assets, prompt)
    check_prompt(graphs.llm, prompt, request.tokens)
    return AnswerScenario(graphs, states, parts.dims, prompt, request.tokens), pure


def _is_narrow(graphs: ModelGraphs) -> bool:
    """Whether onnxruntime rounds to 16 bits on the way: a node of the final graphs gives such a value."""
    nodes = (node for entry in graphs.entries for node in entry.model.graph)
    return any(value.dtype in NARROW for node in nodes for value in node.outputs)
