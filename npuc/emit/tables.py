"""Tasks of all entries as the records of the blob.

Rows are gathered as tuples and turned into columns by NumPy. An operand in the weights gets its constant's index beside
its offset, and the constant's own offset is added when that is known (`TaskTables.placed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.emit.bases import BaseTable
from npuc.emit.elf import StringTable
from npuc.emit.errors import EmitError
from npuc.emit.operands import Locate, dma_row, dpu_row, predicate, shave_args, step_patches
from npuc.emit.pool import ConstPlan
from npuc.emit.shave import ShaveText
from npuc.tasks.graph import CallOp, MmaOp, Origin, Task
from npuc.tasks.program import EntryProgram, Sync
from npurt.abi.records import BARRIER, DMA, DPU, ENTRY, MAX_COORD, NO_NODE, ORIGIN, SHAVE, SHAVE_ARG, Queue
from npurt.abi.rows import fill

QUEUES = {"dma.in": Queue.DMA_IN, "dma.out": Queue.DMA_OUT, "dpu": Queue.DPU, "shave": Queue.SHAVE}
BARRIER_IDS = 128  # width of the wait and post masks


@dataclass(frozen=True)
class StepPatch:
    """A field of DMA row `row` that follows the step block. add: of STEP_VALID; else the record's own offset counts."""

    row: int
    type: int
    step_field: str
    add: int


@dataclass
class _Rows:
    """Rows of one table, in the order of the dtype's fields, with the constants that their offsets are relative to."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    consts: list[tuple[int, ...]] = field(default_factory=list)
    origins: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class TaskTables:
    """All tables. consts: per table and offset field, the constant's index or -1."""

    entries: np.ndarray
    barriers: np.ndarray
    dma: np.ndarray
    dpu: np.ndarray
    shave: np.ndarray
    args: np.ndarray
    origins: np.ndarray
    patches: list[StepPatch]
    shave_text: ShaveText
    consts: dict[str, dict[str, np.ndarray]]

    def placed(self, name: str, offsets: np.ndarray) -> np.ndarray:
        """The table `name` with the constants' offsets (int64 [constants]) added."""
        # a copy of the bytes: NumPy's own copy of a record leaves its padding undefined
        source: np.ndarray = getattr(self, name)
        table = np.frombuffer(bytearray(source.tobytes()), source.dtype)
        with_none = np.append(offsets, 0).astype(np.uint64)  # index -1 adds nothing
        for column, index in self.consts[name].items():
            table[column] += with_none[index]
        return table


# the offset fields of each table, in the order in which the row functions list the constants of their operands
_OFFSETS = {
    "dma": ("src_offset", "dst_offset", "index_offset"),
    "dpu": ("a_offset", "b_offset", "c_offset", "table_offset"),
    "args": ("offset",),
}


def build_tables(
    programs: Sequence[EntryProgram], bases: BaseTable, consts: ConstPlan, names: StringTable
) -> TaskTables:
    """The records of all entries. Names of entries, nodes, kernels and stages are added to `names`."""
    dma, dpu, shave, args = _Rows(), _Rows(), _Rows(), _Rows()
    text = ShaveText()
    patches: list[StepPatch] = []
    entries: list[tuple[Any, ...]] = []
    barriers: list[tuple[Any, ...]] = []
    for program, (base_first, base_count) in zip(programs, bases.ports, strict=True):
        first = {"dma": len(dma.rows), "dpu": len(dpu.rows), "shave": len(shave.rows), "step": len(patches)}
        locate = Locate(bases, consts, program.offsets, program.entry)
        for i, task in enumerate(program.tasks):
            queue = _queue(task, program.queues[i], program.entry)
            sync = _sync(program.sync[i], task.origin, names)
            if isinstance(task.op, MmaOp):
                row, refs = dpu_row(task, task.op, locate)
                out = dpu
            elif isinstance(task.op, CallOp):
                argument_rows, argument_refs = shave_args(task, task.op, locate)
                row = (
                    text.kernel(task.op.name, task.op.code),
                    len(args.rows),
                    len(argument_rows),
                    *predicate(task, locate),
                )
                args.rows += argument_rows
                args.consts += argument_refs
                refs, out = (), shave
            else:
                row, refs = dma_row(task, task.op, queue, locate)
                patches += [StepPatch(len(dma.rows), *patch) for patch in step_patches(task)]
                out = dma
            out.rows.append((*row, *sync))
            out.consts.append(refs)
            out.origins.append(_origin(task.origin, i, program.entry, names))
        entries.append(
            (
                names.add(program.entry), program.rows, program.capacity, first["dma"], len(dma.rows) - first["dma"],
                first["dpu"], len(dpu.rows) - first["dpu"], first["shave"], len(shave.rows) - first["shave"],
                len(barriers), len(program.barriers), base_first, base_count, program.cmx_peak, program.scratch_bytes,
                first["step"], len(patches) - first["step"],
            )
        )  # fmt: skip
        barriers += [(barrier.id, barrier.producers, barrier.consumers, 0) for barrier in program.barriers]
    return TaskTables(
        entries=fill(ENTRY, entries),
        barriers=fill(BARRIER, barriers),
        dma=fill(DMA, dma.rows),
        dpu=fill(DPU, dpu.rows),
        shave=fill(SHAVE, shave.rows),
        args=fill(SHAVE_ARG, args.rows),
        origins=fill(ORIGIN, dma.origins + dpu.origins + shave.origins),
        patches=patches,
        shave_text=text,
        consts={
            name: _const_columns(rows.consts, _OFFSETS[name])
            for name, rows in (("dma", dma), ("dpu", dpu), ("args", args))
        },
    )


def _queue(task: Task, name: str, entry: str) -> Queue:
    """The queue's code. Trace order is the order of each queue, so rows need no sorting."""
    engine = "dpu" if isinstance(task.op, MmaOp) else "shave" if isinstance(task.op, CallOp) else "dma"
    if name not in QUEUES or not name.startswith(engine):
        origin = task.origin
        raise EmitError(
            f"entry {entry}, node {origin.node}, kernel {origin.kernel}{list(origin.coord)}: "
            f"{type(task.op).__name__} on queue {name!r}; the queues of a blob are {', '.join(QUEUES)}"
        )
    return QUEUES[name]


def _sync(sync: Sync, origin: Origin, names: StringTable) -> tuple[Any, ...]:
    node = names.add(origin.node) if origin.node else NO_NODE
    return _mask(sync.wait), _mask(sync.post), sync.start_after, node


def _mask(ids: Sequence[int]) -> tuple[int, int]:
    mask = 0
    for id_ in ids:
        if not 0 <= id_ < BARRIER_IDS:
            raise EmitError(f"barrier id {id_}: a record's masks hold ids up to {BARRIER_IDS - 1}")
        mask |= 1 << id_
    return mask & 0xFFFFFFFFFFFFFFFF, mask >> 64


def _origin(origin: Origin, sequence: int, entry: str, names: StringTable) -> tuple[Any, ...]:
    rank = len(origin.coord)
    if rank > MAX_COORD:
        raise EmitError(
            f"entry {entry}, node {origin.node}, kernel {origin.kernel}: coordinate {list(origin.coord)} "
            f"has {rank} places, a record holds {MAX_COORD}"
        )
    coord = (*origin.coord, *(0,) * (MAX_COORD - rank))
    return names.add(origin.kernel), names.add(origin.stage), sequence, rank, coord


def _const_columns(consts: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, np.ndarray]:
    index = np.array(consts, np.int64).reshape(len(consts), len(names))
    return {name: index[:, i] for i, name in enumerate(names)}
