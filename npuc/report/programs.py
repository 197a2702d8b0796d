"""SHAVE programs for people: a few stable words each, or every instruction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby

from npuc.report.reader import Blob
from npuc.report.rows import records
from npuc.report.tensors import tensor_text
from npurt.abi import blob
from npurt.abi.bytecode import ArgMode
from npurt.errors import BlobError, BytecodeError
from npurt.shave import ArgSpec, Program, listing, parse


def program_ids(image: Blob) -> list[str]:
    """For each kernel row its name and the digest of its text: ``exp@1a2b3c4d``."""
    return [_label(name, code) for name, code in _kernels(image)]


def program_lines(image: Blob) -> Iterator[str]:
    """Each program in three lines: its name, its arguments, its opcodes. Only the first two hold sizes, so that a
    change of a tile size changes two lines of each program. BlobError where one does not verify."""
    for name, code in _ordered(image):
        program = _verified(name, code)
        yield f"program {_label(name, code)}"
        yield f"  args {', '.join(_arg(arg) for arg in program.args)}; trip {program.trip}"
        yield f"  ops {_opcodes(program)}"


def program_listing(image: Blob) -> Iterator[str]:
    """Each program with every instruction."""
    for name, code in _ordered(image):
        yield f"program {_label(name, code)}  {len(code)} B"
        yield from (f"  {line}" for line in listing(_verified(name, code)).splitlines())


def _verified(name: str, code: bytes) -> Program:
    try:
        return parse(code)
    except BytecodeError as error:
        raise BlobError(f"SHAVE program {_label(name, code)}: {error}") from error


def _label(name: str, code: bytes) -> str:
    return f"{name}@{hashlib.sha256(code).hexdigest()[:8]}"


def _kernels(image: Blob) -> list[tuple[str, bytes]]:
    text = image.content(image.section(blob.NAME_SHAVE_TEXT)).tobytes()
    rows = records(image.table(blob.NAME_SHAVE_KERNELS))
    return [(image.name(row["name"]), text[row["text"] : row["text"] + row["text_bytes"]]) for row in rows]


def _ordered(image: Blob) -> list[tuple[str, bytes]]:
    """By name, then by first use: a new program moves no program of another name."""
    return sorted(_kernels(image), key=lambda kernel: kernel[0])


def _opcodes(program: Program) -> str:
    words = []
    for op, run in groupby(instruction.op for instruction in program.instructions):
        count = sum(1 for _ in run)
        words.append(op.name.lower() + (f"*{count}" if count > 1 else ""))
    return " ".join(words)


def _arg(arg: ArgSpec) -> str:
    if arg.mode is ArgMode.SCALAR:
        return "scalar"
    form = tensor_text(arg.dtype, arg.shape, arg.stride)
    return f"{arg.mode.name.lower()} {form}" + (f" step {arg.step}" if arg.step else "")
