"""Whether a model fits a machine and the program format, and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from npuc.bound.traffic import STEP_INPUTS, buffer_bytes, fastest_route
from npuc.estimate.attention import smallest_bytes
from npuc.estimate.formats import WeightFormat
from npuc.estimate.plan import Plan
from npuc.estimate.subject import Subject, state_bytes
from npuc.graph.entry import EntryGraph, PortSpec
from npuc.graph.nodes import dims
from npuc.graph.state_pairs import NEXT_PREFIX, READ_PREFIX
from npuc.lower.walk import MAX_ELEMENTS
from npurt.abi.dtypes import DType
from npurt.target.model import Target
from npurt.verify import MAX_DEVICE_BYTES, MAX_WORK

ROWS = ("RMSNorm", "LayerNormalization", "Softmax")
"""Operators whose program holds a whole row."""
STEP_FLOAT = 4
"""Bytes of an element of an entry's own inputs and outputs."""


@dataclass(frozen=True)
class Memory:
    """Bytes of device memory. weights: all constants; states: caches with all their rows; scratch: values that find no
    place on chip; ports: inputs and outputs."""

    weights: int
    states: int
    scratch: int
    ports: int

    @property
    def total(self) -> int:
        return self.weights + self.states + self.scratch + self.ports


@dataclass(frozen=True)
class Limit:
    """One thing that has to fit. what: its name; unit: "B", "elements" or "operations". where: what needs most."""

    what: str
    needed: int
    available: int
    unit: str
    where: str

    @property
    def fits(self) -> bool:
        return self.needed <= self.available


def memory_of(subject: Subject, target: Target, form: WeightFormat) -> Memory:
    """Device memory of one program with all its entries."""
    item, most = form.floats.nbytes, buffer_bytes(target) // 2
    return Memory(
        subject.weights.bytes(form),
        sum(state_bytes(state, item) for state in subject.graphs.states),
        max(plan.spilled_bytes(item, most) for plan in subject.plans.values()),
        sum(_ports(entry) for entry in subject.graphs.entries),
    )


def limits_of(subject: Subject, target: Target, form: WeightFormat, work: int) -> list[Limit]:
    """All that is checked, in a fixed order. work: multiplications of the largest run."""
    memory = memory_of(subject, target, form)
    device = target.memories["ddr"]
    room = buffer_bytes(target)
    row, name = max(_rows(subject.plans.values(), form.floats), default=(0, "nothing"))
    elements, value = max(_elements(subject.plans.values()), default=(0, "nothing"))
    held = memory.total - memory.weights + room
    largest = max(("weights", "states", "scratch"), key=lambda part: getattr(memory, part))
    return [
        Limit("device memory", memory.total, device.bytes, "B", largest),
        Limit("memory that the runtime allocates", held, MAX_DEVICE_BYTES, "B", "states"),
        Limit(f"{fastest_route(target, loads=True).destination} for one row", row, room, "B", name),
        Limit("elements of one value", elements, MAX_ELEMENTS, "elements", value),
        Limit("work of one run", work, MAX_WORK, "operations", "prefill" if "prefill" in subject.plans else "main"),
    ]  # fmt: skip


def _rows(plans: Iterable[Plan], floats: DType) -> Iterator[tuple[int, str]]:
    """Bytes on chip of the smallest program of each operation that works on whole rows."""
    for plan in plans:
        for operation in dict(zip(plan.kinds, plan.operations, strict=True)).values():
            if operation.kind == "attention":
                yield smallest_bytes(operation.last, floats), f"{plan.graph.label}, {operation.name}"
            for node in operation.nodes:
                if node.op_type in ROWS and node.inputs[0] is not None:
                    width = dims(node.inputs[0])[-1]
                    count = len(operation.inputs()) + len(operation.outputs())
                    yield width * floats.nbytes * count, f"{plan.graph.label}, {operation.name}"


def _elements(plans: Iterable[Plan]) -> Iterator[tuple[int, str]]:
    for plan in plans:
        for value in (*plan.graph.model.graph.inputs, *plan.lives):
            yield prod(dims(value)), f"{plan.graph.label}, {value.name}"


def _ports(entry: EntryGraph) -> int:
    """Inputs and outputs that are no states."""
    return sum(prod(port.shape) * STEP_FLOAT for port in (*entry.inputs, *entry.outputs) if _own(port))


def _own(port: PortSpec) -> bool:
    return port.name not in STEP_INPUTS and not port.name.startswith((READ_PREFIX, NEXT_PREFIX))
