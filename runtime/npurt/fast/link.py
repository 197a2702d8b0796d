"""From an entry to a list of calls: lift, settle the planes, the two link passes, then one or few calls for each task.

1. lift      records -> tasks in an order that the barriers allow; reread: numbers among bytes of constants
   period    where layers are equal, steps 2 to 5 see a few of them, and the others are copies
2. settle    conversions where a task reads memory as another type than it was written
3. alias     readers of a copy read its source; results that are only copied on are written where the copy puts them
4. join      neighbouring tiles of one product become one call; rename: tiles that take turns become neighbours
5. widen     products that vector programs alone read are not rounded
6. emit      calls on prepared views
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npurt.abi.records import BaseKind, Step
from npurt.fast import attention
from npurt.fast.alias import alias
from npurt.fast.cells import Cells
from npurt.fast.codes import whole_of
from npurt.fast.context import Call, Context
from npurt.fast.emit import Emitter
from npurt.fast.join import join
from npurt.fast.lift import lift
from npurt.fast.masked_softmax import Softmaxes
from npurt.fast.memory import Memory
from npurt.fast.moves import needs
from npurt.fast.ops import Copy, Mma, Op
from npurt.fast.owners import settle
from npurt.fast.period import Shortened, find_period
from npurt.fast.prune import prune
from npurt.fast.refs import Ref
from npurt.fast.rename import rename
from npurt.fast.reread import reread
from npurt.fast.sink import sink
from npurt.fast.uses import widen
from npurt.image import Entry, Image


@dataclass(frozen=True)
class LinkOptions:
    """alias, join: the link passes. stamp: equal layers are linked once.

    rounding: "grid" rounds each f16 or bf16 store to the type, "none" keeps float32.
    budget: bytes for decoded constants, None for a quarter of the machine's memory.
    """

    alias: bool = True
    join: bool = True
    attention: bool = True
    stamp: bool = True
    rounding: str = "grid"
    budget: int | None = None


@dataclass
class LinkStats:
    """tasks: of the entry. linked: those that the passes saw. kept: after the passes. calls: of one run. seconds: of
    linking."""

    tasks: int = 0
    linked: int = 0
    kept: int = 0
    calls: int = 0
    seconds: float = 0.0


@dataclass
class LinkedEntry:
    """The calls of one entry. limits: shifted views as (step field, largest value with no row, rows touched)."""

    calls: list[Call]
    before: list[Call]
    limits: frozenset[Limit]
    stats: LinkStats = field(default_factory=LinkStats)

    def fault(self, step: Mapping[Step, int]) -> str | None:
        """Why a step may not run, None if it may."""
        for limit in self.limits:
            if not limit.holds(step):
                return f"{limit.rows_text} from row {step[limit.step]} on leave a buffer with room for {limit.room}"
        return None

    def run(self) -> None:
        """One pass over the calls. The context holds the step."""
        with np.errstate(all="ignore"):
            for function, arguments in self.before:
                function(*arguments)
            for function, arguments in self.calls:
                function(*arguments)


@dataclass(frozen=True)
class Limit:
    """A view whose rows begin at `step` in a buffer that has `room` rows from there."""

    step: Step
    room: int
    rows: int
    valid: tuple[Step, int] | None

    def holds(self, step: Mapping[Step, int]) -> bool:
        rows = self.rows
        if self.valid is not None:
            rows = min(max(step[self.valid[0]] + self.valid[1], 0), rows)
        return rows == 0 or step[self.step] + rows <= self.room

    @property
    def rows_text(self) -> str:
        return f"up to {self.rows} rows"


def link(image: Image, entry: Entry, context: Context, homes: Mapping[int, Ref], options: LinkOptions) -> LinkedEntry:
    """The calls of an entry. homes: see `settle`. Errors: LinkError where the prepared form cannot run it."""
    clock = time.perf_counter()
    constant = context.memory.constant
    local = {*image.base_rows(BaseKind.CMX), *image.base_rows(BaseKind.SCRATCH), context.memory.spare}
    ops = lift(image, entry, context.memory)
    stats = LinkStats()
    stats.tasks = stats.linked = len(ops)
    limits = _limits(ops, context)
    softmaxes = Softmaxes()

    def passed(ops: list[Op]) -> list[Op]:
        return _passes(ops, context.memory, local, homes, softmaxes, options)

    states = set(image.base_rows(BaseKind.STATE))
    period = find_period(ops, constant, states) if options.stamp else None
    if period is None:
        ops = passed(ops)
    else:
        short = Shortened(ops, period, constant, states)
        stats.linked = len(short.ops)
        stamped = short.lengthened(passed(short.ops))
        if stamped is None:  # the passes have changed tasks, so all of them are lifted again
            stats.linked = stats.tasks
        ops = stamped or passed(lift(image, entry, context.memory))
    if options.attention and any(softmaxes.of(op) for op in ops):
        cells = _cells(ops, constant)
        groups = attention.find(ops, cells, local, context, softmaxes)
        ops = prune(ops, cells, local, groups.touched) if groups else ops
    else:
        groups = None
    _share_weights(ops, constant)
    emitter = Emitter(image, context)
    calls = emitter.emit(ops, groups)
    before = groups.before() if groups is not None else []
    stats.kept, stats.calls, stats.seconds = len(ops), len(calls), time.perf_counter() - clock
    return LinkedEntry(calls, before, limits, stats)


def _passes(
    ops: list[Op], memory: Memory, local: set[int], homes: Mapping[int, Ref], softmaxes: Softmaxes, options: LinkOptions
) -> list[Op]:
    """The tasks after all passes that look at neighbours."""
    constant = memory.constant
    if options.alias:
        reread(ops, constant)
    ops = settle(ops, constant, homes, softmaxes.ignored)
    cells = Cells(ops, constant)
    if options.alias:
        ops = sink(ops, cells)
        alias(ops, cells)
    ops = prune(ops, cells, local)
    if options.join:
        room = rename(ops, cells, local, memory.spare)
        if room:
            memory.put(memory.spare, np.zeros(room, np.uint8))
            cells = _cells(ops, constant)
        ops = join(ops, cells)
        if options.alias:
            ops = join(sink(ops, cells), cells)
        ops = prune(ops, cells, local)
    widen(ops, cells, local)
    return ops


def _cells(ops: Sequence[Op], constant: int) -> Cells:
    """Other cells than those that operands know."""
    for op in ops:
        op.changed()
    return Cells(ops, constant)


def _share_weights(ops: Sequence[Op], constant: int) -> None:
    """Lets products with tiles of one packed weight know all of it."""
    coded = [(op, op.b, op.codes) for op in ops if isinstance(op, Mma) and op.codes is not None]
    for (op, _, _), whole in zip(coded, whole_of([(b, codes) for _, b, codes in coded], constant), strict=True):
        op.whole = whole


def _limits(ops: Sequence[Op], context: Context) -> frozenset[Limit]:
    found = set()
    for op in ops:
        for ref, shift, valid in needs(op) if isinstance(op, Copy) else ():
            size = context.memory.raw[ref.base].size
            rows = ref.shape[op.row_dim] if isinstance(op, Copy) else 0
            low, high = ref.hull
            if shift.stride == 0:
                continue
            spare = (size - high) // shift.stride if shift.stride > 0 else low // -shift.stride
            amount = None if isinstance(valid, int) else (valid.step, valid.plus)
            found.add(Limit(shift.step, rows + spare, valid if isinstance(valid, int) else rows, amount))
    return frozenset(found)
