"""What each opcode takes and gives, as data: the builder, the verifier, the machine and the listing read this table.

Type letters: f = float32, i = int32, b = bool. A signature lists dst first, then the register operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.numerics.packed import elements

LETTER = {DType.F32: "f", DType.I32: "i", DType.BOOL: "b"}
"""The register types. LOAD widens other memory types to these, see `register_type`."""


class ShapeRule(Enum):
    """How dst's shape follows; the value is the text of the rule for listings and messages."""

    MEMORY = "the shape of the argument"
    SCALAR = "[]"
    FREE = "any shape"
    BROADCAST = "operands broadcast to dst"
    SAME = "the operand's shape"
    RESHAPE = "the operand's element count"
    TRANSPOSE = "the operand's shape permuted by imm"
    SLICE = "the operand's shape, shorter along axis, imm + extent inside it"
    CONCAT = "the operands' shape, extents added along axis"
    TAKE = "[rows of b, rest of a's shape]"
    UNPACK = "the operand's shape, its last extent bytes / bytes of an element of DType imm"
    REDUCE = "the operand's shape with 1 along axis"
    TOPK = "the operand's shape, as long or shorter along axis"


@dataclass(frozen=True)
class Rule:
    """One opcode.

    operands: kinds of a, b, c in order, "r" register or "a" argument. signatures: allowed types, dst first then the
    registers among the operands; empty where the argument decides. axis, imm: whether the field has a meaning.
    nonempty: the axis must have at least one element.
    """

    operands: str
    shape: ShapeRule
    signatures: tuple[str, ...] = ()
    axis: bool = False
    imm: bool = False
    nonempty: bool = False

    @property
    def has_dst(self) -> bool:
        """False only for STORE, whose destination is the argument."""
        return self.operands != "ar"


_ANY_CAST = tuple(to + origin for to in "fib" for origin in "fib")
_ARITHMETIC = Rule("rr", ShapeRule.BROADCAST, ("fff", "iii"))
_LOGIC = Rule("rr", ShapeRule.BROADCAST, ("bbb",))
_EQUALITY = Rule("rr", ShapeRule.BROADCAST, ("bff", "bii", "bbb"))
_ORDER = Rule("rr", ShapeRule.BROADCAST, ("bff", "bii"))
_UNARY = Rule("r", ShapeRule.BROADCAST, ("ff", "ii"))
_FLOAT = Rule("r", ShapeRule.BROADCAST, ("ff",))
_TEST = Rule("r", ShapeRule.BROADCAST, ("bf",))
_TOTAL = Rule("r", ShapeRule.REDUCE, ("ff", "ii"), axis=True)
_EXTREME = Rule("r", ShapeRule.REDUCE, ("ff", "ii"), axis=True, nonempty=True)
_INDEX = Rule("r", ShapeRule.REDUCE, ("if", "ii"), axis=True, nonempty=True)
_MOVE = ("ff", "ii", "bb")

RULES: dict[Op, Rule] = {
    Op.LOAD: Rule("a", ShapeRule.MEMORY),
    Op.STORE: Rule("ar", ShapeRule.MEMORY),
    Op.CONST: Rule("", ShapeRule.FREE, ("f", "i", "b"), imm=True),
    Op.IOTA: Rule("", ShapeRule.FREE, ("i",), axis=True),
    Op.SCALAR: Rule("a", ShapeRule.SCALAR, ("i",)),
    Op.COPY: Rule("r", ShapeRule.BROADCAST, _MOVE),
    Op.RESHAPE: Rule("r", ShapeRule.RESHAPE, _MOVE),
    Op.TRANSPOSE: Rule("r", ShapeRule.TRANSPOSE, _MOVE, imm=True),
    Op.SLICE: Rule("r", ShapeRule.SLICE, _MOVE, axis=True, imm=True),
    Op.CONCAT: Rule("rr", ShapeRule.CONCAT, ("fff", "iii", "bbb"), axis=True),
    Op.CAST: Rule("r", ShapeRule.BROADCAST, _ANY_CAST),
    Op.ROUND_F16: _FLOAT,
    Op.ROUND_BF16: _FLOAT,
    Op.TAKE: Rule("rr", ShapeRule.TAKE, ("ffi", "iii", "bbi")),
    Op.UNPACK: Rule("r", ShapeRule.UNPACK, ("fi", "ii"), imm=True),
    Op.ADD: _ARITHMETIC,
    Op.SUB: _ARITHMETIC,
    Op.MUL: _ARITHMETIC,
    Op.DIV: _ARITHMETIC,
    Op.MIN: _ARITHMETIC,
    Op.MAX: _ARITHMETIC,
    Op.POW: Rule("rr", ShapeRule.BROADCAST, ("fff",)),
    Op.MOD: _ARITHMETIC,
    Op.FMOD: _ARITHMETIC,
    Op.AND: _LOGIC,
    Op.OR: _LOGIC,
    Op.XOR: _LOGIC,
    Op.EQ: _EQUALITY,
    Op.NE: _EQUALITY,
    Op.LT: _ORDER,
    Op.LE: _ORDER,
    Op.GT: _ORDER,
    Op.GE: _ORDER,
    Op.WHERE: Rule("rrr", ShapeRule.BROADCAST, ("fbff", "ibii", "bbbb")),
    Op.NEG: _UNARY,
    Op.ABS: _UNARY,
    Op.EXP: _FLOAT,
    Op.LOG: _FLOAT,
    Op.SQRT: _FLOAT,
    Op.RSQRT: _FLOAT,
    Op.RECIP: _FLOAT,
    Op.TANH: _FLOAT,
    Op.SIGMOID: _FLOAT,
    Op.ERF: _FLOAT,
    Op.SIN: _FLOAT,
    Op.COS: _FLOAT,
    Op.FLOOR: _FLOAT,
    Op.CEIL: _FLOAT,
    Op.ROUND: _FLOAT,
    Op.SIGN: _UNARY,
    Op.NOT: Rule("r", ShapeRule.BROADCAST, ("bb",)),
    Op.ISNAN: _TEST,
    Op.ISINF: _TEST,
    Op.EXP2: _FLOAT,
    Op.SUM: _TOTAL,
    Op.RMAX: _EXTREME,
    Op.RMIN: _EXTREME,
    Op.PROD: _TOTAL,
    Op.ARGMAX: _INDEX,
    Op.ARGMIN: _INDEX,
    Op.CUMSUM: Rule("r", ShapeRule.SAME, ("ff", "ii"), axis=True),
    Op.TOPK: Rule("r", ShapeRule.TOPK, ("ff", "ii"), axis=True),
    Op.TOPK_INDEX: Rule("r", ShapeRule.TOPK, ("if", "ii"), axis=True),
}

_WIDENED = {
    DType.F32: DType.F32,
    DType.F16: DType.F32,
    DType.BF16: DType.F32,
    DType.I32: DType.I32,
    DType.I8: DType.I32,
    DType.U8: DType.I32,
    DType.BOOL: DType.BOOL,
    DType.E4M3: DType.F32,
    DType.E5M2: DType.F32,
    DType.E8M0: DType.F32,
}


def register_type(memory: DType) -> DType | None:
    """Type of the register that LOAD fills and STORE takes; None for i64, with which no kernel computes."""
    return _WIDENED.get(memory)


def unpacked_type(imm: int) -> DType | None:
    """Type of the register that UNPACK makes; None where imm names no type that it takes."""
    if imm not in DType._value2member_map_ or imm in (DType.BOOL, DType.I64):
        return None
    return DType.F32 if DType(imm).is_float else DType.I32


def permutation(imm: int, rank: int) -> tuple[int, ...]:
    """TRANSPOSE's permutation: two bits a place, the first place lowest."""
    return tuple(imm >> 2 * place & 3 for place in range(rank))


def pack_permutation(axes: tuple[int, ...]) -> int:
    """The imm of TRANSPOSE for a permutation of at most four axes."""
    return sum(axis << 2 * place for place, axis in enumerate(axes))


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target` as in NumPy."""
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def expected_shape(
    rule: ShapeRule, operands: tuple[tuple[int, ...], ...], dst: tuple[int, ...], axis: int, imm: int
) -> str | None:
    """Checks dst's shape against those of the register operands; None if it follows the rule, else what is wrong.

    MEMORY, SCALAR and the range of `axis` are the verifier's, which knows the arguments.
    """
    if rule is ShapeRule.BROADCAST:
        bad = next((shape for shape in operands if not broadcasts(shape, dst)), None)
        return None if bad is None else f"operand {list(bad)} does not broadcast to {list(dst)}"
    if rule in (ShapeRule.FREE, ShapeRule.MEMORY):
        return None
    if rule is ShapeRule.RESHAPE:
        want_count, count = _elements(operands[0]), _elements(dst)
        return None if count == want_count else f"{list(dst)} has {count} elements, the operand {want_count}"
    want = _exact_shape(rule, operands, dst, axis, imm)
    return None if dst == want else f"{list(dst)} where {want if isinstance(want, str) else list(want)} is due"


def _exact_shape(
    rule: ShapeRule, operands: tuple[tuple[int, ...], ...], dst: tuple[int, ...], axis: int, imm: int
) -> tuple[int, ...] | str:
    """The one shape that the rule allows, or the reason why there is none."""
    if rule is ShapeRule.SCALAR:
        return ()
    first = operands[0]
    if rule is ShapeRule.SAME:
        return first
    if rule is ShapeRule.REDUCE:
        return _with(first, axis, 1)
    if rule is ShapeRule.TOPK:
        if len(dst) != len(first) or dst[axis] > first[axis]:
            return f"at most the elements of {list(first)} along axis {axis}"
        return _with(first, axis, dst[axis])
    if rule is ShapeRule.TRANSPOSE:
        axes = permutation(imm, len(first))
        if sorted(axes) != list(range(len(first))) or imm != pack_permutation(axes):
            return f"a permutation of {len(first)} axes"
        return tuple(first[place] for place in axes)
    if rule is ShapeRule.UNPACK:
        count = None if unpacked_type(imm) is None or not first else elements(first[-1], DType(imm))
        if count is None:
            return f"elements of type {imm} in whole bytes of {list(first)}"
        return (*first[:-1], count)
    if rule is ShapeRule.SLICE:
        if len(dst) != len(first) or imm + dst[axis] > first[axis]:
            return f"a part of {list(first)} from {imm} along axis {axis}"
        return _with(first, axis, dst[axis])
    if rule is ShapeRule.CONCAT:
        second = operands[1]
        if len(second) != len(first) or _with(first, axis, 0) != _with(second, axis, 0):
            return f"operands that agree off axis {axis} (they are {list(first)} and {list(second)})"
        return _with(first, axis, first[axis] + second[axis])
    index = operands[1]
    if len(index) != 1 or not first:
        return f"rows of {list(first)} by an index vector (it is {list(index)})"
    return (index[0], *first[1:])


def _with(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total
