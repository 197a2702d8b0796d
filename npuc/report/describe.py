"""Task records in words that do not move: operands by what they are, never by an absolute address.

A template is a text with two marks: VALUE stands for a number, AT for an offset (" at 64", nothing for 0). The numbers
come beside it, one per mark, so that tasks which differ in numbers alone share a template.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.report.programs import program_ids
from npuc.report.reader import Blob
from npuc.report.rows import Record
from npuc.report.tensors import LABELS, tensor_text
from npurt.abi import blob
from npurt.abi.blob import Reloc
from npurt.abi.records import DMA, FLAGS, NO_BASE, PREDICATE_FIELDS, RANGES, BaseKind, DmaOp, DpuFlag, Predicate, Step
from npurt.elf import Symbol

VALUE, AT = "\0", "\1"
DIGEST_CHARS = 12


@dataclass(frozen=True)
class Described:
    """A template and its numbers, in the order of the marks."""

    text: str
    values: tuple[int, ...]


def fill_marks(text: str, numbers: Sequence[str]) -> str:
    """A template with its numbers, one per mark."""
    out, place = "", 0
    for char in text:
        if char not in (VALUE, AT):
            out += char
            continue
        number = numbers[place]
        place += 1
        out += number if char == VALUE else f" at {number}" if number != "0" else ""
    return out.replace("+-", "-")


@dataclass
class Bindings:
    """The constants and states of one node, numbered in order of first use: equal layers then read the same.

    labels: symbol -> ``const#0``.
    """

    labels: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def label(self, kind: str, symbol: str) -> str:
        found = self.labels.get(symbol)
        if found is None:
            number = self.counts.get(kind, 0)
            self.counts[kind] = number + 1
            found = self.labels[symbol] = f"{kind}#{number}"
        return found


class Describer:
    """Knows the bases, constants, programs and step relocations of one blob."""

    def __init__(self, image: Blob) -> None:
        self.image = image
        bases = image.table(blob.NAME_BASES)
        self.kinds: list[int] = bases["kind"].tolist()
        self.symbols: list[str] = [_symbol(image.symbols, index) for index in bases["symbol"].tolist()]
        self.programs = program_ids(image)
        weights = image.section(blob.NAME_WEIGHTS)
        consts = [s for s in image.symbols if s.section == weights.index and s.name.startswith("const.") and s.size]
        self._consts = sorted(consts, key=lambda s: s.value)
        self._const_starts = [s.value for s in self._consts]
        self._weights = image.content(weights)
        self._digests: dict[str, str] = {}
        self._patches = _step_patches(image)
        self._args: list[tuple[int, int, int]] = image.table(blob.NAME_SHAVE_ARGS).tolist()
        self._describe: dict[str, Callable[[int, Record, Bindings], Described]] = {
            "dma": self._dma, "dpu": self._dpu, "shave": self._shave,
        }  # fmt: skip

    def describe(self, table: str, row: int, record: Record, bindings: Bindings) -> Described:
        """table: dma, dpu or shave; row: its number in the blob-wide table."""
        return self._describe[table](row, record, bindings)

    def binding_text(self, symbol: str, label: str) -> str:
        """``const#0:768B:3f2a9c1b04de`` (bytes and digest) or ``state#0:k0``."""
        if label.startswith("state"):
            return f"{label}:{symbol.removeprefix('state.')}"
        const = next(s for s in self._consts if s.name == symbol)
        if symbol not in self._digests:
            data = self._weights[const.value : const.value + const.size]
            self._digests[symbol] = hashlib.sha256(data.data).hexdigest()[:DIGEST_CHARS]
        return f"{label}:{const.size}B:{self._digests[symbol]}"

    def args(self, record: Record) -> list[tuple[int, int, int]]:
        """(base, scalar, offset) of each argument of a SHAVE record."""
        return self._args[record["arg_first"] : record["arg_first"] + record["arg_count"]]

    def in_ddr(self, base: int) -> bool:
        return base != NO_BASE and self.kinds[base] != BaseKind.CMX

    def _operand(self, base: int, offset: int, bindings: Bindings) -> tuple[str, tuple[int, ...]]:
        """The place in words, with a mark for the offset where one counts. Offsets in scratchpad and scratch are the
        scheduler's choice and move with every change, so they are left out."""
        kind, symbol = self.kinds[base], self.symbols[base]
        if kind in (BaseKind.CMX, BaseKind.SCRATCH):
            return BaseKind(kind).name.lower(), ()
        if kind == BaseKind.CONST:
            found = bisect_right(self._const_starts, offset) - 1
            if found < 0:
                return symbol + AT, (offset,)
            # of constants that share their bytes, the first one gives the name
            const = self._consts[bisect_left(self._const_starts, self._const_starts[found])]
            return bindings.label("const", const.name) + AT, (offset - const.value,)
        if kind == BaseKind.STATE:
            return bindings.label("state", symbol) + AT, (offset,)
        if kind == BaseKind.STEP:
            return f"step.{Step(offset // 4).name.lower()}", ()
        return _port_name(symbol) + AT, (offset,)

    def _dma(self, row: int, r: Record, bindings: Bindings) -> Described:
        op = DmaOp(r["op"])
        keep = r["row_dim"] if op is DmaOp.COPY else 3
        used = zip(r["size"], r["src_stride"], r["dst_stride"], strict=True)
        first = next(i for i, place in enumerate(used) if place != (1, 0, 0) or i in (keep, 3))
        size = r["size"][first:]
        dst, values = self._operand(r["dst_base"], r["dst_offset"], bindings)
        dst += " " + tensor_text(r["dst_type"], size, r["dst_stride"][first:])
        if op is DmaOp.FILL:
            text = f"fill {r['fill']:#x} -> {dst}"
        else:
            src, src_values = self._operand(r["src_base"], r["src_offset"], bindings)
            src += " " + tensor_text(r["src_type"], size, r["src_stride"][first:])
            values = src_values + values
            text = f"copy {src} -> {dst}"
            if op is DmaOp.GATHER:
                index, index_values = self._operand(r["index_base"], r["index_offset"], bindings)
                values = values[: len(src_values)] + index_values + values[len(src_values) :]
                text = f"gather {src} by {index} below {r['index_bound']} -> {dst}"
                text += _along(r, first)
            elif op is DmaOp.SCATTER:
                index, index_values = self._operand(r["index_base"], r["index_offset"], bindings)
                values = values[: len(src_values)] + index_values + values[len(src_values) :]
                text = f"scatter {src} by {index} below {r['index_bound']} -> {dst}{_along(r, first)}"
        patched, patch_values = self._step_text(row, r, first)
        predicate, predicate_values = self._predicate(r, bindings)
        return Described(text + patched + predicate, values + patch_values + predicate_values)

    def _step_text(self, row: int, r: Record, first: int) -> tuple[str, tuple[int, ...]]:
        text = ""
        values: tuple[int, ...] = ()
        patched = self._patches.get(row, ())
        for type_, symbol, addend in patched:
            if type_ == Reloc.STEP_VALID:
                text += f" valid[{r['row_dim'] - first}]={symbol}+{VALUE}"
                values = (*values, addend)
            else:
                text += f" {'src' if type_ == Reloc.STEP_SRC else 'dst'}+={symbol}"
        valid_patched = any(type_ == Reloc.STEP_VALID for type_, _, _ in patched)
        if not valid_patched and r["valid"] != r["size"][r["row_dim"]]:
            text += f" valid[{r['row_dim'] - first}]={r['valid']}"
        return text, values

    def _dpu(self, row: int, r: Record, bindings: Bindings) -> Described:
        flags = DpuFlag(r["flags"])
        words: list[str] = []
        values: tuple[int, ...] = ()
        for name in "abc":
            place, place_values = self._operand(r[f"{name}_base"], r[f"{name}_offset"], bindings)
            batch = f"+{r[f'{name}_batch']}" if r["batch"] > 1 else ""
            kind = LABELS[r[f"{name}_type"]] + (f"-{r['b_zero']}" if name == "b" and r["b_zero"] else "")
            words.append(f"{place} {kind}({r[f'{name}_stride']}{batch})")
            values += place_values
        dims = f"[{r['batch']},{r['m']},{r['n']},{r['k']}]" if r["batch"] > 1 else f"[{r['m']},{r['n']},{r['k']}]"
        text = f"mma{dims} {words[0]} x {words[1]}{' kn' if flags & DpuFlag.B_KN else ''} -> {words[2]}"
        if flags & DpuFlag.ACCUMULATE:
            text += " accumulate"
        if r["scale"] != 1.0:
            text += f" scale {r['scale']:.9g}"
        if flags & DpuFlag.TABLE:
            place, place_values = self._operand(r["table_base"], r["table_offset"], bindings)
            text, values = f"{text} table {place}", values + place_values
        if flags & DpuFlag.SCALES:
            place, place_values = self._operand(r["table_base"], r["table_offset"], bindings)
            group = f" group {r['group']}" if r["group"] else ""
            kind = f"{LABELS[r['scale_type']]}({r['table_stride']})"
            text, values = f"{text} scales {place} {kind}{group}", values + place_values
        if flags & DpuFlag.CLAMP:
            text += f" clamp {r['clamp_lo']:.9g}..{r['clamp_hi']:.9g}"
        predicate, predicate_values = self._predicate(r, bindings)
        return Described(text + predicate, values + predicate_values)

    def _shave(self, row: int, r: Record, bindings: Bindings) -> Described:
        words: list[str] = []
        values: tuple[int, ...] = ()
        for base, scalar, offset in self.args(r):
            place, place_values = (VALUE, (scalar,)) if base == NO_BASE else self._operand(base, offset, bindings)
            words.append(place)
            values += place_values
        predicate, predicate_values = self._predicate(r, bindings)
        return Described(f"call {self.programs[r['kernel']]}({', '.join(words)}){predicate}", values + predicate_values)

    def _predicate(self, r: Record, bindings: Bindings) -> tuple[str, tuple[int, ...]]:
        code = Predicate(r["pred"])
        if code is Predicate.ALWAYS:
            return "", ()
        if code in FLAGS:
            flag, values = self._operand(r["pred_base"], r["pred_value"], bindings)
            return f" when {flag} {'!=' if code is Predicate.FLAG_NZ else '=='} 0", values
        above, text = r["pred_value"], f" when {PREDICATE_FIELDS[code].name.lower()}>{VALUE}"
        return (f"{text} and <={VALUE}", (above, above + r["pred_base"])) if code in RANGES else (text, (above,))


def _along(r: Record, first: int) -> str:
    """The dimension whose indices are chosen, where it is not the outermost that counts."""
    return f" along {r['row_dim'] - first}" if r["row_dim"] > first else ""


def _port_name(symbol: str) -> str:
    """``in.x`` of ``generate.512.in.x``: an entry's own ports need no entry name."""
    way = min((i for i in (symbol.find(".in."), symbol.find(".out.")) if i >= 0), default=-1)
    return symbol[way + 1 :]


def _symbol(symbols: Sequence[Symbol], index: int) -> str:
    return symbols[index].name if index < len(symbols) else f"symbol{index}"


def _step_patches(image: Blob) -> dict[int, list[tuple[int, str, int]]]:
    """Per DMA row: (relocation type, step field, addend)."""
    rela = image.table(blob.NAME_RELA_STEP)
    rows = (rela["r_offset"] // np.uint64(DMA.itemsize)).tolist()
    found: dict[int, list[tuple[int, str, int]]] = {}
    for row, info, addend in zip(rows, rela["r_info"].tolist(), rela["r_addend"].tolist(), strict=True):
        symbol = _symbol(image.symbols, info >> 32).removeprefix("step.")
        found.setdefault(row, []).append((info & 0xFFFFFFFF, symbol, addend))
    return found
