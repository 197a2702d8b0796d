"""Vector programs as straight-line NumPy calls: registers are arrays that exist before the first run.

A load of float32 values is the view itself; a result goes straight into the view that it is stored to, where no later
operand overlaps it. A buffer whose value is not needed any more is the next result's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npurt import numerics
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.abi.records import Step
from npurt.fast.context import Call, Context, into
from npurt.fast.dag import VIEWS, Dag, Fused, Node
from npurt.fast.ops import Call as Task
from npurt.fast.refs import Plane, Ref
from npurt.shave.machine import compute_of
from npurt.shave.rules import permutation

Array = np.ndarray

_UFUNCS: dict[Op | Fused, Callable[..., Any]] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.MIN: np.minimum,
    Op.MAX: np.maximum, Op.POW: np.power, Op.MOD: np.mod, Op.FMOD: np.fmod, Op.AND: np.logical_and,
    Op.OR: np.logical_or, Op.XOR: np.logical_xor, Op.EQ: np.equal, Op.NE: np.not_equal, Op.LT: np.less,
    Op.LE: np.less_equal, Op.GT: np.greater, Op.GE: np.greater_equal, Op.NEG: np.negative, Op.ABS: np.absolute,
    Op.EXP: np.exp, Op.LOG: np.log, Op.SQRT: np.sqrt, Op.TANH: np.tanh, Op.SIN: np.sin, Op.COS: np.cos,
    Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.ROUND: np.rint, Op.SIGN: np.sign, Op.NOT: np.logical_not,
    Op.ISNAN: np.isnan, Op.ISINF: np.isinf, Op.EXP2: np.exp2,
}  # fmt: skip
_NOT_INTEGER = (Op.DIV, Op.MOD, Op.FMOD)  # NumPy's rules for integers are not the device's
_REDUCE: dict[Op | Fused, Callable[..., Any]] = {
    Op.SUM: np.add.reduce, Op.RMAX: np.maximum.reduce, Op.RMIN: np.minimum.reduce, Op.PROD: np.multiply.reduce,
}  # fmt: skip
_REGISTER = {DType.F32: np.float32, DType.I32: np.int32, DType.BOOL: np.bool_}
_ONE = np.array(1, np.float32)


def vector_calls(task: Task, dag: Dag, context: Context) -> list[Call]:
    """The calls of one vector task."""
    return _Binder(task, dag, context).bind()


class _Binder:
    def __init__(self, task: Task, dag: Dag, context: Context) -> None:
        self.task, self.dag, self.context, self.pool = task, dag, context, context.pool
        self.calls: list[Call] = []
        self.values: list[Array] = []
        self.roots: list[int] = []  # of each node the node whose buffer it shows, -1 where it is not a temporary
        self.owned: dict[int, Array] = {}
        self.alive: dict[int, int] = {}  # last use of each buffer
        self.stores = [(place, node.arg) for place, node in enumerate(dag.nodes) if node.op is Op.STORE]
        self.placed: dict[int, int] = {}  # store -> node that writes its view itself

    def bind(self) -> list[Call]:
        for place, node in enumerate(self.dag.nodes):
            value, root = self._value(place, node)
            self.values.append(value)
            self.roots.append(root)
            if root >= 0:
                self.alive[root] = max(self.alive.get(root, 0), self.dag.last[place])
            self._release(place)
        self._release(len(self.dag.nodes))
        return self.calls

    def _release(self, place: int) -> None:
        for root in [root for root, last in self.alive.items() if last <= place and root in self.owned]:
            self.pool.give(self.owned.pop(root))

    def _temporary(self, place: int, node: Node) -> tuple[Array, int]:
        array = self.pool.take(node.shape, _REGISTER[node.dtype])
        self.owned[place] = array
        self.alive[place] = self.dag.last[place]
        return array, place

    def _output(self, place: int, node: Node) -> tuple[Array, int]:
        """Where a node's result goes: the view of a store that follows, or a temporary."""
        if self.dag.uses[place] == 1 and node.dtype is DType.F32 and node.op is not Op.LOAD:
            store = self.dag.last[place]
            target = self.dag.nodes[store]
            if target.op is Op.STORE and target.operands == (place,) and self._may_place(place, target.arg):
                ref = self.task.args[target.arg]
                assert isinstance(ref, Ref)
                self.placed[store] = place
                return self.context.memory.view(ref), -1
        return self._temporary(place, node)

    def _may_place(self, place: int, arg: int) -> bool:
        """Whether the view of output `arg` may be written at `place`, before its store: nothing later reads there."""
        ref = self.task.args[arg]
        assert isinstance(ref, Ref)
        nodes, last = self.dag.nodes, self.dag.last
        for other, node in enumerate(nodes):
            if (
                node.op is Op.LOAD
                and last[other] > place
                and (other > place or self.roots[other] < 0)
                and self._overlap(node.arg, arg)
            ):
                return False
        return not any(node.op is Op.STORE and node.arg != arg and self._overlap(node.arg, arg) for node in nodes)

    def _overlap(self, first: int, second: int) -> bool:
        a, b = self.task.args[first], self.task.args[second]
        assert isinstance(a, Ref) and isinstance(b, Ref)
        return a.base == b.base and a.plane is b.plane and a.hull[0] < b.hull[1] and b.hull[0] < a.hull[1]

    def _value(self, place: int, node: Node) -> tuple[Array, int]:
        op = node.op
        if op is Op.STORE:
            return self._store(place, node)
        if op is Op.LOAD:
            return self._load(place, node)
        if op is Op.SCALAR:
            return self._scalar(node), -1
        if op is Op.CONST or op is Op.IOTA:
            return self._exact(node)(), -1
        operands = [self.values[operand] for operand in node.operands]
        if op in VIEWS:
            shown = _shown(node, operands[0])
            if shown is not None:
                return shown, self.roots[node.operands[0]]
            out, root = self._temporary(place, node)
            self.calls.append((np.copyto, (out.reshape(operands[0].shape), operands[0])))
            return out, root
        if op is Op.CONCAT:
            out, root = self._temporary(place, node)
            split = operands[0].shape[node.axis]
            axis = (slice(None),) * node.axis
            self.calls.append((np.copyto, (out[(*axis, slice(0, split))], operands[0])))
            self.calls.append((np.copyto, (out[(*axis, slice(split, None))], operands[1])))
            return out, root
        out, root = self._output(place, node)
        self.calls += self._compute(node, operands, out)
        return out, root

    def _compute(self, node: Node, operands: list[Array], out: Array) -> list[Call]:
        op = node.op
        integer = any(operand.dtype == np.int32 for operand in operands)
        if op is Op.ROUND_F16:
            return self.context.rounding(operands[0], out, DType.F16)
        if op is Op.ROUND_BF16:
            return self.context.rounding(operands[0], out, DType.BF16)
        if op is Op.SIGMOID:
            return [*_one_plus_exp_minus(operands[0], out), (np.divide, (_ONE, out, out))]
        if op is Fused.SILU:
            scratch = self.pool.take(node.shape)
            self.pool.give(scratch)
            return [*_one_plus_exp_minus(operands[0], scratch), (np.divide, (operands[0], scratch, out))]
        if op is Fused.SQUARES:
            return [(np.vecdot, (operands[0], operands[0], out[..., 0]))]
        if op is Op.RECIP:
            return [(np.divide, (_ONE, operands[0], out))]
        if op is Op.RSQRT:
            return [(np.sqrt, (operands[0], out)), (np.divide, (_ONE, out, out))]
        if op is Op.WHERE:
            return [(np.copyto, (out, operands[2])), (_copy_where, (out, operands[1], operands[0]))]
        if op is Op.CAST and not (node.dtype is DType.I32 and operands[0].dtype == np.float32):
            if node.dtype is DType.BOOL:
                return [(np.not_equal, (operands[0], np.zeros((), operands[0].dtype), out))]
            return [(np.copyto, (out, operands[0]))]
        if op in _REDUCE and not (integer and op in (Op.SUM, Op.PROD)):
            return [(_REDUCE[op], (operands[0], node.axis, None, out, True))]
        if op is Op.CUMSUM and not integer:
            return [(np.add.accumulate, (operands[0], node.axis, None, out))]
        if op in _UFUNCS and not (integer and op in _NOT_INTEGER):
            if op in (Op.MIN, Op.MAX):
                return [into(_UFUNCS[op], out, *operands)]
            return [(_UFUNCS[op], (*operands, out))]
        return [(_assign, (out, self._exact(node), *operands))]

    def _exact(self, node: Node) -> Callable[..., Any]:
        """The function of exact mode."""
        return compute_of(node.instruction, self.task.program)

    def _load(self, place: int, node: Node) -> tuple[Array, int]:
        ref = self.task.args[node.arg]
        assert isinstance(ref, Ref)
        view = self.context.memory.view(ref)
        if ref.plane is Plane.RAW and ref.dtype is DType.BOOL:
            out, root = self._temporary(place, node)
            self.calls.append((np.not_equal, (view, np.zeros((), np.uint8), out)))
            return out, root
        exposed = any(at < self.dag.last[place] and self._overlap(node.arg, arg) for at, arg in self.stores)
        if view.dtype.itemsize == 4 and not exposed:
            return view, -1
        out, root = self._temporary(place, node)
        self.calls.append((np.copyto, (out, view)))
        return out, root

    def _store(self, place: int, node: Node) -> tuple[Array, int]:
        ref = self.task.args[node.arg]
        assert isinstance(ref, Ref)
        view, value = self.context.memory.view(ref), self.values[node.operands[0]]
        source = self.dag.nodes[node.operands[0]]
        rounded = (source.op is Op.ROUND_F16 and ref.dtype is DType.F16) or (
            source.op is Op.ROUND_BF16 and ref.dtype is DType.BF16
        )
        narrow = ref.plane is not Plane.RAW
        if place in self.placed:
            if narrow and not rounded:
                self.calls += self.context.rounding(view, view, ref.dtype)
        elif narrow and not rounded and value.shape == view.shape and value.flags.writeable:
            self.calls += self.context.rounding(value, view, ref.dtype)
        elif ref.dtype is DType.BOOL:
            self.calls.append((np.copyto, (view.view(np.bool_), value)))
        elif view.dtype == value.dtype:
            self.calls.append((np.copyto, (view, value)))
            if narrow and not rounded:
                self.calls += self.context.rounding(view, view, ref.dtype)
        else:
            self.calls.append((_assign, (view, numerics.store, value, ref.dtype)))
        return view, -1

    def _scalar(self, node: Node) -> Array:
        arg = self.task.args[node.arg]
        if isinstance(arg, Step):
            return self.context.step_arrays[arg]
        assert isinstance(arg, int)
        return np.array(arg, np.int32)


def _shown(node: Node, source: Array) -> Array | None:
    """RESHAPE, TRANSPOSE, SLICE and COPY as a view of their operand; None where that needs a copy."""
    if node.op is Op.TRANSPOSE:
        return source.transpose(permutation(node.imm, len(node.shape)))
    if node.op is Op.SLICE:
        return source[(slice(None),) * node.axis + (slice(node.imm, node.imm + node.shape[node.axis]),)]
    if node.op is Op.COPY:
        return np.broadcast_to(source, node.shape)
    shown = source.reshape(node.shape)
    return shown if np.may_share_memory(shown, source) or not source.size else None


def _one_plus_exp_minus(x: Array, out: Array) -> list[Call]:
    return [(np.negative, (x, out)), (np.exp, (out, out)), (np.add, (out, _ONE, out))]


def _copy_where(out: Array, value: Array, where: Array) -> None:
    np.copyto(out, value, where=where)


def _assign(out: Array, function: Callable[..., Any], *operands: Sequence[Any]) -> None:
    out[...] = function(*operands)
