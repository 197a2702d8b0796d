"""The opcode table of docs/bytecode.md: operands and types from the verifier's own rules, the meaning in words."""

from __future__ import annotations

from collections.abc import Iterator

from npurt.abi.bytecode import Op
from npurt.shave.program import (
    MAX_ARGS,
    MAX_INSTRUCTIONS,
    MAX_LIVE_BYTES,
    MAX_RANK,
    MAX_REGISTERS,
    MAX_TRIP,
    MAX_WORK,
)
from npurt.shave.rules import RULES, Rule

MEANING: dict[Op, str] = {
    Op.LOAD: "dst = argument a, widened exactly",
    Op.STORE: "argument a = register b, rounded once to the argument's type",
    Op.CONST: "dst = imm everywhere: float32 or int32 bits by dst's type, for bool 0 or 1",
    Op.IOTA: "dst = the index along axis",
    Op.SCALAR: "dst = the int32 of scalar argument a",
    Op.COPY: "dst = a, broadcast",
    Op.RESHAPE: "dst = a's elements in row-major order",
    Op.TRANSPOSE: "dst's axis i is a's axis p[i]; imm packs p, two bits a place, p[0] lowest",
    Op.SLICE: "dst = a[imm : imm + extent of dst] along axis",
    Op.CONCAT: "dst = a, then b, along axis",
    Op.CAST: (
        "dst = a in dst's type: f to i truncates toward zero and saturates, NaN gives 0; i to f rounds half to even; "
        "to b: a is not 0 (NaN is true); from b: 0 or 1"
    ),
    Op.ROUND_F16: "dst = a as STORE to f16 and LOAD give it back",
    Op.ROUND_BF16: "dst = a as STORE to bf16 and LOAD give it back",
    Op.TAKE: "dst[r] = a[b[r]] along the first axis; an index outside gives zeros",
    Op.UNPACK: "dst = the elements of DType imm in a's bytes (last axis, low 8 bits each), widened exactly",
    Op.ADD: "a + b",
    Op.SUB: "a - b",
    Op.MUL: "a * b",
    Op.DIV: "a / b, correctly rounded; integers truncate toward zero, x / 0 = 0, -2^31 / -1 = -2^31",
    Op.MIN: "the smaller; NaN if either is; a zero is +0",
    Op.MAX: "the larger; NaN if either is; a zero is +0",
    Op.POW: "a to the power b, as in section 2",
    Op.MOD: "FMOD's result, plus b where it is not 0 and its sign is not that of b; a zero has the sign of b",
    Op.FMOD: "a - b trunc(a / b), exact, with the sign of a; by 0: NaN, of integers 0",
    Op.AND: "a and b",
    Op.OR: "a or b",
    Op.XOR: "a unequal b",
    Op.EQ: "a = b",
    Op.NE: "a unequal b",
    Op.LT: "a < b",
    Op.LE: "a <= b",
    Op.GT: "a > b",
    Op.GE: "a >= b",
    Op.WHERE: "b where a, else c",
    Op.NEG: "-a",
    Op.ABS: "the absolute value",
    Op.EXP: "e to the power a",
    Op.LOG: "natural logarithm",
    Op.SQRT: "square root, correctly rounded; NaN below 0",
    Op.RSQRT: "1 / square root",
    Op.RECIP: "1 / a, correctly rounded",
    Op.TANH: "hyperbolic tangent",
    Op.SIGMOID: "1 / (1 + exp(-a))",
    Op.ERF: "error function",
    Op.SIN: "sine of radians",
    Op.COS: "cosine of radians",
    Op.FLOOR: "rounded down to a whole number",
    Op.CEIL: "rounded up to a whole number",
    Op.ROUND: "rounded to the nearest whole number, half to even",
    Op.SIGN: "-1, 0 or 1; NaN of NaN, +0 of both zeros",
    Op.NOT: "not a",
    Op.ISNAN: "whether a is NaN",
    Op.ISINF: "whether a is infinite",
    Op.EXP2: "2 to the power a",
    Op.SUM: "the sum along axis, in binary64 (i32: wrapping)",
    Op.RMAX: "the largest along axis; NaN if there is one; a zero is +0",
    Op.RMIN: "the smallest along axis; NaN if there is one; a zero is +0",
    Op.PROD: "the product along axis, in binary64 (i32: wrapping)",
    Op.ARGMAX: "index of the largest along axis, the lowest of a tie; of the first NaN if there is one",
    Op.ARGMIN: "index of the smallest along axis, the lowest of a tie; of the first NaN if there is one",
    Op.CUMSUM: "running sums along axis, each with its own element, in binary64 (i32: wrapping)",
    Op.TOPK: "the largest along axis in falling order, NaN above all; of a tie, as -0 and +0, the lowest index first",
    Op.TOPK_INDEX: "where the elements of TOPK stand along axis",
}

LIMITS: dict[str, int] = {
    "passes (`trip`)": MAX_TRIP,
    "arguments": MAX_ARGS,
    "registers": MAX_REGISTERS,
    "instructions": MAX_INSTRUCTIONS,
    "dimensions of a view or register": MAX_RANK,
    "bytes of registers alive at once": MAX_LIVE_BYTES,
    "work of a run": MAX_WORK,
}

_KINDS = {"r": "register", "a": "argument"}


def opcode_rows() -> Iterator[str]:
    """The lines of the table: types are f (f32), i (i32), b (bool), dst first, alternatives behind commas."""
    yield "| value | name | operands | types | axis, imm | shape of dst | meaning |"
    yield "| ---: | --- | --- | --- | --- | --- | --- |"
    for op, rule in RULES.items():
        yield f"| {op.value} | `{op.name}` | {' | '.join(_cells(rule))} | {MEANING[op]} |"


def limit_rows() -> Iterator[str]:
    """The lines of the table of a program's limits."""
    yield "| what | at most |"
    yield "| --- | ---: |"
    for what, most in LIMITS.items():
        yield f"| {what} | {most} |"


def _cells(rule: Rule) -> tuple[str, str, str, str]:
    operands = ", ".join(f"{name}: {_KINDS[kind]}" for name, kind in zip("abc", rule.operands, strict=False)) or "none"
    types = ", ".join(f"{s[0]} <- {' '.join(s[1:])}" if len(s) > 1 else s for s in rule.signatures) or "by the argument"
    fields = ", ".join(name for name, used in (("axis", rule.axis), ("imm", rule.imm)) if used) or "-"
    return operands, types, fields, rule.shape.value
