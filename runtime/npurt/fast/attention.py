"""Attention's scores and weights in a compact buffer: products, a masked softmax, and products again.

A group is a vector task that is a masked softmax, the products that alone made its scores, and the products that alone
read its weights, cut into the same pieces of columns. Its tasks stay where they are in the order; only the memory
between them changes, which nobody else sees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from npurt.abi.bytecode import Op as Code
from npurt.abi.dtypes import DType
from npurt.fast.cells import Cells
from npurt.fast.columns import Columns, Piece
from npurt.fast.context import Array, Call, Context
from npurt.fast.dag import Dag, build
from npurt.fast.masked_softmax import MaskedSoftmax, evaluate, recognise
from npurt.fast.ops import Call as Vector
from npurt.fast.ops import Mma, Op
from npurt.fast.refs import Plane, Ref

_UFUNC = {
    Code.MUL: np.multiply, Code.DIV: np.divide, Code.ADD: np.add, Code.SUB: np.subtract, Code.TANH: np.tanh, Code.NEG: np.negative,
}  # fmt: skip


@dataclass
class Group:
    """One softmax with its products. pieces: of each product before it and after it the place of its columns."""

    softmax: Vector
    dag: Dag
    form: MaskedSoftmax
    columns: Columns
    before: dict[int, tuple[Mma, int]] = field(default_factory=dict)
    after: dict[int, tuple[Mma, int]] = field(default_factory=dict)
    buffer: Array | None = None
    left: int = 0


class Groups:
    """All groups of an entry, and the calls of their tasks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of: dict[int, Group] = {}
        self._columns: dict[Hashable, Columns] = {}

    def __len__(self) -> int:
        return len({id(group) for group in self._of.values()})

    def before(self) -> list[Call]:
        """What a run does first: the columns follow the step."""
        return [(columns.update, ()) for columns in self._columns.values()]

    def add(self, group: Group) -> None:
        members = [group.softmax, *(op for op, _ in group.before.values()), *(op for op, _ in group.after.values())]
        group.left = len(members)
        for op in members:
            self._of[id(op)] = group

    def columns(self, key: Hashable, make: Callable[[], Columns]) -> Columns:
        if key not in self._columns:
            self._columns[key] = make()
        return self._columns[key]

    def calls(self, op: Op) -> list[Call] | None:
        """The calls of a task of a group, in the order of the tasks; None for every other task."""
        group = self._of.get(id(op))
        if group is None:
            return None
        pool = self._context.pool
        if group.buffer is None:
            height = group.columns._batch[0] * group.columns._batch[1]
            group.buffer = pool.take((height * (group.columns.most + 2),))
        if op is group.softmax:
            made = _softmax(group, group.buffer, self._context)
        elif id(op) in group.before:
            made = _scores(*group.before[id(op)], group, group.buffer, self._context)
        else:
            made = _mixture(*group.after[id(op)], group, group.buffer, self._context)
        group.left -= 1
        if not group.left:
            pool.give(group.buffer)
        return [(made, ())]


def find(ops: Sequence[Op], constant: int, local: Set[int], context: Context) -> Groups:
    """The groups among the tasks of an entry."""
    groups = Groups(context)
    dags: dict[int, tuple[Dag, MaskedSoftmax | None]] = {}
    candidates: dict[int, tuple[Dag, MaskedSoftmax]] = {}
    for number, op in enumerate(ops):
        if isinstance(op, Vector) and op.pred is None and not op.dead:
            if id(op.program) not in dags:
                dag = build(op.program, frozenset())
                dags[id(op.program)] = dag, recognise(dag)
            dag, form = dags[id(op.program)]
            if form is not None:
                candidates[number] = dag, form
    if not candidates:
        return groups
    makers, readers = _uses(ops, constant)
    for number, (dag, form) in candidates.items():
        softmax = ops[number]
        assert isinstance(softmax, Vector)
        group = _group(ops, softmax, dag, form, makers[number], readers, number, local, groups, context)
        if group is not None:
            groups.add(group)
    return groups


def _uses(ops: Sequence[Op], constant: int) -> tuple[dict[int, list[int]], dict[int, set[int]]]:
    """Of each task the tasks that made what it reads, and those that read what it made."""
    cells = Cells(ops, constant)
    track = cells.track(-1, np.int32)
    makers: dict[int, list[int]] = {}
    readers: dict[int, set[int]] = {}
    for number, op in enumerate(ops):
        found: set[int] = set()
        for access in op.reads:
            if access.ref.base != constant:
                found |= set(np.unique(track.get(access.ref)).tolist())
        makers[number] = sorted(found - {-1})
        for maker in makers[number]:
            readers.setdefault(maker, set()).add(number)
        for access in op.writes:
            track.set(access.ref, number)
    return makers, readers


def _group(
    ops: Sequence[Op], softmax: Vector, dag: Dag, form: MaskedSoftmax, makers: Sequence[int], readers: dict[int, set[int]],
    number: int, local: Set[int], groups: Groups, context: Context,
) -> Group | None:  # fmt: skip
    scores, weights = softmax.args[form.scores], softmax.args[form.weights]
    assert isinstance(scores, Ref) and isinstance(weights, Ref)
    if scores.base not in local or weights.base not in local or scores.plane is not Plane.RAW or scores.dtype is not DType.F32:
        return None
    inputs = [ops[maker] for maker in makers]
    outputs = [ops[reader] for reader in sorted(readers.get(number, ()))]
    if not outputs or any(readers.get(maker) != {number} for maker in makers):
        return None
    first: dict[int, tuple[Mma, int]] = {}
    pieces: list[Piece] = []
    places: dict[tuple[int, int], int] = {}
    for op in inputs:
        if not isinstance(op, Mma) or op.pred is not None or op.adds or not op.plain or op.kn or op.scale != inputs[0].scale:  # type: ignore[attr-defined]
            return None
        column = _columns(op.c, scores)
        if column is None:
            return None
        places[column, op.c.shape[2]] = len(pieces)
        first[id(op)] = op, len(pieces)
        pieces.append(Piece(column, op.c.shape[2], op.cut.amount if op.cut else None))
    after: dict[int, tuple[Mma, int]] = {}
    for op in outputs:
        if not isinstance(op, Mma) or op.pred is not None or not op.kn or not op.plain or op.b.base in local and op.b == op.a:
            return None
        column = _columns(op.a, weights)
        place = None if column is None else places.get((column, op.a.shape[2]))
        if place is None:
            return None
        after[id(op)] = op, place
    if len(after) != len(outputs) or {place for _, place in after.values()} != set(places.values()):
        return None
    shape = next(iter(first.values()))[0].c.shape[:2]
    if any(op.c.shape[:2] != shape for op, _ in first.values()) or any(op.a.shape[:2] != shape for op, _ in after.values()):
        return None
    scalars = tuple(arg for arg in softmax.args if not isinstance(arg, Ref))
    key = (id(softmax.program), scalars, tuple(pieces), shape)

    def make() -> Columns:
        mask: Callable[[], Array] = lambda: evaluate(softmax, dag, form.mask, context.step)  # noqa: E731
        return Columns(mask, pieces, scores.shape[:-1], (shape[0], shape[1]), context.step)

    return Group(softmax, dag, form, groups.columns(key, make), first, after)


def _columns(part: Ref, whole: Ref) -> int | None:
    """Which column of `whole` [..., columns] the view `part` [batch, m, n] starts at, if it has all rows of it."""
    item = whole.dtype.nbytes
    if part.base != whole.base or part.plane is not whole.plane or part.dtype is not whole.dtype or whole.stride[-1] != item:
        return None
    pace = _row_pace(whole.shape[:-1], whole.stride[:-1])
    mine = _row_pace(part.shape[:-1], part.stride[:-1])
    rows = int(np.prod(whole.shape[:-1]))
    if int(np.prod(part.shape[:-1])) != rows or pace is None or mine is None or (rows > 1 and pace != mine):
        return None
    at = part.offset - whole.offset
    if part.stride[2] != item and part.shape[2] > 1 or at % item or not 0 <= at // item <= whole.shape[-1] - part.shape[2]:
        return None
    return at // item


def _row_pace(shape: tuple[int, ...], stride: tuple[int, ...]) -> int | None:
    """Bytes from row to row where all leading dimensions together are one; None where they are not."""
    pace: int | None = None
    extent = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 1:
            continue
        if pace is None:
            pace = step
        elif step != pace * extent:
            return None
        extent *= size
    return pace if pace is not None else 0


def _scores(op: Mma, place: int, group: Group, buffer: Array, context: Context) -> Callable[[], None]:
    memory, columns = context.memory, group.columns
    a, b = memory.view(op.a), np.swapaxes(memory.view(op.b), -1, -2)
    span, active = columns.span, columns.active

    def multiply() -> None:
        low, high = span[place]
        part = columns.views(buffer).parts[place]
        known = active[place]
        if high <= known:
            if high > low:
                np.matmul(a, b[:, :, low:high], part)
            return
        part[...] = 0  # visible, and beyond what is loaded
        if known > low:
            np.matmul(a, b[:, :, low:known], part[:, :, : known - low])

    return multiply


def _softmax(group: Group, buffer: Array, context: Context) -> Callable[[], None]:
    columns, nodes = group.columns, group.dag.nodes
    scale = np.array(next(iter(group.before.values()))[0].scale, np.float32)
    scales = scale != 1
    chain = []
    for number in group.form.before:
        node = nodes[number]
        constants = [nodes[operand] for operand in node.operands if nodes[operand].op is Code.CONST]
        value = np.array(np.uint32(constants[0].imm).view(np.float32)) if constants else None
        chain.append((_UFUNC[node.op], value, bool(constants) and nodes[node.operands[0]].op is Code.CONST))
    weights = group.softmax.args[group.form.weights]
    assert isinstance(weights, Ref)
    rounds = context.grid and weights.dtype is not DType.F32
    hidden = np.array(-np.inf, np.float32)

    def softmax() -> None:
        views = columns.views(buffer)
        x, lows, tops = views.rows, views.lows, views.tops
        if not x.size:
            return
        if scales:
            np.multiply(x, scale, x)
        for function, value, first in chain:
            if value is None:
                function(x, x)
            else:
                function(*((value, x) if first else (x, value)), x)
        if columns.hidden is not None:
            np.copyto(views.shaped, hidden, where=columns.hidden)
        np.maximum.reduce(x, 1, None, tops, True)
        if columns.blank:
            tops[tops == -np.inf] = 0
        np.subtract(x, tops, x)
        np.exp(x, x)
        np.add.reduce(x, 1, None, lows, True)
        if columns.blank:
            lows[lows == 0] = 1
        np.divide(x, lows, x)
        if rounds:
            for function, arguments in context.rounding(x, x, weights.dtype):
                function(*arguments)

    return softmax


def _mixture(op: Mma, place: int, group: Group, buffer: Array, context: Context) -> Callable[[], None]:
    memory, columns = context.memory, group.columns
    b, c = memory.view(op.b), memory.view(op.c)
    span, step = columns.span, context.step
    amount = op.cut.amount if op.cut else None
    scale = None if op.scale == 1 else np.array(op.scale, np.float32)
    adds, dtype = op.adds, op.c.dtype
    rounds = dtype is not DType.F32

    def multiply() -> None:
        low, high = span[place]
        known = high if amount is None else min(max(step[amount.step] + amount.plus, 0), amount.most, high)
        part = columns.views(buffer).parts[place]
        if known < high:
            part = part[:, :, : max(known - low, 0)]
        if known <= low:
            if not adds:
                c[...] = 0
            return
        if adds:
            total = np.matmul(part, b[:, low:known])
            if scale is not None:
                np.multiply(total, scale, total)
            np.add(c, total, c)
        else:
            np.matmul(part, b[:, low:known], c)
            if scale is not None:
                np.multiply(c, scale, c)
        if rounds:
            for function, arguments in context.rounding(c, c, dtype):
                function(*arguments)

    return multiply
