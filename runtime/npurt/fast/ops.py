"""Tasks as the link passes see them: what each reads and writes, under which predicate.

Passes replace operands and drop tasks; a task that none of the kinds fits is `Exact` and runs from its record on the
bytes, as in exact mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from npurt.abi.dtypes import DType
from npurt.abi.records import Step
from npurt.fast.codes import Codes, Whole
from npurt.fast.refs import Ref, spread
from npurt.fast.steps import Amount, FlagPredicate, Predicate, Shift
from npurt.image import TaskRef
from npurt.shave.program import Program

FLAG = "flag"
"""The slot of the flag among a task's reads; it stays where its record says."""


@dataclass(slots=True)
class Access:
    """One operand. slot: its name in the task. sure: exactly these bytes, whatever the step; else at most these.

    index: its cells, once `Cells` has looked for them.
    """

    slot: str
    ref: Ref
    sure: bool = True
    index: slice | np.ndarray | None = None


def _shifted(slot: str, ref: Ref, shift: Shift | None, sure: bool = True) -> Access:
    if shift is None:
        return Access(slot, ref, sure)
    ends = (0, shift.stride * shift.most)
    return Access(slot, spread(ref, min(ends), max(ends)), False)


@dataclass(slots=True)
class Op:
    """A task. pred: None where it always runs."""

    task: TaskRef
    pred: Predicate | FlagPredicate | None
    known: tuple[list[Access], list[Access]] | None = field(default=None, init=False, repr=False)

    @property
    def reads(self) -> list[Access]:
        if self.known is None:
            self.known = self._inputs(), self.outputs()
        return self.known[0]

    @property
    def writes(self) -> list[Access]:
        if self.known is None:
            self.known = self._inputs(), self.outputs()
        return self.known[1]

    def _inputs(self) -> list[Access]:
        flag = [Access(FLAG, self.pred.flag)] if isinstance(self.pred, FlagPredicate) else []
        return [*self.inputs(), *flag]

    def inputs(self) -> list[Access]:
        """What the task reads."""
        return []

    def outputs(self) -> list[Access]:
        """What the task writes."""
        return []

    def put(self, slot: str, ref: Ref) -> None:
        """Replaces an operand."""
        setattr(self, slot, ref)
        self.known = None

    def changed(self) -> None:
        """To be called after any other change of operands."""
        self.known = None


@dataclass(slots=True)
class Copy(Op):
    """src to dst, converted where their types differ. Only `valid` rows of dimension `row_dim` are read; the other
    rows of dst become zero where `clears`, and are left alone else."""

    src: Ref
    dst: Ref
    row_dim: int
    valid: int | Amount
    clears: bool
    src_shift: Shift | None = None
    dst_shift: Shift | None = None

    @property
    def whole(self) -> bool:
        """Every element is copied, at places that do not follow the step block."""
        return self.valid == self.dst.shape[self.row_dim] and self.src_shift is None and self.dst_shift is None

    def inputs(self) -> list[Access]:
        return [_shifted("src", self.src, self.src_shift, self.valid == self.src.shape[self.row_dim])]

    def outputs(self) -> list[Access]:
        sure = self.clears or self.valid == self.dst.shape[self.row_dim]
        return [_shifted("dst", self.dst, self.dst_shift, sure)]


@dataclass(slots=True)
class Fill(Op):
    """Every element of dst becomes `bits`."""

    dst: Ref
    bits: int

    def outputs(self) -> list[Access]:
        return [Access("dst", self.dst)]


@dataclass(slots=True)
class Gather(Op):
    """Row r of dst becomes row index[r] of src along `row_dim`, or zero where that is no row."""

    src: Ref
    index: Ref
    dst: Ref
    row_dim: int

    def inputs(self) -> list[Access]:
        return [Access("src", self.src), Access("index", self.index)]

    def outputs(self) -> list[Access]:
        return [Access("dst", self.dst)]


@dataclass(slots=True)
class Scatter(Op):
    """Row index[r] of dst becomes row r of src along `row_dim`, in rising order of r; no row where that is none."""

    src: Ref
    index: Ref
    dst: Ref
    row_dim: int

    def inputs(self) -> list[Access]:
        return [Access("src", self.src), Access("index", self.index)]

    def outputs(self) -> list[Access]:
        return [Access("dst", self.dst, False)]


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows of an operand from `amount` on are zero.

    edges: ends of blocks that run one by one, each only if it has a row below `amount`: what the others would give is
    not written. Empty: all is written.
    """

    amount: Amount
    edges: tuple[int, ...]


@dataclass(slots=True)
class Mma(Op):
    """c = post(a b): views [batch, m, k], [batch, n, k] (or [batch, k, n] with kn), [batch, m, n].

    cut: of the rows of b, which are n (or k with kn). table: (scale, bias) pairs of each column. codes: how b reads
    where it is bytes [1, n, bytes]. wide: c is not rounded to its type.
    """

    a: Ref
    b: Ref
    c: Ref
    kn: bool
    adds: bool
    scale: float
    table: Ref | None
    clamp: tuple[float, float] | None
    cut: Cut | None = None
    codes: Codes | None = None
    whole: Whole | None = None
    wide: bool = False

    @property
    def rounds(self) -> bool:
        """Whether c is rounded to its type."""
        return self.c.dtype is not DType.F32 and not self.wide

    @property
    def plain(self) -> bool:
        """Nothing follows the sum but the scale, and both operands are numbers."""
        return self.table is None and self.clamp is None and self.codes is None

    def put(self, slot: str, ref: Ref) -> None:
        if slot == "scales":
            assert self.codes is not None
            self.codes = replace(self.codes, scales=ref)
            self.known = None
        else:
            Op.put(self, slot, ref)

    def inputs(self) -> list[Access]:
        found = [Access("a", self.a), Access("b", self.b, self.cut is None)]
        if self.table is not None:
            found.append(Access("table", self.table))
        if self.codes is not None and self.codes.scales is not None:
            found.append(Access("scales", self.codes.scales))
        if self.adds:
            found.append(Access("c", self.c))
        return found

    def outputs(self) -> list[Access]:
        return [Access("c", self.c, self.cut is None or self.kn or not self.cut.edges)]


@dataclass(slots=True)
class Call(Op):
    """A vector program. args: views, or for a scalar its value or step field. stored: outputs
    that the program stores to; dead: outputs that nobody reads."""

    program: Program
    args: list[Ref | int | Step]
    stored: frozenset[int]
    dead: set[int] = field(default_factory=set)

    def _refs(self) -> list[tuple[int, Ref]]:
        return [(number, ref) for number, ref in enumerate(self.args) if isinstance(ref, Ref)]

    def inputs(self) -> list[Access]:
        specs = self.program.args
        return [Access(str(number), ref) for number, ref in self._refs() if specs[number].reads]

    def outputs(self) -> list[Access]:
        specs = self.program.args
        return [
            Access(str(number), ref, number in self.stored)
            for number, ref in self._refs()
            if specs[number].writes and number not in self.dead
        ]

    def put(self, slot: str, ref: Ref) -> None:
        self.args[int(slot)] = ref
        self.known = None


@dataclass(slots=True)
class Exact(Op):
    """A task that runs from its record on the bytes of memory."""

    read: list[Ref]
    written: list[Ref]
    sure: bool

    def inputs(self) -> list[Access]:
        return [Access(str(number), ref, self.sure) for number, ref in enumerate(self.read)]

    def outputs(self) -> list[Access]:
        return [Access(str(number), ref, self.sure) for number, ref in enumerate(self.written)]

    def put(self, slot: str, ref: Ref) -> None:
        raise AssertionError("the operands of an exact task stay where its record says")


@dataclass(slots=True)
class Convert(Op):
    """Moves a range of memory between its bytes and a shadow."""

    src: Ref
    dst: Ref

    def inputs(self) -> list[Access]:
        return [Access("src", self.src)]

    def outputs(self) -> list[Access]:
        return [Access("dst", self.dst)]
