"""The text form of a task graph: stable, one task a line, read back exactly by npuc.tasks.parse.

    entry main rows 64 capacity 0
    code c0
      program trip 1
        arg 0 in f32[64,64] stride [256,4]
        ...
    buffer q ddr input 8192
    buffer q.0 cmx local 8192 align 128 at 0 where "flash.py:12"
    buffer w ddr const 2048 key "w 0" f16[16,64]
    task 0 dma.in copy : q f16[64,64] -> q.0 f16[64,64] ; node attn kernel flash coord [0,1] stage "load q"
    task 1 dpu mma scale 0.125 : q.0 f16[64,64], k.0+128 f16[64,64][512,2] -> s.0 f32[64,64] ; when n_past > 64

A region is its buffer, +offset in bytes, element type and shape, and the strides in bytes where it is not contiguous.
Words with blanks or signs are JSON strings. Lines that begin with # are comments. Buffers stand in order of first
use. Vector code that has no exact listing is given as hex digits. What has its default value is left out.
"""

from __future__ import annotations

from npuc.tasks.assemble import ListingError, assemble
from npuc.tasks.graph import (
    Buffer,
    CallOp,
    CopyOp,
    FillOp,
    GatherOp,
    Region,
    ScatterOp,
    Task,
    TaskGraph,
    TaskOp,
)
from npuc.tasks.parse import contiguous, parse_tasks
from npuc.tasks.words import TaskTextError, word
from npurt.errors import BytecodeError
from npurt.shave import listing
from npurt.shave import parse as parse_program

__all__ = ["TaskTextError", "format_tasks", "parse_tasks"]

_HEX = 64  # digits a line


def format_tasks(graph: TaskGraph) -> str:
    """The text of a graph; equal graphs give equal texts."""
    labels: dict[bytes, str] = {}
    for task in graph.tasks:
        if isinstance(task.op, CallOp):
            labels.setdefault(task.op.code, f"c{len(labels)}")
    lines = [f"entry {word(graph.entry)} rows {graph.rows} capacity {graph.capacity}"]
    for code, label in labels.items():
        lines += [f"code {label}", *(f"  {line}" for line in _code_lines(code))]
    lines += [_buffer(buffer) for buffer in graph.buffers()]
    lines += [_task(index, task, labels) for index, task in enumerate(graph.tasks)]
    return "\n".join(lines) + "\n"


def _code_lines(code: bytes) -> list[str]:
    """The listing of a program, or its hex digits where the listing does not say every byte."""
    try:
        lines = listing(parse_program(code)).splitlines()
        if assemble(lines) == code:
            return lines
    except (BytecodeError, ListingError):
        pass
    digits = code.hex()
    return [f"hex {digits[at : at + _HEX]}" for at in range(0, len(digits), _HEX)]


def _buffer(buffer: Buffer) -> str:
    words = ["buffer", word(buffer.name), word(buffer.memory), buffer.role.value, str(buffer.nbytes)]
    if buffer.align != 64:
        words.append(f"align {buffer.align}")
    if buffer.pinned is not None:
        words.append(f"at {buffer.pinned}")
    if buffer.const is not None:
        words.append(f"key {word(buffer.const.key)} {buffer.const.dtype.label}{_list(buffer.const.shape)}")
    if buffer.where:
        words.append(f"where {word(buffer.where)}")
    return " ".join(words)


def _task(index: int, task: Task, labels: dict[bytes, str]) -> str:
    words = ["task", str(index), word(task.engine), *_op(task.op, labels), ":"]
    sides = [", ".join(map(_region, regions)) for regions in (task.reads, task.writes)]
    words += [*([sides[0]] if sides[0] else []), "->", *([sides[1]] if sides[1] else [])]
    tail = []
    origin = task.origin
    for name, text in (
        ("entry", origin.entry),
        ("node", origin.node),
        ("kernel", origin.kernel),
        ("stage", origin.stage),
    ):
        if text:
            tail.append(f"{name} {word(text)}")
    if origin.coord:
        tail.append(f"coord {_list(origin.coord)}")
    if task.when is not None:
        most = "" if task.when.most is None else f" most {task.when.most}"
        tail.append(f"when {task.when.field} > {task.when.above}{most}")
    if task.flag is not None:
        tail.append(f"flag {'taken' if task.flag.taken else 'untaken'} {_list(task.flag.reads)}")
    return " ".join([*words, *([";", *tail] if tail else [])])


def _op(op: TaskOp, labels: dict[bytes, str]) -> list[str]:
    if isinstance(op, CopyOp):
        words = ["copy"]
        if op.row_dim:
            words.append(f"row_dim {op.row_dim}")
        if op.valid is not None:
            words.append(f"valid {op.valid.field} {op.valid.add:+d}")
        for name, text in (("shift_src", op.shift_src), ("shift_dst", op.shift_dst), ("layout", op.layout or None)):
            if text is not None:
                words.append(f"{name} {word(text)}")
        return words
    if isinstance(op, FillOp):
        return ["fill", f"{op.bits:#x}"]
    if isinstance(op, (GatherOp, ScatterOp)):
        words = ["gather" if isinstance(op, GatherOp) else "scatter", f"bound {op.bound}"]
        return [*words, f"row_dim {op.row_dim}"] if op.row_dim else words
    if isinstance(op, CallOp):
        args = " ".join(_argument(kind, value) for kind, value in op.args)
        return ["call", word(op.name), labels[op.code], f"({args})"]
    words = ["mma"]
    words += [name for name, given in (("accumulate", op.accumulate), ("b_kn", op.b_kn), ("table", op.table)) if given]
    if op.scale != 1.0:
        words.append(f"scale {op.scale!r}")
    if op.clamp is not None:
        words.append(f"clamp {op.clamp[0]!r} {op.clamp[1]!r}")
    if op.codes is not None:
        words.append(f"codes {op.codes.label}")
    if op.zero:
        words.append(f"zero {op.zero}")
    if op.scales:
        words.append(f"scales {op.group}")
    return words


def _argument(kind: str, value: int | str) -> str:
    return f"s {word(value)}" if isinstance(value, str) else f"{kind} {value}"


def _region(region: Region) -> str:
    offset = f"{region.offset:+d}" if region.offset else ""
    stride = "" if region.stride == contiguous(region.shape, region.dtype.nbytes) else _list(region.stride)
    return f"{word(region.buffer.name)}{offset} {region.dtype.label}{_list(region.shape)}{stride}"


def _list(values: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, values))}]"
