"""Finds the meaning of every step-only value that the rest of a language model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems
from npuc.graph.dims import InputDims
from npuc.graph.evaluate import OutOfTable
from npuc.graph.infer import Inference
from npuc.graph.nodes import label
from npuc.graph.options import OptionError
from npuc.graph.recognise.bias import Bias
from npuc.graph.recognise.classify import Constant, Mask, Meaning, Table, Unrecognised, classify
from npuc.graph.recognise.probe import ALL, Columns, Point, Prober
from npuc.graph.recognise.stepset import Frontier, step_frontier
from npuc.graph.roles import STEP_ROLES
from npuc.graph.sizes import Bound, Sizes
from npuc.graph.state_class import StateClass

_SMALL = ((0, 3), (7, 3), (5, 4), (6, 1), (0, 1))
"""(n_past, rows) of the small probes. Sums and differences are distinct, so that no extent can be taken for another."""


@dataclass(frozen=True)
class StepValues:
    """The frontier of a model and what each value of it means. prober: evaluates the constants for an entry's rows.
    layouts: columns that masks may have. turn: slots of the smallest circular cache: what a run of several rows beyond
    them means is what its rows mean one by one, and these are tried."""

    frontier: tuple[Frontier, ...]
    prober: Prober
    layouts: tuple[Columns, ...] = (ALL,)
    turn: int | None = None

    def meanings(self, sizes: Sizes, limit: int | None, report: list[str]) -> dict[str, Meaning]:
        """Meaning of each frontier value by name, proven on small probes and the real sizes.

        limit: positions that the model's tables have. Raises ModelRefused naming each value that fits no class.
        """
        rows = sizes.capacity + sizes.chunk
        points = self.points(sizes, limit)
        values = [item.value for item in self.frontier]
        contents = [self.prober.evaluate_all(values, point) for point in points]
        known: dict[tuple[int, ...], Meaning | Unrecognised] = {}
        result: dict[str, Meaning] = {}
        problems = Problems()
        for place, item in enumerate(self.frontier):
            arrays = {point: found[place] for point, found in zip(points, contents, strict=True)}
            same = tuple(map(id, arrays.values()))  # equal layers have the same contents at every point
            if same not in known:
                evaluate = partial(self._content, item.value, arrays)
                known[same] = self._meaning(evaluate, points, rows, limit or rows)
            meaning = known[same]
            if isinstance(meaning, Unrecognised):
                readers = ", ".join(label(node) for node, _ in item.uses[:2])
                problems.add(
                    f"value {item.value.name!r}, read by {readers}, follows from positions or the attention mask, "
                    f"but {meaning}"
                )
            else:
                result[item.value.name or ""] = meaning
        problems.refuse()
        _check_prompts(result, sizes.max_prompt_len)
        report.extend(_lines(result))
        return result

    def _meaning(
        self, evaluate: Callable[[Point], np.ndarray], points: Sequence[Point], rows: int, limit: int
    ) -> Meaning | Unrecognised:
        try:
            return classify(evaluate, points, rows, limit, self.layouts)
        except Unrecognised as reason:
            return reason

    def _content(self, value: ir.Value, known: Mapping[Point, np.ndarray], point: Point) -> np.ndarray:
        return known[point] if point in known else self.prober.evaluate(value, point)

    def points(self, sizes: Sizes, limit: int | None) -> list[Point]:
        """Small probes first, then the real sizes. limit: positions that there are at most."""
        points = _points(sizes, self.prober.fixed_rows, limit)
        return [p for p in points if self.turn is None or p.rows == 1 or p.total <= self.turn] or [Point(0, 1)]

    def position_bound(self, wanted: int) -> Bound | None:
        """The number of positions that the model's tables have, if that is less than `wanted`."""
        failure = self._failure(wanted - 1)
        if failure is None:
            return None
        good, bad = -1, wanted - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            error = self._failure(middle)
            if error is None:
                good = middle
            else:
                bad, failure = middle, error
        if good < 0:
            raise ModelRefused([f"{failure} already at the first position"])
        return Bound(good + 1, f"a position table of the model has ({failure})")

    def _failure(self, position: int) -> OutOfTable | None:
        rows = self.prober.fixed_rows or 1
        try:
            self.prober.evaluate_all([item.value for item in self.frontier], Point(max(0, position - rows + 1), rows))
        except OutOfTable as error:
            return error
        return None


def step_values(dims: InputDims, inference: Inference, classes: Sequence[StateClass]) -> StepValues:
    """The frontier of a pure, normalised language model. classes: of its states."""
    contents = {name for name, role in dims.roles.inputs.items() if role in STEP_ROLES}
    limits = dict.fromkeys((c.kept, c.slots, c.circular) for c in classes if c.kind == "append")
    prober = Prober(dims.graph, dims.roles, dims.shapes, inference, dims.fixed_rows)
    layouts = tuple(Columns(*limit) for limit in {(None, None, False): None} | limits)
    turn = min((c.slots for c in classes if c.circular and c.slots is not None), default=None)
    return StepValues(tuple(step_frontier(dims.graph, contents)), prober, layouts, turn)


def _points(sizes: Sizes, fixed_rows: int | None, limit: int | None) -> list[Point]:
    real = [(sizes.prefill_capacity, sizes.chunk), (0, sizes.chunk), *((c - 1, 1) for c in sizes.capacities)]
    pairs = [*_SMALL, *real]
    if fixed_rows is not None:
        pairs = [(n_past, fixed_rows) for n_past, _ in pairs]
    bound = sizes.capacity + sizes.chunk if limit is None else limit
    kept = [Point(n_past, rows) for n_past, rows in dict.fromkeys(pairs) if n_past + rows <= bound]
    return kept or [Point(0, fixed_rows or 1)]


def _check_prompts(meanings: dict[str, Meaning], max_prompt_len: int) -> None:
    """Raises OptionError where a prompt may be so long that the model takes other rows of a table from its first token
    on."""
    kept = min((m.kept for m in meanings.values() if isinstance(m, Table) and m.kept is not None), default=None)
    if kept is not None and max_prompt_len > kept:
        raise OptionError(
            f"max_prompt_len {max_prompt_len}: for prompts of more than {kept} tokens the model turns to other rotary "
            f"factors from the first token on; compile with --max-prompt-len {kept} or less (answers may get longer)"
        )


def _lines(meanings: dict[str, Meaning]) -> list[str]:
    lines = []
    for name, meaning in meanings.items():
        match meaning:
            case Table(table=table, kept=kept):
                turn = "" if kept is None else f", other factors from token {kept + 1} on"
                lines.append(f"{name}: a row per position, {list(table.shape)}{turn}")
            case Mask(causal=causal, window=window, padding=padding):
                kind = f"causal, window {window}" if window else "causal" if causal else "every column visible"
                lines.append(f"{name}: mask, {kind}{'' if padding else ', does not look at padding'}")
            case Bias(slopes=slopes):
                lines.append(f"{name}: a bias of the position, {slopes.size} slopes")
            case Constant():
                lines.append(f"{name}: the same for every step")
    return lines


def constants(values: StepValues, meanings: dict[str, Meaning], point: Point) -> dict[str, np.ndarray]:
    """Contents of the values that are Constant, for an entry's rows."""
    wanted = [item.value for item in values.frontier if isinstance(meanings[item.value.name or ""], Constant)]
    contents = values.prober.evaluate_all(wanted, point)
    return {value.name or "": content for value, content in zip(wanted, contents, strict=True)}


def uses_by_name(frontier: Sequence[Frontier]) -> dict[str, list[tuple[str, int]]]:
    """Readers of frontier values as (name of the reader's first output, input index), which survive a clone."""
    return {f.value.name or "": [(_key(node), index) for node, index in f.uses] for f in frontier}


def _key(node: ir.Node) -> str:
    return node.outputs[0].name or ""
