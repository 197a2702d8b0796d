"""The programs of the vector units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.sparse_attention.problem import FRACTAL, THRESHOLD, TILE, TYPE, Problem
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder

LOWEST = -3.4028235e38
"""The running maximum of a row that has seen no key."""
F32, I32 = DType.F32, DType.I32
IN, OUT, INOUT = ArgMode.IN, ArgMode.OUT, ArgMode.INOUT


@dataclass(frozen=True)
class Code:
    """Bytes of each program of one problem."""

    check: bytes
    nd2nz: bytes
    softmax_first: bytes
    softmax: bytes
    skip_flag: bytes
    rescale: bytes
    denominator: bytes
    final: bytes
    final_sum: bytes


def code_of(problem: Problem) -> Code:
    return Code(
        _check(problem), _nd2nz(problem), _softmax(problem, first=True), _softmax(problem, first=False), _skip_flag(),
        _rescale(problem), _denominator(problem), _final(problem, kept=False), _final(problem, kept=True),
    )  # fmt: skip


def _check(problem: Problem) -> bytes:
    """indices, length, position of the first -> the indices, -1 where one is invalid or behind the length."""
    b = ProgramBuilder()
    index, length, start = b.arg(IN, I32, (problem.batch,)), b.arg(IN, I32, ()), b.scalar_arg()
    out = b.arg(OUT, I32, (problem.batch,))
    value = b.load(index)
    place = b.op(Op.ADD, b.iota((problem.batch,), 0), b.scalar(start))
    known = b.op(Op.AND, b.op(Op.GE, value, b.const(0, I32)), b.op(Op.LT, value, b.const(problem.keys, I32)))
    valid = b.op(Op.AND, known, b.op(Op.LT, place, b.load(length)))
    b.store(out, b.op(Op.WHERE, valid, value, b.const(-1, I32)))
    return b.bytes()


def _nd2nz(problem: Problem) -> bytes:
    """Rows [keys, dim] -> columns of fractals [dim / 16, keys, 16]; the padding spreads a vector over all banks."""
    b = ProgramBuilder()
    columns, keys = problem.dim // FRACTAL, problem.fetched
    line = FRACTAL * TYPE.nbytes
    rows = b.arg(IN, TYPE, (keys, problem.dim))
    out = b.arg(OUT, TYPE, (columns, keys, FRACTAL), ((keys + problem.pad) * line, line, TYPE.nbytes))
    b.store(out, b.transpose(b.reshape(b.load(rows), (keys, columns, FRACTAL)), (1, 0, 2)))
    return b.bytes()


def _softmax(problem: Problem, *, first: bool) -> bytes:
    """One block: scores, indices, running maximum, the maximum in use, sum -> weights as fractals, and new state.

    The state has also whether sums have been scaled in this query. Not first: gives the factor of the rows, and whether
    the sums must be scaled, because some row's maximum has risen by more than the threshold. Sums keep the unrounded
    weights.
    """
    b = ProgramBuilder()
    rows, keys = problem.rows, problem.block
    score = b.arg(IN, F32, (rows, keys))
    index = b.arg(IN, I32, (1, keys))
    mode = OUT if first else INOUT
    top, used, total = (b.arg(mode, F32, (rows, 1)) for _ in range(3))
    scaled = b.arg(mode, I32, (1, 1))
    weights = b.arg(OUT, TYPE, (keys // FRACTAL, rows, FRACTAL))
    seen = b.op(Op.GE, b.load(index), b.const(0, I32))
    mask = b.op(Op.WHERE, seen, b.const(0.0, F32), b.const(-math.inf, F32))
    masked = b.op(Op.ADD, b.load(score), mask)
    block_top = b.reduce(Op.RMAX, masked, axis=1)
    scale = b.const(problem.scale, F32)
    if first:
        chosen = risen = b.op(Op.MAX, block_top, b.const(LOWEST, F32))
    else:
        old = b.load(used)
        risen = b.op(Op.MAX, b.load(top), block_top)
        most = b.reduce(Op.RMAX, b.op(Op.SUB, risen, old), axis=0)
        fires = b.op(Op.GT, most, b.const(THRESHOLD / problem.scale, F32))
        step = b.op(Op.EXP, b.op(Op.MUL, b.op(Op.SUB, old, risen), scale))
        factor = b.op(Op.WHERE, fires, step, b.const(1.0, F32))
        chosen = b.op(Op.WHERE, fires, risen, old)
    weight = b.op(Op.EXP, b.op(Op.SUB, b.op(Op.MUL, masked, scale), b.op(Op.MUL, chosen, scale)))
    fractals = b.reshape(weight, (rows, keys // FRACTAL, FRACTAL))
    b.store(weights, b.transpose(fractals, (1, 0, 2)))
    summed = b.reduce(Op.SUM, weight, axis=1)
    b.store(top, risen)
    b.store(used, chosen)
    if first:
        b.store(total, summed)
        b.store(scaled, b.const(0, I32, (1, 1)))
        return b.bytes()
    b.store(total, b.op(Op.ADD, b.op(Op.MUL, b.load(total), factor), summed))
    b.store(b.arg(OUT, F32, (rows, 1)), factor)
    fire = b.cast(fires, I32)
    b.store(b.arg(OUT, I32, (1, 1)), fire)
    b.store(scaled, b.op(Op.MAX, b.load(scaled), fire))
    return b.bytes()


def _skip_flag() -> bytes:
    """The scalar unit copies the flag to where the other units read it."""
    b = ProgramBuilder()
    fire, flag = b.arg(IN, I32, (1, 1)), b.arg(OUT, I32, (1, 1))
    b.store(flag, b.load(fire))
    return b.bytes()


def _rescale(problem: Problem) -> bytes:
    """drained sums, factor of the rows, accumulator -> accumulator; one tile of channels."""
    b = ProgramBuilder()
    rows = problem.rows
    drained, factor = b.arg(IN, F32, (rows, TILE)), b.arg(IN, F32, (rows, 1))
    acc = b.arg(INOUT, F32, (rows, TILE), (problem.dim * 4, 4))
    b.store(acc, b.op(Op.MUL, b.op(Op.ADD, b.load(acc), b.load(drained)), b.load(factor)))
    return b.bytes()


def _denominator(problem: Problem) -> bytes:
    """maximum, the maximum in use, sum, sink -> factor of the result, maximum of the logits, logsumexp.

    Natural logarithms; the sink only adds to the denominator. Rows without a key: 0, -inf, inf.
    """
    b = ProgramBuilder()
    column = (problem.rows, 1)
    top, used, total, sink = (b.arg(IN, F32, column) for _ in range(4))
    factor, top_out, lse = (b.arg(OUT, F32, column) for _ in range(3))
    highest, summed, scale = b.load(top), b.load(total), b.const(problem.scale, F32)
    base = b.op(Op.MUL, b.load(used), scale)
    empty = b.op(Op.EQ, highest, b.const(LOWEST, F32))
    whole = b.op(Op.ADD, summed, b.op(Op.EXP, b.op(Op.SUB, b.load(sink), base)))
    b.store(factor, b.op(Op.WHERE, empty, b.const(0.0, F32), b.op(Op.RECIP, whole)))
    b.store(top_out, b.op(Op.WHERE, empty, b.const(-math.inf, F32), b.op(Op.MUL, highest, scale)))
    b.store(lse, b.op(Op.WHERE, empty, b.const(math.inf, F32), b.op(Op.ADD, b.op(Op.LOG, summed), base)))
    return b.bytes()


def _final(problem: Problem, *, kept: bool) -> bytes:
    """drained sums, factor -> results. kept: adds what the accumulator has, too, and leaves it zero."""
    b = ProgramBuilder()
    rows = problem.rows
    drained = b.arg(IN, F32, (rows, TILE))
    factor = b.arg(IN, F32, (rows, 1))
    out = b.arg(OUT, TYPE, (rows, TILE))
    whole = b.load(drained)
    if kept:
        acc = b.arg(INOUT, F32, (rows, TILE), (problem.dim * 4, 4))
        whole = b.op(Op.ADD, b.load(acc), whole)
        b.store(acc, b.const(0.0, F32, (rows, TILE)))
    b.store(out, b.op(Op.MUL, whole, b.load(factor)))
    return b.bytes()
