"""The calls of attention: products into and out of a compact buffer of scores, and the softmax between, in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npurt.abi.bytecode import Op as Code
from npurt.abi.dtypes import DType
from npurt.fast.columns import Columns, Part
from npurt.fast.context import Array, Context
from npurt.fast.dag import Dag, Fused
from npurt.fast.masked_softmax import MaskedSoftmax
from npurt.fast.ops import Call as Vector
from npurt.fast.ops import Mma
from npurt.fast.refs import Ref

_UFUNC: dict[Code | Fused, Callable[..., Any]] = {
    Code.MUL: np.multiply, Code.DIV: np.divide, Code.ADD: np.add, Code.SUB: np.subtract, Code.TANH: np.tanh,
    Code.NEG: np.negative,
}  # fmt: skip


@dataclass
class Group:
    """One softmax with its products. before, after: its products by `id`, and what of the scores they
    give and of the weights they take."""

    softmax: Vector
    dag: Dag
    form: MaskedSoftmax
    columns: Columns
    before: dict[int, tuple[Mma, Part]]
    after: dict[int, tuple[Mma, Part]]
    buffer: Array | None = None
    left: int = 0


def scores_call(op: Mma, part: Part, group: Group, buffer: Array, context: Context) -> Callable[[], None]:
    memory, columns = context.memory, group.columns
    a, b = memory.view(op.a), np.swapaxes(memory.view(op.b), -1, -2)
    span, active = columns.span, columns.active

    def multiply() -> None:
        low, high = span[part.piece]
        into = columns.views(buffer).part(part)
        known = active[part.piece]
        if high <= known:
            if high > low:
                np.matmul(a, b[:, :, low:high], into)
            return
        into[...] = 0  # visible, and beyond what is loaded
        if known > low:
            np.matmul(a, b[:, :, low:known], into[:, :, : known - low])

    return multiply


def softmax_call(group: Group, buffer: Array, context: Context) -> Callable[[], None]:
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
        x, tops, totals = views.rows, views.tops, views.totals
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
        np.maximum.reduce(x, 1, None, tops, keepdims=True)
        if columns.blank:
            tops[tops == -np.inf] = 0
        np.subtract(x, tops, x)
        np.exp(x, x)
        np.add.reduce(x, 1, None, totals, keepdims=True)
        if columns.blank:
            totals[totals == 0] = 1
        np.divide(x, totals, x)
        if rounds:
            context.round_now(x, x, weights.dtype)

    return softmax


def mixture_call(op: Mma, part: Part, group: Group, buffer: Array, context: Context) -> Callable[[], None]:
    memory, columns = context.memory, group.columns
    b, c = memory.view(op.b), memory.view(op.c)
    span, step = columns.span, context.step
    amount = op.cut.amount if op.cut else None
    scale = None if op.scale == 1 else np.array(op.scale, np.float32)
    adds, dtype = op.adds, op.c.dtype
    rounds = dtype is not DType.F32

    def multiply() -> None:
        low, high = span[part.piece]
        known = high if amount is None else min(max(step[amount.step] + amount.plus, 0), amount.most, high)
        weights = columns.views(buffer).part(part)
        if known < high:
            weights = weights[:, :, : max(known - low, 0)]
        if known <= low:
            if not adds:
                c[...] = 0
            return
        if adds:
            total = np.matmul(weights, b[:, low:known])
            if scale is not None:
                np.multiply(total, scale, total)
            np.add(c, total, c)
        else:
            np.matmul(weights, b[:, low:known], c)
            if scale is not None:
                np.multiply(c, scale, c)
        if rounds:
            context.round_now(c, c, dtype)

    return multiply
