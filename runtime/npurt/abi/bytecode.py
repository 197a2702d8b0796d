"""SHAVE bytecode: a kernel is a header, argument views, register types and straight-line instructions.

A register holds a whole tile of a static shape (rank <= 4) of type f32, i32 or bool; there are no other types inside a
kernel. LOAD widens what memory holds (f16, bf16, i8, u8 and so on) exactly, STORE rounds once to the argument's type.
The instruction list runs `trip` times, a bound fixed in the header; after each pass every pointer argument advances by
its `step` bytes. So each program ends after trip x count instructions. A register is written before it is read, and
holds nothing at the start of a pass.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

MAGIC = 0x4B56484E  # "NHVK"

HEADER = np.dtype(
    {
        "names": ["magic", "trip", "args", "registers", "instructions", "reserved"],
        "formats": ["<u4", "<u4", "<u2", "<u2", "<u4", "<u4"],
        "offsets": [0, 4, 8, 10, 12, 16],
        "itemsize": 32,
    }
)  # the three tables follow, in this order


class ArgMode(IntEnum):
    IN = 1
    OUT = 2
    INOUT = 3
    SCALAR = 4  # an int32 of the argument record, or a field of the step block: see SHAVE_ARG


ARG = np.dtype(
    {
        "names": ["mode", "dtype", "rank", "pad_", "reserved", "shape", "stride", "step"],
        "formats": ["u1", "u1", "u1", "u1", "<u4", ("<u4", (4,)), ("<i8", (4,)), "<i8"],
        "offsets": [0, 1, 2, 3, 4, 8, 24, 56],
        "itemsize": 64,
    }
)  # shape and stride (bytes) use the first `rank` places

REGISTER = np.dtype(
    {
        "names": ["dtype", "rank", "pad_", "shape"],
        "formats": ["u1", "u1", "<u2", ("<u4", (4,))],
        "offsets": [0, 1, 2, 4],
        "itemsize": 20,
    }
)

INSTRUCTION = np.dtype(
    {
        "names": ["op", "axis", "dst", "a", "b", "c", "imm"],
        "formats": ["u1", "i1", "<u2", "<u2", "<u2", "<u2", "<u4"],
        "offsets": [0, 1, 2, 4, 6, 8, 12],
        "itemsize": 16,
    }
)  # imm: float32 or int32 bits, or an index; unused fields are zero


class Op(IntEnum):
    """Opcodes. Elementwise operands broadcast as in NumPy against the shape of dst."""

    LOAD = 1  # dst <- argument a
    STORE = 2  # argument a <- register b (dst unused, zero)
    CONST = 3  # dst <- imm everywhere (dst's type says how imm reads)
    IOTA = 4  # dst (i32) <- index along `axis`
    SCALAR = 5  # dst (i32, shape []) <- scalar argument a
    COPY = 6  # dst <- a broadcast to dst's shape
    RESHAPE = 7  # same elements in row-major order
    TRANSPOSE = 8  # imm: the permutation, two bits a place, first place lowest
    SLICE = 9  # dst <- a[..., imm : imm + dst.shape[axis], ...]
    CONCAT = 10  # dst <- a then b along axis
    CAST = 11  # dst <- a converted to dst's type; float to int truncates toward zero, saturates, NaN gives 0
    ROUND_F16 = 12  # dst (f32) <- a rounded to the f16 grid, overflow to infinity
    ROUND_BF16 = 13
    TAKE = 14  # dst[r, ...] <- a[b[r], ...]; an index outside gives zeros
    UNPACK = 15  # dst <- the elements of DType imm that the bytes a[..., :] (i32, low 8 bits) hold, widened as by LOAD

    ADD = 32
    SUB = 33
    MUL = 34
    DIV = 35  # f32; i32 truncates toward zero, x / 0 = 0
    MIN = 36  # a NaN in either operand gives NaN
    MAX = 37
    POW = 38
    MOD = 39  # sign of the divisor (Python), i32: x % 0 = 0
    FMOD = 40  # sign of the dividend (C)
    AND = 41  # bool
    OR = 42
    XOR = 43
    EQ = 44  # dst is bool for all six
    NE = 45
    LT = 46
    LE = 47
    GT = 48
    GE = 49
    WHERE = 50  # dst <- b where a (bool) else c

    NEG = 64
    ABS = 65
    EXP = 66
    LOG = 67
    SQRT = 68
    RSQRT = 69
    RECIP = 70
    TANH = 71
    SIGMOID = 72
    ERF = 73
    SIN = 74
    COS = 75
    FLOOR = 76
    CEIL = 77
    ROUND = 78  # half to even
    SIGN = 79
    NOT = 80  # bool
    ISNAN = 81  # dst is bool
    ISINF = 82
    EXP2 = 83

    SUM = 96  # reductions keep the axis with size 1; exact sum rounded once
    RMAX = 97
    RMIN = 98
    PROD = 99
    ARGMAX = 100  # i32; ties: the lowest index
    ARGMIN = 101
    CUMSUM = 102  # dst has a's shape; inclusive
    TOPK = 103  # the largest along axis in falling order, as many as dst has; NaN first, ties: the lowest index
    TOPK_INDEX = 104  # i32; where TOPK's elements stand
