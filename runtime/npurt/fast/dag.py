"""A vector program as values: each instruction gives one, unused ones are gone, common patterns are one node.

Patterns: sum of squares; x * sigmoid(x); x * rsqrt(v) as x / sqrt(v).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from enum import IntEnum

from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.shave.program import Instruction, Program
from npurt.shave.rules import RULES

VIEWS = (Op.RESHAPE, Op.TRANSPOSE, Op.SLICE, Op.COPY)
"""What shows an operand's own elements."""


class Fused(IntEnum):
    """Node kinds beyond the opcodes."""

    SQUARES = 256  # sum of a * a along axis
    SILU = 257  # a * sigmoid(a)


@dataclass(frozen=True, slots=True)
class Node:
    """One value, or one store. operands: numbers of nodes; arg: for LOAD, STORE and SCALAR."""

    op: Op | Fused
    operands: tuple[int, ...]
    arg: int
    dtype: DType
    shape: tuple[int, ...]
    instruction: Instruction

    @property
    def axis(self) -> int:
        return self.instruction.axis

    @property
    def imm(self) -> int:
        return self.instruction.imm


@dataclass(frozen=True, slots=True)
class Dag:
    """Nodes in an order that runs. last: of each node the last node that needs it or a view of it (itself where none
    does); uses: how many need it."""

    nodes: tuple[Node, ...]
    last: tuple[int, ...]
    uses: tuple[int, ...]


def build(program: Program, dead: Set[int]) -> Dag:
    """The values of a program whose outputs `dead` nobody reads."""
    return _compact(_fuse(_values(program, dead)))


def _values(program: Program, dead: Set[int]) -> list[Node]:
    current: dict[int, int] = {}
    nodes: list[Node] = []
    for instruction in program.instructions:
        op = instruction.op
        operands = tuple(current[number] for number in instruction.registers)
        memory = "a" in RULES[op].operands
        arg = instruction.a if memory else -1
        if op is Op.STORE:
            if arg in dead:
                continue
            source = program.registers[instruction.b]
            nodes.append(Node(op, operands, arg, source.dtype, source.shape, instruction))
            continue
        dst = program.registers[instruction.dst]
        nodes.append(Node(op, operands, arg, dst.dtype, dst.shape, instruction))
        current[instruction.dst] = len(nodes) - 1
    return nodes


def _use_counts(nodes: list[Node]) -> list[int]:
    """Uses of each node by nodes that lead to a store."""
    uses = [0] * len(nodes)
    for number in reversed(range(len(nodes))):
        if uses[number] or nodes[number].op is Op.STORE:
            for operand in nodes[number].operands:
                uses[operand] += 1
    return uses


def _fuse(nodes: list[Node]) -> list[Node]:
    for number, node in enumerate(nodes):
        uses = _use_counts(nodes)
        if node.op is Op.SUM and node.dtype is DType.F32 and node.axis == len(node.shape) - 1:
            square = nodes[node.operands[0]]
            twice = square.op is Op.MUL and square.operands[0] == square.operands[1] and uses[node.operands[0]] == 1
            if twice and nodes[square.operands[0]].shape == square.shape:
                nodes[number] = replace(node, op=Fused.SQUARES, operands=square.operands[:1])
        if node.op is not Op.MUL or node.dtype is not DType.F32:
            continue
        for x, other in (node.operands, node.operands[::-1]):
            factor = nodes[other]
            if (
                factor.op is Op.SIGMOID
                and factor.operands == (x,)
                and uses[other] == 1
                and nodes[x].shape == node.shape
            ):
                nodes[number] = replace(node, op=Fused.SILU, operands=(x,))
                break
            if factor.op is Op.RSQRT and uses[other] == 1 and x != other:
                nodes[other] = replace(factor, op=Op.SQRT)
                nodes[number] = replace(node, op=Op.DIV, operands=(x, other))
                break
    return nodes


def _compact(nodes: list[Node]) -> Dag:
    uses = _use_counts(nodes)
    place: dict[int, int] = {}
    kept: list[Node] = []
    for number, node in enumerate(nodes):
        if uses[number] or node.op is Op.STORE:
            place[number] = len(kept)
            kept.append(replace(node, operands=tuple(place[operand] for operand in node.operands)))
    last = list(range(len(kept)))
    for number in reversed(range(len(kept))):
        until = last[number] if kept[number].op in VIEWS else number
        for operand in kept[number].operands:
            last[operand] = max(last[operand], until)
    return Dag(tuple(kept), tuple(last), tuple(_use_counts(kept)))
