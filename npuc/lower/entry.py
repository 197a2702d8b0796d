"""An entry's graph becomes its task graph: walk, find room, choose tile sizes, stamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuc.frontend.errors import Problems
from npuc.graph.entry import EntryGraph, StateSpec
from npuc.lower.consts import ConstPool
from npuc.lower.context import KernelCall
from npuc.lower.errors import LoweringRefused
from npuc.lower.fit import Choice, choose, smallest_plan
from npuc.lower.forms import FormChooser
from npuc.lower.homes import crowding, largest_at, live_bytes, lives
from npuc.lower.library import BindingError, Library
from npuc.lower.storage import Storage
from npuc.lower.walk import walk
from npuc.tasks import Buffer, Origin, Role, Task, TaskGraph
from npuc.tile import KernelError, TraceCache
from npurt.errors import BytecodeError

# A share of the scratchpad stays free of whole values, so that kernels have tiles to stream through.
VALUES_SHARE = 0.5
MOST_BUFFERS = 6  # that a message lists


@dataclass(frozen=True)
class Lowered:
    """One entry's tasks, and for the report the kernel and the tile sizes of each call."""

    graph: TaskGraph
    choices: list[tuple[KernelCall, Choice]]
    ddr_values: tuple[str, ...]


def lower(entry: EntryGraph, states: list[StateSpec], buffers: dict[str, Buffer], storage: Storage, consts: ConstPool,
          cache: TraceCache, memory: str, memory_bytes: int, forms: FormChooser) -> Lowered:  # fmt: skip
    """Tasks of one entry for a scratchpad `memory` of which `memory_bytes` may be used.

    Needs a static graph of ops that have rules. Values that do not fit beside the tiles are declared DDR, the largest
    at the tightest place first. Raises LoweringRefused if a call does not fit even then.
    """
    ddr: frozenset[str] = frozenset()
    while True:
        calls = walk(entry, states, buffers, storage, consts, ddr, memory, forms.library, forms.target)
        moved = crowding(calls, memory, int(memory_bytes * VALUES_SHARE))
        if not moved:
            choices, moved = _choices(calls, cache, memory, memory_bytes, forms)
        if not moved:
            tasks = _stamp(entry, calls, choices)
            return Lowered(tasks, list(zip(calls, choices, strict=True)), tuple(sorted(ddr)))
        ddr |= moved


def _choices(
    calls: Sequence[KernelCall], cache: TraceCache, memory: str, memory_bytes: int, forms: FormChooser
) -> tuple[list[Choice], frozenset[str]]:
    """Tile sizes of every call beside the values that live during it, or the names of values that must make room."""
    found = lives(calls, memory)
    live = live_bytes(found, len(calls))
    choices: list[Choice] = []
    moved: set[str] = set()
    problems = Problems()
    of_author: dict[str, str] = {}  # faults of the caller's kernels, in several lines: the first of each
    for index, call in enumerate(calls):
        try:
            free = memory_bytes - live[index]
            choice = forms.choose(call, cache, free) or choose(call, cache, free, forms.library)
        except BindingError as error:
            problems.add(f"node {call.node}: {error}")
            continue
        except (KernelError, BytecodeError) as error:  # types of its arrays that a kernel cannot compute
            what = f"node {call.node}: kernel {call.kernel} over {_arrays(call)}"
            if forms.library.binding(call.kernel) is not None:
                of_author.setdefault(call.kernel, f"{what}: {error}")  # with the author's own line
            else:
                problems.add(f"{what}: {error.reason if isinstance(error, KernelError) else error}")
            continue
        largest = largest_at(found, index)
        if choice is not None:
            choices.append(choice)
        elif largest is None:
            what = _too_big(call, memory, memory_bytes)
            if forms.library.binding(call.kernel) is not None:
                of_author.setdefault(call.kernel, what + _buffers(call, cache, forms.library))
            else:
                problems.add(what)
        else:
            moved.add(largest.name)
    if problems or of_author:
        raise LoweringRefused([*problems.messages(), *of_author.values()])
    return choices, frozenset(moved)


def _stamp(entry: EntryGraph, calls: Sequence[KernelCall], choices: Sequence[Choice]) -> TaskGraph:
    tasks: list[Task] = []
    for number, (call, choice) in enumerate(zip(calls, choices, strict=True)):
        origin = Origin(entry=entry.label, node=call.node, kernel=choice.kernel)
        tasks += choice.trace.instantiate(choice.arrays, origin, f"{call.node}#{number}")
    return TaskGraph(entry.label, _needed(tasks), entry.rows, entry.capacity)


def _needed(tasks: list[Task]) -> list[Task]:
    """Without those whose results nobody reads: a table that no chosen form of attention takes."""
    read = {region.buffer for task in tasks for region in task.reads}
    return [task for task in tasks if any(r.buffer in read or r.buffer.role is not Role.LOCAL for r in task.writes)]


def _arrays(call: KernelCall) -> str:
    """Shapes and element types of a call, for messages."""
    return ", ".join(f"{list(region.shape)} {region.dtype.label}" for region in call.arrays if region is not None)


def _buffers(call: KernelCall, cache: TraceCache, library: Library) -> str:
    """What the smallest tiles of a call need: the largest buffers, with the author's lines."""
    plan = smallest_plan(call, cache, library)
    largest = sorted(plan.buffers, key=lambda buffer: -buffer.nbytes)[:MOST_BUFFERS]
    return "".join(f"\n  {b.nbytes:>10} B  {b.name} {b.dtype}{list(b.shape)} ({b.where})" for b in largest)


def _too_big(call: KernelCall, memory: str, memory_bytes: int) -> str:
    return (
        f"node {call.node}: kernel {call.kernel} over {_arrays(call)} does not fit into {memory_bytes / 1024:.0f} KiB "
        f"of {memory} with its smallest tiles; a shorter --chunk or a smaller capacity would"
    )
