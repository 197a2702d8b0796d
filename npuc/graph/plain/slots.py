"""Follows the slots of caches through a graph, and what every value holds where no token has filled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.mask import mask_region, step_mask
from npuc.graph.fuse.region import Region
from npuc.graph.fuse.rule import Scope
from npuc.graph.nodes import DOMAIN, attributes, constant, dims, is_op, label, producer
from npuc.graph.plain.arithmetic import ELEMENTWISE, elementwise
from npuc.graph.plain.facts import ANY, FALSE, FINITE, ZERO, Layout, Lost, Slots, held_by
from npuc.graph.plain.moves import MOVES, after_reduction, aligned, axis_after, of_product, reduced_axes
from npuc.graph.plain.rows import Rows

Known = Slots | Lost | None
"""None: a value without slots."""

_SUMS = ("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2")
"""Reductions that zeros do not change."""


@dataclass
class SlotWalk:
    """One pass over a graph in order. rows: see row_axes. found: of each value that has slots, or has lost them."""

    scope: Scope
    rows: Mapping[ir.Value, Rows]
    found: dict[ir.Value, Slots | Lost] = field(default_factory=dict)

    def run(self) -> None:
        """Every node of the graph, from npuc.PastRows on."""
        for node in self.scope.graph:
            if is_op(node, "PastRows", domain=DOMAIN):
                past = node.outputs[0]
                self.found[past] = Slots(2, Layout(0, 0, dims(past)[2]), ZERO)
                continue
            known = [self.found.get(value) if value is not None else None for value in node.inputs]
            if any(known):
                lost = next((fact for fact in known if isinstance(fact, Lost)), None)
                self._take(node, lost or self._after(node, known))

    def _take(self, node: ir.Node, fact: Known) -> None:
        if is_op(node, "DynamicQuantizeLinear") and isinstance(fact, Slots):
            self.found[node.outputs[0]] = fact  # scale and zero point have no slots
        elif fact is not None:
            self.found.update((output, fact) for output in node.outputs)

    def _after(self, node: ir.Node, known: Sequence[Known]) -> Known:
        if node.domain == "" and node.op_type in ELEMENTWISE:
            return self._computed(node, known)
        if is_op(node, "ValidRows", domain=DOMAIN) and isinstance(known[0], Slots):
            return (
                known[0] if known[0].held == ZERO else replace(known[0], held=FINITE if known[0].held.usable else ANY)
            )
        for op_types, rule in _RULES:
            if node.domain == "" and node.op_type in op_types:
                return rule(node, known)
        return Lost(f"{label(node)} reads the slots of a cache in a way that is not known")

    def _computed(self, node: ir.Node, known: Sequence[Known]) -> Known:
        result = node.outputs[0]
        facts: list[Slots | None] = []
        for value, fact in zip(node.inputs, known, strict=True):
            mask = None if value is None or fact is not None else self._mask(value)
            if isinstance(mask, Lost):
                return mask
            assert not isinstance(fact, Lost)
            facts.append(fact or mask)
        places = {
            (aligned(value, fact.axis, result), fact.layout)
            for value, fact in zip(node.inputs, facts, strict=True)
            if value is not None and fact is not None
        }
        if len(places) != 1:
            return Lost(f"{label(node)} combines values whose slots lie in different places")
        reason = self._other_rows(node) if len(facts) > 1 else None
        if reason is not None:
            return Lost(reason)
        ((axis, layout),) = places
        return Slots(axis, layout, elementwise(node, [fact.held if fact else None for fact in facts]))

    def _mask(self, value: ir.Value) -> Slots | Lost | None:
        """What a value made of npuc.StepMask alone holds at the slots that its row may not see."""
        if value.const_value is not None:
            return None
        region = mask_region(value, self.scope)
        if region is None:
            return None
        specs = [attributes(source.producer()) for source in region.sources]  # type: ignore[arg-type]
        key = ("unfilled", region.signature(), str(specs))
        return self.scope.proofs.once(key, partial(_unfilled, region, specs))

    def _other_rows(self, node: ir.Node) -> str | None:
        """Why operands, of which one may hide slots of another, have not the same rows; None if they have."""
        result, places = node.outputs[0], set[int]()
        for value in node.inputs:
            rows = self.rows.get(value) if value is not None else None
            if isinstance(rows, Lost):
                return f"{label(node)} hides slots, but {rows.reason}"
            if value is not None and rows is not None:
                places.add(aligned(value, rows, result))
        return f"{label(node)} hides slots of other rows" if len(places) > 1 else None


def _unfilled(region: Region, specs: Sequence[Mapping[str, int]]) -> Slots | Lost:
    """Held by a mask [.., rows or 1, columns] where a row looks at a slot behind itself or at none of the past."""
    rows, capacity, name = specs[0]["rows"], specs[0]["capacity"], region.result.name
    shape = dims(region.result)
    if any(spec.get("whole", 0) for spec in specs):
        return Lost(f"mask {name!r} is of a cache with a fixed number of slots")
    if shape[-1] != capacity + rows or len(shape) < 2 or shape[-2] not in (1, rows):
        return Lost(f"mask {name!r} has the shape {list(shape)}, not a column for each of {capacity + rows} slots")
    seen: list[np.ndarray] = []
    for n_past in sorted({capacity, capacity // 2, min(capacity, 3), 0}):
        feeds = [step_mask(n_past, rows, capacity, bool(s["causal"]), s["window"]) for s in specs]
        try:
            array = region.run(feeds)
        except EvaluationError as error:
            return Lost(f"mask {name!r} cannot be evaluated: {error}")
        row, slot = np.arange(shape[-2])[:, None], np.arange(capacity + rows)[None, :]
        hidden = np.where(slot < capacity, slot >= n_past, slot - capacity > row)
        if hidden.any():
            seen.append(array[..., hidden].reshape(-1))
    held = held_by(np.concatenate(seen)) if seen else FALSE
    return Slots(len(shape) - 1, Layout(0, 0, capacity + rows), held)


def _joined(node: ir.Node, known: Sequence[Known]) -> Known:
    """Past and new rows joined; or slots with columns of another kind; or along another axis."""
    result = node.outputs[0]
    axis = attributes(node)["axis"] % len(dims(result))
    facts = [fact for fact in known if isinstance(fact, Slots)]
    first, second = node.inputs[0], node.inputs[1]
    if axis != facts[0].axis:
        alike = len(facts) == len(known) and len({(f.axis, f.layout) for f in facts}) == 1
        held = facts[0].held if len({f.held for f in facts}) == 1 else ANY
        return replace(facts[0], held=held) if alike else Lost(f"{label(node)} joins slots with other values")
    assert first is not None and second is not None
    past = producer(first, "PastRows", domain=DOMAIN)
    if past is not None and len(known) == 2 and known[1] is None:
        blank = dims(second)[axis] == 1 or producer(second, "ValidRows", domain=DOMAIN) is not None
        held = ZERO if blank else FINITE  # a single new row is always filled
        return Slots(axis, Layout(0, 0, dims(result)[axis]), held)
    if len(facts) != 1:
        return Lost(f"{label(node)} joins slots with slots")
    place = next(i for i, fact in enumerate(known) if fact is not None)
    before = sum(dims(value)[axis] for value in node.inputs[:place] if value is not None)
    return replace(facts[0], layout=replace(facts[0].layout, start=facts[0].layout.start + before))


def _moved(node: ir.Node, known: Sequence[Known]) -> Known:
    fact = known[0]
    if not isinstance(fact, Slots):
        return Lost(f"{label(node)} reads slots as a shape")
    if is_op(node, "Slice"):
        return _sliced(node, fact)
    axis = axis_after(node, fact.axis)
    return Lost(axis.replace("rows", "slots")) if isinstance(axis, str) else replace(fact, axis=axis)


def _sliced(node: ir.Node, fact: Slots) -> Known:
    source, result, axis = node.inputs[0], node.outputs[0], fact.axis
    assert source is not None
    extent = dims(source)[axis]
    starts, axes, steps = (constant(node.inputs[i]) if len(node.inputs) > i else None for i in (1, 3, 4))
    assert starts is not None
    places = list(range(len(starts))) if axes is None else [int(a) % len(dims(source)) for a in axes]
    if axis not in places:
        return fact
    at = places.index(axis)
    if steps is not None and steps[at] != 1:
        return Lost(f"{label(node)} takes slots in another order")
    start = max(0, int(starts[at]) + (extent if starts[at] < 0 else 0))
    first = max(start, fact.layout.start)
    last = min(start + dims(result)[axis], fact.layout.start + fact.layout.count)
    layout = Layout(first - start, fact.layout.first + first - fact.layout.start, max(last - first, 0))
    return replace(fact, layout=layout)


def _multiplied(node: ir.Node, known: Sequence[Known]) -> Known:
    """A product keeps the slots of one operand, or sums over those of both."""
    facts = [(i, fact) for i, fact in enumerate(known) if isinstance(fact, Slots)]
    if any(i > 1 for i, _ in facts) or not all(fact.held.usable for _, fact in facts):
        return Lost(f"{label(node)} multiplies slots that may hold NaN")
    places = [of_product(node, i, fact.axis) for i, fact in facts]
    if len(facts) == 1 and places[0] is not None:
        held = facts[0][1].held
        return Slots(places[0], facts[0][1].layout, held if held == ZERO else FINITE)
    if len(facts) == 2 and places == [None, None] and facts[0][1].layout == facts[1][1].layout:
        if ZERO in (facts[0][1].held, facts[1][1].held):
            return None
        weights = facts[0][1].held
        return Lost(f"{label(node)} sums over slots that no token has filled, which hold {weights} and not zeros")
    return Lost(f"{label(node)} multiplies values whose slots lie in different places")


def _reduced(node: ir.Node, known: Sequence[Known]) -> Known:
    fact = known[0]
    if not isinstance(fact, Slots):
        return Lost(f"{label(node)} reads slots as axes")
    if fact.axis in reduced_axes(node):
        if (node.op_type in _SUMS and fact.held == ZERO) or (node.op_type == "ReduceMax" and fact.held.lowest):
            return None
        return Lost(f"{label(node)} goes over slots that no token has filled, which hold {fact.held}")
    chooses = node.op_type in ("ReduceMax", "ReduceMin") or fact.held == ZERO
    held = fact.held if chooses else FINITE if fact.held.usable else ANY
    return Slots(after_reduction(node, fact.axis), fact.layout, held)


def _along(node: ir.Node, known: Sequence[Known]) -> Known:
    """Softmax and norms. Softmax gives hidden slots exactly zero, for a row sees at least itself."""
    fact, source = known[0], node.inputs[0]
    if not isinstance(fact, Slots) or source is None:
        return Lost(f"{label(node)} reads slots beside its data")
    if attributes(node).get("axis", -1) % len(dims(source)) != fact.axis:
        return replace(fact, held=FINITE if fact.held.usable else ANY)
    if is_op(node, "Softmax") and fact.held.lowest:
        return replace(fact, held=ZERO)
    return Lost(f"{label(node)} weighs slots that no token has filled: no mask hides them, they hold {fact.held}")


def _quantised(node: ir.Node, known: Sequence[Known]) -> Known:
    """A scale over slots: zeros do not change it, for its range has zero in it."""
    fact = known[0]
    if isinstance(fact, Slots) and fact.held == ZERO:
        return fact
    return Lost(f"{label(node)} scales by slots that no token has filled")


_RULES = (
    (MOVES, _moved),
    (("Concat",), _joined),
    (("MatMul", "MatMulInteger"), _multiplied),
    (("Softmax", "LayerNormalization"), _along),
    (tuple(f"Reduce{k}" for k in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2")), _reduced),
    (("DynamicQuantizeLinear",), _quantised),
)
