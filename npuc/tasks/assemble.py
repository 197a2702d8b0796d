"""Bytes of a SHAVE program from its listing (npurt.shave.listing), so that a task list can be written by hand."""

from __future__ import annotations

import re

import numpy as np

from npurt.abi.bytecode import ARG, HEADER, INSTRUCTION, MAGIC, REGISTER, ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.abi.rows import fill
from npurt.shave.rules import RULES, pack_permutation

_VIEW = r"(?P<type>\w+)\[(?P<shape>[\d,]*)\] stride \[(?P<stride>[-\d,]*)\](?: step (?P<step>-?\d+))?"
_ARG = re.compile(rf"arg (?P<at>\d+) (?:(?P<scalar>scalar) i32|(?P<mode>in|out|inout) {_VIEW})")
_RESULT = re.compile(r"%(?P<dst>\d+) (?P<type>f32|i32|bool)\[(?P<shape>[\d,]*)\] = (?P<words>.+)")
_LABELS = {dtype.label: dtype for dtype in DType}

_Row = tuple[int | tuple[int, ...], ...]


class ListingError(ValueError):
    """A line that is no line of a listing. line: its number in the listing, from 0."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def assemble(lines: list[str]) -> bytes:
    """The program of a listing, given as its lines. Register types come from the instruction that writes them.

    Inverse of the listing for every program whose registers are numbered without gaps. It checks words, not the rules
    of the opcodes: `npurt.shave.parse` verifies the result. Raises ListingError.
    """
    head = lines[0].split() if lines else []
    if head[:2] != ["program", "trip"] or len(head) != 3 or not head[2].isdigit():
        raise ListingError(0, "a listing begins with: program trip N")
    args: list[_Row] = []
    registers: dict[int, _Row] = {}
    instructions: list[_Row] = []
    for number, line in enumerate(lines[1:], 1):
        text = line.strip()
        try:
            if text.startswith("arg "):
                args.append(_argument(text, len(args)))
            else:
                instructions.append(_instruction(text, registers))
        except (ValueError, KeyError) as error:
            raise ListingError(number, f"{text!r}: {error}") from None
    if sorted(registers) != list(range(len(registers))):
        raise ListingError(len(lines) - 1, f"registers {sorted(registers)} are not numbered 0 to {len(registers) - 1}")
    header = np.zeros((), HEADER)
    header["magic"], header["trip"], header["args"] = MAGIC, int(head[2]), len(args)
    header["registers"], header["instructions"] = len(registers), len(instructions)
    rows = [registers[at] for at in range(len(registers))]
    tables = fill(ARG, args), fill(REGISTER, rows), fill(INSTRUCTION, instructions)
    return header.tobytes() + b"".join(table.tobytes() for table in tables)


def _argument(text: str, due: int) -> _Row:
    found = _ARG.fullmatch(text)
    if found is None or int(found["at"]) != due:
        raise ValueError(
            f"expected: arg {due} in|out|inout TYPE[SHAPE] stride [BYTES] (step BYTES), or arg {due} scalar i32"
        )
    if found["scalar"]:
        return ArgMode.SCALAR, DType.I32, 0, 0, 0, _four(()), _four(()), 0
    shape, stride = _numbers(found["shape"]), _numbers(found["stride"])
    if found["type"] not in _LABELS or len(shape) != len(stride):
        raise ValueError("an unknown type, or not one stride per dimension")
    mode = ArgMode[found["mode"].upper()]
    return mode, _LABELS[found["type"]], len(shape), 0, 0, _four(shape), _four(stride), int(found["step"] or 0)


def _instruction(text: str, registers: dict[int, _Row]) -> _Row:
    found = _RESULT.fullmatch(text)
    words = (found["words"] if found else text).split()
    name = words.pop(0).upper() if words else ""
    if name not in Op.__members__:
        raise ValueError(f"no opcode {name}")
    op = Op[name]
    rule = RULES[op]
    if rule.has_dst != (found is not None):
        raise ValueError("expected: %N TYPE[SHAPE] = OP OPERANDS, or: store argN %N")
    fields = [0, 0, 0]
    for place, kind in enumerate(rule.operands):
        word, prefix = words.pop(0) if words else "", "arg" if kind == "a" else "%"
        if not word.startswith(prefix) or not word[len(prefix) :].isdigit():
            raise ValueError(f"operand {place} of {op.name.lower()} must be {prefix}N")
        fields[place] = int(word[len(prefix) :])
    axis = int(_option(words, "axis")) if rule.axis else 0
    dst = imm = 0
    if found is not None:
        dst, dtype, shape = int(found["dst"]), _LABELS[found["type"]], _numbers(found["shape"])
        row: _Row = (dtype, len(shape), 0, _four(shape))
        if registers.setdefault(dst, row) != row:
            raise ValueError(f"register {dst} has another type before")
        if op is Op.CONST:
            if not words:
                raise ValueError("expected a value")
            imm = _bits(words.pop(0), dtype)
        elif op is Op.TRANSPOSE:
            imm = pack_permutation(_numbers(_option(words, "axes").strip("[]")))
        elif op is Op.UNPACK:
            imm = int(_LABELS[_option(words, "as")])
        elif rule.imm:
            imm = int(_option(words, "from"))
    if words:
        raise ValueError(f"{' '.join(words)} is left over")
    return op, axis, dst, *fields, imm


def _option(words: list[str], name: str) -> str:
    if len(words) < 2 or words.pop(0) != name:
        raise ValueError(f"expected: {name} VALUE")
    return words.pop(0)


def _bits(word: str, dtype: DType) -> int:
    """The immediate of a constant."""
    if dtype is DType.BOOL:
        return {"false": 0, "true": 1}[word]
    return int(
        np.array(float(word), np.float32).view(np.uint32)
        if dtype is DType.F32
        else np.array(int(word), np.int32).view(np.uint32)
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",")) if text else ()


def _four(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(values) > 4:
        raise ValueError("more than four dimensions")
    return values + (0,) * (4 - len(values))
