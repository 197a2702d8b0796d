"""Attention's scores and weights in a compact buffer: products, a masked softmax, and products again.

A group is a vector task that is a masked softmax, the products that alone made its scores, and the products that alone
read its weights, cut into the same pieces of columns. Its tasks stay where they are in the order; only the memory
between them changes, which nobody else sees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from math import prod

from npurt.fast.attention_calls import Group, mixture_call, scores_call, softmax_call
from npurt.fast.cells import Cells
from npurt.fast.columns import Columns, Part, Piece
from npurt.fast.context import Array, Call, Context
from npurt.fast.dag import Dag
from npurt.fast.masked_softmax import MaskedSoftmax, Softmaxes, evaluate
from npurt.fast.ops import Access, Mma, Op
from npurt.fast.ops import Call as Vector
from npurt.fast.refs import Ref, plane_of
from npurt.fast.uses import uses


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

    def touched(self, op: Op) -> tuple[list[Access], list[Access]] | None:
        """What a task of a group reads and writes outside its group's buffer; None for every other task."""
        group = self._of.get(id(op))
        if group is None:
            return None
        if id(op) in group.before:
            return [access for access in op.reads if access.slot != "c"], []
        if id(op) in group.after:
            return [access for access in op.reads if access.slot != "a"], op.writes
        return [], []

    def calls(self, op: Op) -> list[Call] | None:
        """The calls of a task of a group, in the order of the tasks; None for every other task."""
        group = self._of.get(id(op))
        if group is None:
            return None
        pool = self._context.pool
        if group.buffer is None:
            group.buffer = pool.take((group.columns.words,))
        if op is group.softmax:
            made = softmax_call(group, group.buffer, self._context)
        elif id(op) in group.before:
            made = scores_call(*group.before[id(op)], group, group.buffer, self._context)
        else:
            made = mixture_call(*group.after[id(op)], group, group.buffer, self._context)
        group.left -= 1
        if not group.left:
            pool.give(group.buffer)
        return [(made, ())]


def find(ops: Sequence[Op], cells: Cells, local: Set[int], context: Context, softmaxes: Softmaxes) -> Groups:
    """The groups among the tasks of an entry."""
    groups = Groups(context)
    candidates = {number: found for number, op in enumerate(ops) if (found := softmaxes.of(op)) and op.pred is None}
    if not candidates:
        return groups
    makers, readers = uses(ops, cells)
    for number, (dag, form) in candidates.items():
        softmax = ops[number]
        assert isinstance(softmax, Vector)
        group = _group(ops, softmax, dag, form, makers[number], readers, number, local, groups, context)
        if group is not None:
            groups.add(group)
    return groups


def _group(
    ops: Sequence[Op], softmax: Vector, dag: Dag, form: MaskedSoftmax, makers: Sequence[int],
    readers: dict[int, set[int]], number: int, local: Set[int], groups: Groups, context: Context,
) -> Group | None:  # fmt: skip
    scores, weights = softmax.args[form.scores], softmax.args[form.weights]
    assert isinstance(scores, Ref) and isinstance(weights, Ref)
    if (
        scores.base not in local
        or weights.base not in local
        or not scores.dtype.is_float
        or scores.plane is not plane_of(scores.dtype)
    ):
        return None
    inputs = [ops[maker] for maker in makers]
    outputs = [ops[reader] for reader in sorted(readers.get(number, ()))]
    if not outputs or any(readers.get(maker) != {number} for maker in makers):
        return None
    pieces: list[Piece] = []
    before: dict[int, tuple[Mma, Part]] = {}
    for op in inputs:
        if not isinstance(op, Mma) or op.pred is not None or op.adds or op.kn or not op.plain:
            return None
        place = _place(op.c, scores)
        if place is None:
            return None
        piece = Piece(place[1], op.c.shape[2], op.cut.amount if op.cut else None)
        if piece not in pieces:
            pieces.append(piece)
        before[id(op)] = op, Part(place[0], op.c.shape[0], op.c.shape[1], pieces.index(piece))
    after: dict[int, tuple[Mma, Part]] = {}
    spans = [(piece.first, piece.count) for piece in pieces]
    for op in outputs:
        if not isinstance(op, Mma) or op.pred is not None or not op.kn or not op.plain:
            return None
        place = _place(op.a, weights)
        if place is None or (place[1], op.a.shape[2]) not in spans:
            return None
        after[id(op)] = op, Part(place[0], op.a.shape[0], op.a.shape[1], spans.index((place[1], op.a.shape[2])))
    height = prod(scores.shape[:-1])
    scales = {op.scale for op, _ in before.values()}
    if (
        not all(_complete([part for _, part in side.values()], len(pieces), height) for side in (before, after))
        or len(scales) > 1
    ):
        return None
    scalars = tuple(arg for arg in softmax.args if not isinstance(arg, Ref))

    def make() -> Columns:
        def mask() -> Array:
            return evaluate(softmax, dag, form.mask, context.step)

        return Columns(mask, pieces, scores.shape[:-1], context.step)

    columns = groups.columns((id(softmax.program), scalars, tuple(pieces)), make)
    return Group(softmax, dag, form, columns, before, after)


def _complete(parts: Sequence[Part], pieces: int, height: int) -> bool:
    """Whether the products cover all rows of all pieces, each once."""
    for piece in range(pieces):
        at = 0
        for part in sorted((part for part in parts if part.piece == piece), key=lambda part: part.row):
            if part.row != at:
                return False
            at += part.batch * part.m
        if at != height:
            return False
    return True


def _place(part: Ref, whole: Ref) -> tuple[int, int] | None:
    """(row, column) of `whole` [..., columns] at which the view `part` [batch, m, n], some of its rows, starts."""
    item = whole.dtype.nbytes
    if (
        part.base != whole.base
        or part.plane is not whole.plane
        or part.dtype is not whole.dtype
        or whole.stride[-1] != item
    ):
        return None
    pace = _row_pace(whole.shape[:-1], whole.stride[:-1])
    mine = _row_pace(part.shape[:-1], part.stride[:-1])
    if pace is None or mine is None or (mine and mine != pace) or (part.stride[2] != item and part.shape[2] > 1):
        return None
    at = part.offset - whole.offset
    row, column = divmod(at, pace) if pace else (0, at)
    if column % item or not 0 <= column // item <= whole.shape[-1] - part.shape[2]:
        return None
    return row, column // item


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
