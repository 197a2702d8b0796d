"""The weights section: constants in order of first use, each key and each content stored once, streamed to the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from npuc.emit.elf import align_up
from npuc.emit.errors import EmitError
from npuc.graph.entry import StateSpec
from npuc.progress import Report, silent
from npuc.tasks.graph import Buffer, Const, Role
from npuc.tasks.program import EntryProgram

ALIGN = 64  # bytes; a constant may ask for more
LONGEST_ALIGN = 4096  # the section itself is page-aligned, so no constant can lie better


@dataclass
class ConstPlan:
    """The constants of a blob before they have bytes, and the index of each.

    The initial values of states come first: their sizes are known, so are their offsets, which the metadata names.
    """

    consts: list[Const] = field(default_factory=list)
    aligns: list[int] = field(default_factory=list)
    state_offsets: dict[str, int] = field(default_factory=dict)
    _by_key: dict[str, int] = field(default_factory=dict)

    def index(self, buffer: Buffer) -> int:
        """The index of a CONST buffer's constant."""
        assert buffer.const is not None
        return self._by_key[buffer.const.key]

    def _add(self, const: Const, align: int, where: str) -> None:
        if align & (align - 1) or not 0 < align <= LONGEST_ALIGN:
            raise EmitError(f"{where}: alignment {align} is no power of two up to {LONGEST_ALIGN}")
        found = self._by_key.setdefault(const.key, len(self.consts))
        if found == len(self.consts):
            self.consts.append(const)
            self.aligns.append(max(align, ALIGN))
            return
        other = self.consts[found]
        if (other.dtype, other.shape) != (const.dtype, const.shape):
            raise EmitError(
                f"{where}: the key {const.key!r} stands for {_type(other)} and for {_type(const)}; "
                "equal keys mean equal bytes"
            )
        self.aligns[found] = max(self.aligns[found], align)


def plan_consts(programs: Iterable[EntryProgram], states: Iterable[StateSpec]) -> ConstPlan:
    """Collects the constants: initial values of states, then CONST buffers in order of first use."""
    plan = ConstPlan()
    cursor = 0
    for state in states:
        if state.initial is not None:
            const = _initial(state)
            plan._add(const, ALIGN, f"state {state.id}")
            cursor = align_up(cursor, ALIGN)
            plan.state_offsets[state.id] = cursor
            cursor += _nbytes(const)
    seen: dict[Buffer, None] = {}
    for program in programs:
        for task in program.tasks:
            for region in task.reads:
                buffer = region.buffer
                if buffer.role is Role.CONST and buffer not in seen:
                    seen[buffer] = None
                    if buffer.const is None:
                        raise EmitError(f"buffer {buffer.name}: role const without a constant")
                    if _nbytes(buffer.const) != buffer.nbytes:
                        raise EmitError(
                            f"buffer {buffer.name}: {buffer.nbytes} bytes, its constant is {_type(buffer.const)}"
                        )
                    plan._add(buffer.const, buffer.align, f"buffer {buffer.name}")
    return plan


@dataclass(frozen=True)
class Placed:
    """Where the constants lie. offsets: int64 [constants], bytes from the start of the section; size of the section."""

    offsets: np.ndarray
    size: int
    sha256: bytes

    @staticmethod
    def nowhere(plan: ConstPlan) -> Placed:
        """Stands in until the constants are written: everything that is sized by counts has its true size already."""
        return Placed(np.zeros(len(plan.consts), np.int64), 0, bytes(32))


def stream(plan: ConstPlan, file: BinaryIO, report: Report = silent) -> Placed:
    """Writes the section at the file's position. Each constant is produced once and dropped before the next.

    Equal contents are stored once, the initial values of states apart, whose offsets are fixed beforehand.
    """
    section = _Writer(file)
    fixed = len(plan.state_offsets)
    sizes = const_sizes(plan.consts)
    total, done, places = sum(sizes), 0, []
    for i, const in enumerate(plan.consts):
        report(f"write {done / 1e6:.0f} of {total / 1e6:.0f} MB", done / max(total, 1))
        places.append(section.add(const, plan.aligns[i], share=i >= fixed))
        done += sizes[i]
    assert list(plan.state_offsets.values()) == places[:fixed]
    return Placed(np.array(places, np.int64), section.size, section.sha256.digest())


class _Writer:
    """The section as far as it is written. sha256: of its bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = 0
        self.sha256 = hashlib.sha256()
        self._file = file
        self._known: dict[bytes, int] = {}

    def add(self, const: Const, align: int, share: bool) -> int:
        """The offset of a constant's bytes: where they lie already, if `share` allows, or at the end."""
        data = _bytes(const)
        digest = hashlib.sha256(data).digest()
        found = self._known.get(digest)
        if found is not None and share and found % align == 0:
            return found
        offset = align_up(self.size, align)
        for piece in (bytes(offset - self.size), data):
            self.sha256.update(piece)
            self._file.write(piece)
        self.size = offset + len(data)
        self._known[digest] = offset
        return offset


def _bytes(const: Const) -> memoryview | bytes:
    try:
        array = const.produce()
    except OSError as error:  # of the model's files, not of the blob's
        raise EmitError(f"constant {const.key!r} cannot be read: {error}") from error
    if array.dtype != const.dtype.storage or array.shape != const.shape:
        raise EmitError(
            f"constant {const.key!r}: {_type(const)} was promised ({const.dtype.storage}), "
            f"and {array.dtype}{list(array.shape)} was produced"
        )
    return np.ascontiguousarray(array).reshape(-1).data.cast("B") if array.size else b""


def _initial(state: StateSpec) -> Const:
    initial = state.initial
    assert initial is not None
    return Const(f"state.{state.id}", state.dtype, state.shape, lambda: initial)


def _nbytes(const: Const) -> int:
    return int(np.prod(const.shape, dtype=np.int64)) * const.dtype.nbytes


def _type(const: Const) -> str:
    return f"{const.dtype.label}{list(const.shape)}"


def const_sizes(plan: Sequence[Const]) -> list[int]:
    """Bytes of each constant."""
    return [_nbytes(const) for const in plan]
