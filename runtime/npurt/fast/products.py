"""Matrix products as NumPy calls: BLAS in float32 on views, then scale, table, clamp and rounding in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npurt.fast.codes import Codes, numbers_of
from npurt.fast.context import Array, Call, Context, into
from npurt.fast.ops import Mma


def product_calls(op: Mma, context: Context) -> list[Call]:
    """The calls of one product."""
    if op.codes is not None:
        return _coded_calls(op, op.codes, context)
    memory = context.memory
    a, b, c = (memory.view(ref) for ref in (op.a, op.b, op.c))
    if not op.kn:
        b = np.swapaxes(b, -1, -2)
    if op.cut is not None:
        return [(_cut_rows(op, a, b, c, context), ())] if op.kn else [(_cut_columns(op, a, b, c, context), ())]
    if c.shape[0] == 1:
        a, b, c = a[0], b[0], c[0]
    post = _post(op, context)
    if not op.adds:
        return [_multiply(a, b, c), *post(c)]
    part = context.pool.take(c.shape)
    calls: list[Call] = [_multiply(a, b, part), *post(part, False), (np.add, (c, part, c))]
    context.pool.give(part)
    return [*calls, *(context.rounding(c, c, op.c.dtype) if op.rounds else [])]


def _coded_calls(op: Mma, codes: Codes, context: Context) -> list[Call]:
    """A product whose second operand holds codes: its numbers are at hand, or are computed first."""
    numbers = numbers_of(op.b, codes, op.whole, context.memory)
    a, c = context.memory.view(op.a)[0], context.memory.view(op.c)[0]
    post, part = _post(op, context), context.pool.take(c.shape) if op.adds else c
    calls: list[Call] = (
        [(_multiply_numbers, (numbers, a, part))] if callable(numbers) else [_multiply(a, numbers.T, part)]
    )
    calls += post(part, not op.adds)
    if op.adds:
        calls.append((np.add, (c, part, c)))
        context.pool.give(part)
        calls += context.rounding(c, c, op.c.dtype) if op.rounds else []
    return calls


def _multiply_numbers(numbers: Callable[[], Array], a: Array, out: Array) -> None:
    np.matmul(a, numbers().T, out)


def _multiply(a: Array, b: Array, out: Array) -> Call:
    """dot is the cheaper door to BLAS, and takes only contiguous results."""
    if a.ndim == 2 and out.flags.c_contiguous and out.dtype == np.float32:
        return np.dot, (a, b, out)
    return np.matmul, (a, b, out)


def _post(op: Mma, context: Context) -> Callable[..., list[Call]]:
    """Calls for what follows the sum, in place."""
    table = None if op.table is None else context.memory.view(op.table)

    def calls(c: Array, rounds: bool = True) -> list[Call]:
        found: list[Call] = []
        if op.scale != 1:
            found.append((np.multiply, (c, np.array(op.scale, np.float32), c)))
        if table is not None:
            found += [(np.multiply, (c, table[:, 0], c)), (np.add, (c, table[:, 1], c))]
        if op.clamp is not None:
            low, high = (np.array(bound, np.float32) for bound in op.clamp)
            found += [into(np.maximum, c, c, low), into(np.minimum, c, c, high)]
        if rounds and op.rounds:
            found += context.rounding(c, c, op.c.dtype)
        return found

    return calls


def _cut_columns(op: Mma, a: Array, b: Array, c: Array, context: Context) -> Callable[[], None]:
    """b is [batch, k, n] and only its first columns hold values: the other columns of c are zero, up to the end of the
    last block that has a value."""
    assert op.cut is not None
    amount, step, post = op.cut.amount, context.step, _post(op, context)
    ends = (0, *op.cut.edges) if op.cut.edges else (op.cut.amount.most,)

    def multiply() -> None:
        count = min(max(step[amount.step] + amount.plus, 0), amount.most)
        part = c[:, :, :count]
        if op.adds:
            total = np.matmul(a, b[:, :, :count])
            for function, arguments in post(total, False):
                function(*arguments)
            part += total
            if op.rounds:
                context.round_now(part, part, op.c.dtype)
            return
        np.matmul(a, b[:, :, :count], part)
        c[:, :, count : next(edge for edge in ends if edge >= count)] = 0
        for function, arguments in post(part, False):
            function(*arguments)
        if op.rounds:
            context.round_now(part, part, op.c.dtype)

    return multiply


def _cut_rows(op: Mma, a: Array, b: Array, c: Array, context: Context) -> Callable[[], None]:
    """b is [batch, k, n] and only its first rows hold values."""
    assert op.cut is not None
    amount, step, post = op.cut.amount, context.step, _post(op, context)
    rounds = op.rounds

    def multiply() -> None:
        count = min(max(step[amount.step] + amount.plus, 0), amount.most)
        total = np.matmul(a[:, :, :count], b[:, :count])
        for function, arguments in post(total, False):
            function(*arguments)
        if op.adds:
            np.add(c, total, c)
        else:
            np.copyto(c, total)
        if rounds:
            context.round_now(c, c, op.c.dtype)

    return multiply
