"""Recognises the vector program of attention: softmax along the last axis of scores of which a mask hides some.

    x = where(mask, f(load scores), -inf)
    e = exp(x - m)        m = max x, or 0 where that is -inf
    store e / d           d = sum e, or 1 where that is 0; rounded to f16 or bf16 or not

The mask depends on constants and on the step block alone, f (soft capping, or nothing) is elementwise with constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npurt.abi.bytecode import Op as Code
from npurt.abi.dtypes import DType
from npurt.abi.records import Step
from npurt.fast.dag import Dag, build
from npurt.fast.ops import Call, Op
from npurt.fast.refs import Ref
from npurt.shave.machine import compute_of

_ROUNDS = (Code.ROUND_F16, Code.ROUND_BF16)
_STEPLESS = (Code.CONST, Code.IOTA)
_ELEMENTWISE = (Code.MUL, Code.DIV, Code.ADD, Code.SUB, Code.TANH, Code.NEG)


@dataclass(frozen=True)
class MaskedSoftmax:
    """scores, weights: arguments read and stored. mask: a node of the dag. before: elementwise nodes between the load
    and the mask, each with one operand that is the node before and at most one constant."""

    scores: int
    weights: int
    mask: int
    before: tuple[int, ...]


class Softmaxes:
    """The pattern of each program of an image, found once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Dag, MaskedSoftmax | None]] = {}

    def of(self, op: Op) -> tuple[Dag, MaskedSoftmax] | None:
        """The dag and the pattern of a vector task that is one."""
        if not isinstance(op, Call) or op.dead:
            return None
        if id(op.program) not in self._known:
            dag = build(op.program, frozenset())
            self._known[id(op.program)] = dag, recognise(dag)
        dag, form = self._known[id(op.program)]
        return None if form is None else (dag, form)

    def ignored(self, op: Op) -> str:
        """The operand of which a task uses only what the run has made: the mask hides columns that nothing wrote.

        The device finds stale bytes there; their values are never used.
        """
        found = self.of(op)
        return "" if found is None else str(found[1].scores)


def recognise(dag: Dag) -> MaskedSoftmax | None:
    """The pattern that a program is, None for every other program."""
    return _Matcher(dag).match()


class _Matcher:
    def __init__(self, dag: Dag) -> None:
        self.nodes = dag.nodes
        self.fixed = uniform(dag)

    def match(self) -> MaskedSoftmax | None:
        stores = [node for node in self.nodes if node.op is Code.STORE]
        loads = [node for node in self.nodes if node.op is Code.LOAD]
        if len(stores) != 1 or len(loads) != 1:
            return None
        value = stores[0].operands[0]
        if self.nodes[value].op in _ROUNDS:
            value = self.nodes[value].operands[0]
        quotient = self.nodes[value]
        if quotient.op is not Code.DIV:
            return None
        weight, total = quotient.operands
        if self._or_else(total, 1.0, 0.0) is None or self.nodes[weight].op is not Code.EXP:
            return None
        total = self._or_else(total, 1.0, 0.0) or 0
        shifted = self.nodes[self.nodes[weight].operands[0]]
        if (
            self.nodes[total].op is not Code.SUM
            or self.nodes[total].operands != (weight,)
            or shifted.op is not Code.SUB
        ):
            return None
        x, top = shifted.operands
        top = self._or_else(top, 0.0, -np.inf) or 0
        last = len(stores[0].shape) - 1
        if (
            self.nodes[top].op is not Code.RMAX
            or self.nodes[top].operands != (x,)
            or self.nodes[x].op is not Code.WHERE
        ):
            return None
        if self.nodes[top].axis != last or self.nodes[total].axis != last:
            return None
        mask, seen, hidden = self.nodes[x].operands
        chain = self._chain(seen)
        if chain is None or self._constant(hidden) != -np.inf or mask not in self.fixed:
            return None
        return MaskedSoftmax(loads[0].arg, stores[0].arg, mask, chain)

    def _constant(self, number: int) -> float | None:
        node = self.nodes[number]
        if node.op is not Code.CONST or node.dtype is not DType.F32:
            return None
        return float(np.uint32(node.imm).view(np.float32))

    def _or_else(self, number: int, other: float, test: float) -> int | None:
        """The v of where(v == test, other, v), or the node itself where it is no WHERE."""
        node = self.nodes[number]
        if node.op is not Code.WHERE:
            return number
        condition, yes, no = node.operands
        equal = self.nodes[condition]
        if equal.op is not Code.EQ or no not in equal.operands or self._constant(yes) != other:
            return None
        constants = [self._constant(operand) for operand in equal.operands if operand != no]
        return no if constants == [test] else None

    def _chain(self, number: int) -> tuple[int, ...] | None:
        """The elementwise nodes from the load to `number`."""
        chain: list[int] = []
        while self.nodes[number].op is not Code.LOAD:
            node = self.nodes[number]
            moving = [operand for operand in node.operands if operand not in self.fixed]
            constants = [self._constant(operand) for operand in node.operands if operand in self.fixed]
            if node.op not in _ELEMENTWISE or len(moving) != 1 or None in constants:
                return None
            chain.append(number)
            number = moving[0]
        return tuple(reversed(chain))


def uniform(dag: Dag) -> set[int]:
    """Nodes that depend on constants and scalars alone."""
    found: set[int] = set()
    for number, node in enumerate(dag.nodes):
        sources = node.op in _STEPLESS or node.op is Code.SCALAR
        if sources or (
            node.operands and node.op is not Code.STORE and all(operand in found for operand in node.operands)
        ):
            found.add(number)
    return found


def evaluate(call: Call, dag: Dag, number: int, step: Sequence[int] | Mapping[int, int]) -> np.ndarray:
    """The value of a uniform node at a step, in exact arithmetic."""
    known: dict[int, np.ndarray] = {}
    fixed = uniform(dag)
    for at, node in enumerate(dag.nodes[: number + 1]):
        if at not in fixed:
            continue
        if node.op is Code.SCALAR:
            arg = call.args[node.arg]
            assert not isinstance(arg, Ref)
            known[at] = np.array(step[arg] if isinstance(arg, Step) else arg, np.int32)
        else:
            known[at] = compute_of(node.instruction, call.program)(*(known[operand] for operand in node.operands))
    return known[number]
