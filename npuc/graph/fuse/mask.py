"""What a mask made from npuc.StepMask lets attention see, found by running it on a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.region import Region
from npuc.graph.fuse.rule import Scope
from npuc.graph.nodes import DOMAIN, attributes, producer
from npuc.graph.recognise.classify import MASKED_BELOW

_Read = Callable[[np.ndarray], np.ndarray | None]
"""From the content of a mask to bool, True where visible; None if it is not of the expected kind."""


@dataclass(frozen=True)
class Visibility:
    """causal: row i sees what lies before it and itself; else every column. window: 0, or the columns a row sees."""

    causal: bool
    window: int

    def both(self, other: Visibility) -> Visibility:
        """What two masks together let through."""
        windows = [v.window for v in (self, other) if v.window]
        return Visibility(self.causal or other.causal, min(windows, default=0))


def step_mask(n_past: int, rows: int, capacity: int, causal: bool, window: int, whole: bool = False) -> np.ndarray:
    """npuc.StepMask: bool [1, 1, rows, capacity + rows]; whole: [1, 1, rows, capacity], new rows in their slots."""
    if whole:
        position, slot = n_past + np.arange(rows)[:, None], np.arange(capacity)[None, :]
        seen = slot <= position if causal else np.broadcast_to(slot < n_past + rows, (rows, capacity))
        return (seen & (slot > position - window) if window else seen)[None, None]
    row, slot, new = np.arange(rows)[:, None], np.arange(capacity)[None, :], np.arange(rows)[None, :]
    past = np.broadcast_to(slot < n_past, (rows, capacity))
    fresh = (new <= row) if causal else np.ones((rows, rows), bool)
    if window:
        past, fresh = past & (slot > n_past + row - window), fresh & (new > row - window)
    return np.concatenate([past, fresh], 1)[None, None]


def additive(value: ir.Value, scope: Scope) -> Visibility | str:
    """What a mask that is added to the scores shows, or why it is none."""
    return _visibility(value, scope, _two_valued)


def boolean(value: ir.Value, scope: Scope) -> Visibility | str:
    """What a mask whose True means visible shows, or why it is none."""
    return _visibility(value, scope, lambda array: array if array.dtype == np.bool_ else None)


def negated(value: ir.Value, scope: Scope) -> Visibility | str:
    """What a mask whose True means hidden shows, or why it is none."""
    return _visibility(value, scope, lambda array: ~array if array.dtype == np.bool_ else None)


def _two_valued(array: np.ndarray) -> np.ndarray | None:
    seen, hidden = array == 0, array <= MASKED_BELOW
    return seen if array.dtype.kind == "f" and bool((seen | hidden).all()) else None


def mask_region(value: ir.Value, scope: Scope) -> Region | None:
    """The piece of graph that makes a value of StepMask nodes and constants alone; None for other values."""
    nodes: set[ir.Node] = set()
    masks: dict[ir.Value, None] = {}
    stack = [value]
    while stack:
        current = stack.pop()
        if producer(current, "StepMask", domain=DOMAIN) is not None:
            masks.setdefault(current)
        elif current.const_value is None:
            node = current.producer()
            if node is None or node.domain != "":
                return None
            nodes.add(node)
            stack.extend(v for v in node.inputs if v is not None)
    ordered = tuple(sorted(nodes, key=lambda node: scope.order.get(node, -1)))
    return Region(ordered, tuple(masks), value) if masks else None


def _visibility(value: ir.Value, scope: Scope, read: _Read) -> Visibility | str:
    region = mask_region(value, scope)
    if region is None:
        return f"{value.name!r} is no mask: it follows from more than positions and the attention mask"
    specs = []
    for source in region.sources:
        node = source.producer()
        assert node is not None
        specs.append(attributes(node))
    whole = Visibility(False, 0)
    for spec in specs:
        whole = whole.both(Visibility(bool(spec["causal"]), spec["window"]))
    reason = scope.proofs.once(
        (region.signature(), str(specs), read.__qualname__), lambda: _contradiction(region, specs, whole, read)
    )
    return reason or whole


def _contradiction(region: Region, specs: list[dict[str, int]], whole: Visibility, read: _Read) -> str | None:
    """A step at which the mask shows something else than the masks it is made of, as a message."""
    name, rows, capacity = region.result.name, specs[0]["rows"], specs[0]["capacity"]
    is_whole = bool(specs[0].get("whole", 0))
    most = max(capacity - rows, 0) if is_whole else capacity
    for n_past in sorted({most, most // 2, min(most, 3), 0}):
        feeds = [
            step_mask(n_past, rows, capacity, bool(spec["causal"]), spec["window"], bool(spec.get("whole", 0)))
            for spec in specs
        ]
        try:
            seen = read(region.run(feeds))
        except EvaluationError as error:
            return f"mask {name!r} cannot be evaluated: {error}"
        if seen is None:
            return f"{name!r} has values that are neither visible nor hidden"
        expected = step_mask(n_past, rows, capacity, whole.causal, whole.window, is_whole)[0, 0]
        if seen.shape[-1] != expected.shape[-1]:
            return f"mask {name!r} has the shape {list(seen.shape)}; there are {expected.shape[-1]} slots"
        if not all(
            np.array_equal(np.broadcast_to(plane, expected.shape), expected)
            for plane in seen.reshape(-1, *seen.shape[-2:])
        ):
            return f"mask {name!r} is neither causal nor a sliding window with {n_past} past tokens"
    return None
