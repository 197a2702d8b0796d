"""From the operations of a trace to the task template: which engine does what, and where each tile lies.

A tile has a home in memory (a loaded buffer, an on-chip array, a product's destination) or lives in a register of the
open SHAVE fragment. The fragment stays open as long as possible; it is closed, and what lives on is written to buffers,
when another engine needs a value from it or touches memory that it reads or writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from npuc.tasks import CallOp
from npuc.tasks.graph import TaskOp
from npuc.tile import flags, indexed_moves, moves, products
from npuc.tile.affine import Affine
from npuc.tile.conditions import Conditions
from npuc.tile.errors import Loc
from npuc.tile.fragment import Fragment, PendingStore
from npuc.tile.liveness import live_operations
from npuc.tile.record import ClassTrace
from npuc.tile.tasklist import TaskList
from npuc.tile.template import SHAVE, LocalBuffer, Template
from npuc.tile.trace import (
    AnyCondition,
    EndRun,
    Fill,
    FlagCondition,
    Gather,
    Load,
    Memory,
    Mma,
    Scalar,
    Scatter,
    Store,
    Value,
    Vector,
)
from npuc.tile.types import ArrayType, dense_stride
from npuc.tile.views import View
from npurt.abi.dtypes import DType


def lower(trace: ClassTrace, kernel: str, types: Sequence[ArrayType | None], names: Sequence[str]) -> Template:
    """The task template of one traced class of programs. types, names: of the kernel's array arguments."""
    lowering = Lowering(trace, kernel, types, names)
    lowering.run()
    return Template(trace.ranges, tuple(lowering.tasks.tasks), tuple(lowering.buffers))


class Lowering:
    """The state of one walk over the operations."""

    def __init__(self, trace: ClassTrace, kernel: str, types: Sequence[ArrayType | None], names: Sequence[str]) -> None:
        self.ops, self.uses = live_operations(trace.ops)
        self.kernel, self.types, self.names = kernel, types, names
        self.tasks = TaskList()
        self.buffers: list[LocalBuffer] = []
        self.homes: dict[int, View] = {}
        self.transfers: dict[int, Load] = {}  # homes that are still in DDR: how to fetch them
        self.arrays: dict[int, Value] = {}  # values whose home is an array that a store may overwrite
        self.generators: dict[int, Vector | Scalar] = {}  # numbers made from nothing: computed again wherever needed
        self.postponed: dict[int, Vector] = {}  # changes of shape that a view of the written operand will show
        self.conditions = Conditions()
        self.fragment: Fragment | None = None
        self.pending: list[PendingStore] = []
        self.backing: dict[int, View] = {}  # values of the fragment that it has also stored whole
        self.folded: set[int] = set()  # positions done by an earlier task
        self.when: AnyCondition | None = None
        self.position = 0
        self.locals = [self.buffer(f"local{m.slot}", m.type.dtype, m.type.shape, m.loc) for m in trace.locals]

    def run(self) -> None:
        for position, recorded in enumerate(self.ops):
            self.position = position
            if recorded.when is not self.when:
                self._enter(recorded.when)
            if position in self.folded:
                continue
            match recorded.op:
                case Load() as op:
                    moves.lower_load(self, op)
                case Store() as op:
                    moves.lower_store(self, op)
                case Gather() as op:
                    indexed_moves.lower_gather(self, op)
                case Scatter() as op:
                    indexed_moves.lower_scatter(self, op)
                case Fill() as op:
                    moves.lower_fill(self, op)
                case Mma() as op:
                    products.lower_mma(self, op)
                case Scalar() as op:
                    self.generators[op.out.id] = op
                case EndRun():
                    self.close()
                case Vector() as op:
                    self._vector(op)
        self.position = len(self.ops)
        self.close()

    def _enter(self, when: AnyCondition | None) -> None:
        """Ends what the previous condition covers; a flag is brought to memory before its block."""
        if self.when is not None:
            self.close()
        self.when = self.tasks.flag = None
        if isinstance(when, FlagCondition):
            self.tasks.flag = flags.place(self, when)
        self.close()
        self.when = when

    # --- places

    def buffer(self, name: str, dtype: DType, shape: tuple[int, ...], loc: Loc | None) -> View:
        """A fresh dense local buffer."""
        slot = len(self.types) + len(self.buffers)
        place = loc or Loc("<kernel>", 0, 1, 1)
        nbytes = math.prod(shape) * dtype.nbytes
        self.buffers.append(LocalBuffer(slot, name, dtype, shape, nbytes, "cmx", place))
        return View(slot, Affine(0), dtype, shape, dense_stride(dtype, shape), True)

    def view(self, memory: Memory) -> View:
        """The whole of an array."""
        if memory.local:
            return self.locals[memory.slot]
        type_ = memory.type
        return View(memory.slot, Affine(0), type_.dtype, type_.shape, type_.stride, type_.on_chip)

    def name(self, memory: Memory) -> str:
        return f"local{memory.slot}" if memory.local else self.names[memory.slot]

    def settle(self, value: Value, loc: Loc) -> View:
        """The on-chip home of a value; what has none yet is fetched or written to a buffer."""
        self.check_condition(value, loc)
        if value.id in self.transfers:
            moves.fetch(self, value)
        if value.id in self.postponed:
            move = self.postponed.pop(value.id)
            view = moves.moved_view(move, self.settle(move.args[0], loc))
            if view is None:
                self._compute(move)
            else:
                self.homes[value.id] = view
        if value.id not in self.homes:
            self.register(value, loc)
            self.opened(loc).values[value.id] = value
            self.close()
        return self.homes[value.id]

    # --- the open fragment

    def opened(self, loc: Loc) -> Fragment:
        if self.fragment is None:
            self.fragment = Fragment(loc)
        return self.fragment

    def register(self, value: Value, loc: Loc) -> None:
        """Brings `value` into a register of the open fragment."""
        fragment = self.opened(loc)
        if value.id in fragment.registers:
            return
        self.check_condition(value, loc)
        if value.id in self.generators:
            generator = self.generators[value.id]
            if isinstance(generator, Scalar):
                fragment.scalar(generator)
            else:
                for arg in generator.args:
                    self.register(arg, loc)
                fragment.compute(generator)
            fragment.values.pop(value.id, None)  # computed again elsewhere, never kept
            return
        if value.id in self.transfers:
            moves.fetch(self, value)
        fragment.load(value, self.homes[value.id])

    def _vector(self, op: Vector) -> None:
        if all(arg.id in self.generators for arg in op.args):
            self.generators[op.out.id] = op
            return
        if moves.as_view(self, op):
            return
        if op.op in moves.MOVES and moves.only_multiplied(self, op.out):
            self.postponed[op.out.id] = op
            self.uses[op.args[0].id].extend(self.uses[op.out.id])
            return
        self._compute(op)

    def _compute(self, op: Vector) -> None:
        for arg in op.args:
            self.register(arg, op.loc)
        self.opened(op.loc).compute(op)
        self.conditions.made(op.out, self.when)

    def close_if_done(self) -> None:
        """Ends the fragment where nothing it holds is used again: later work would only be delayed with it."""
        if self.fragment is not None:
            held = [id_ for id_ in self.fragment.registers if id_ not in self.generators]
            if not any(use > self.position for id_ in held for use in self.uses.get(id_, ())):
                self.close(self.position + 1)

    def close(self, since: int | None = None) -> None:
        """Ends the open fragment: writes what lives on, emits its run, then the transfers that waited for it.

        since: the first position whose operation may still need a value, by default the present one.
        """
        start = self.position if since is None else since
        fragment = self.fragment
        if fragment is None:
            return
        self.fragment = None
        written: dict[tuple[int, DType], View] = {}
        for value in fragment.values.values():
            if value.id in self.homes or not any(use >= start for use in self.uses.get(value.id, ())):
                continue
            if value.id in self.backing:
                self.homes[value.id] = self.backing[value.id]
                self.arrays[value.id] = value
                continue
            self.homes[value.id] = written[value.id, value.dtype] = self._write(fragment, value, value.dtype)
        pending, self.pending, self.backing = self.pending, [], {}
        for waiting in pending:
            key = (waiting.value.id, waiting.destination.dtype)
            if key not in written:
                written[key] = self._write(fragment, waiting.value, waiting.destination.dtype)
        self._emit_call(fragment)
        for waiting in pending:
            at = waiting.destination
            moves.emit_copy(self, written[waiting.value.id, at.dtype], at, None, waiting.store)

    def _write(self, fragment: Fragment, value: Value, dtype: DType) -> View:
        view = self.buffer(f"tile{value.id}", dtype, value.shape, fragment.locs.get(value.id, fragment.loc))
        fragment.store(value, view)
        return view

    def _emit_call(self, fragment: Fragment) -> None:
        number = self.tasks.number("call")
        scalars = tuple((i, value) for i, (_, value) in enumerate(fragment.args) if isinstance(value, Affine))
        args = tuple((kind, 0 if isinstance(value, Affine) else value) for kind, value in fragment.args)
        op = CallOp(f"{self.kernel}.{number}", fragment.program.bytes(), args)
        self.append(SHAVE, op, fragment.reads, fragment.writes, "call", fragment.loc, scalars=scalars)

    def await_store(self, value: Value, destination: View, store: Store) -> None:
        """Queues a transfer of a register's value until the fragment has written it to a buffer."""
        self.pending.append(PendingStore(value, destination, store))

    # --- tasks

    def emit(self, engine: str, op: TaskOp, reads: Sequence[View], writes: Sequence[View], stage: str, loc: Loc,
             valid_add: Affine | None = None) -> None:  # fmt: skip
        """A task beside the open fragment, which is closed first where the two touch the same memory."""
        self._close_if_met(reads, writes)
        for view in writes:
            self.protect(view, loc)
        self._close_if_met(reads, writes)  # what has been protected is written to buffers
        self.append(engine, op, reads, writes, stage, loc, valid_add)

    def append(self, engine: str, op: TaskOp, reads: Sequence[View], writes: Sequence[View], stage: str, loc: Loc,
               valid_add: Affine | None = None, scalars: tuple[tuple[int, Affine], ...] = ()) -> None:  # fmt: skip
        self.tasks.add(engine, op, reads, writes, stage, loc, self.when, valid_add, scalars)

    def _close_if_met(self, reads: Sequence[View], writes: Sequence[View]) -> None:
        if self.fragment is None:
            return
        written = [*self.fragment.writes, *(waiting.destination for waiting in self.pending)]
        touched = [*written, *self.fragment.reads]
        if any(r.meets(w) for r in reads for w in written) or any(w.meets(v) for w in writes for v in touched):
            self.close()

    def protect(self, destination: View, loc: Loc) -> None:
        """Before `destination` is overwritten: values read in place there, and needed later, move into registers."""
        self.backing = {id_: view for id_, view in self.backing.items() if not view.meets(destination)}
        for value in list(self.arrays.values()):
            home = self.homes.get(value.id)
            if home is None or not home.meets(destination):
                continue
            later = [use for use in self.uses.get(value.id, ()) if use > self.position]
            if later:
                self.conditions.check_overwrite(self.when, [self.ops[use].when for use in later], loc)
                self.register(value, loc)
                self.opened(loc).values[value.id] = value
                del self.homes[value.id]
            del self.arrays[value.id]

    def made_by_task(self, value: Value, home: View) -> None:
        """Notes the home that a task of the current condition gave to a value."""
        self.homes[value.id] = home
        self.conditions.made(value, self.when)

    def check_condition(self, value: Value, loc: Loc) -> None:
        """KernelError where `value` may not have been computed."""
        self.conditions.check_use(value, self.when, loc)
