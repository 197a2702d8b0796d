"""Tiny blobs written by hand from the dtypes of npurt.abi, so that the loader is tested without the compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npurt.abi import blob
from npurt.abi.blob import Reloc, SectionType
from npurt.abi.dtypes import DType
from npurt.abi.records import (
    BARRIER,
    BASE,
    DMA,
    DPU,
    ENTRY,
    NO_BASE,
    SHAVE,
    SHAVE_ARG,
    SHAVE_KERNEL,
    STEP_BYTES,
    BaseKind,
    Queue,
)  # fmt: skip
from tests.unit.npurt.rows import nbytes, padded, records, rela, rows_of, strides, with_masks

CMX, CONST, SCRATCH, STEP = range(4)
STEP_SYMBOLS = {"step.n_past": 0, "step.n_new": 4}
FIELD = {Reloc.STEP_SRC: "src_offset", Reloc.STEP_DST: "dst_offset", Reloc.STEP_VALID: "valid"}
Tables = dict[str, np.ndarray]


@dataclass
class TinyBlob:
    """One entry; rows are added in task order, `to_bytes` writes the file.

    edit: changes the tables before they are written (digests follow). sections: replaces contents by name.
    """

    name: str = "main"
    rows: int = 0
    capacity: int = 0
    cmx: int = 4096
    scratch: int = 4096
    weights: bytes = b""
    inputs: dict[str, tuple[DType, tuple[int, ...]]] = field(default_factory=dict)
    outputs: dict[str, tuple[DType, tuple[int, ...]]] = field(default_factory=dict)
    states: dict[str, tuple[DType, tuple[int, ...], int | None]] = field(default_factory=dict)
    barriers: list[tuple[int, int, int]] = field(default_factory=list)
    edit: Callable[[Tables], None] = lambda tables: None
    sections: dict[str, bytes] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    version: tuple[int, int] = (blob.ABI_MAJOR, blob.ABI_MINOR)

    def __post_init__(self) -> None:
        self._dma: list[dict[str, Any]] = []
        self._dpu: list[dict[str, Any]] = []
        self._shave: list[dict[str, Any]] = []
        self._args: list[tuple[int, int, int]] = []
        self._kernels: list[bytes] = []
        self._steps: list[tuple[int, Reloc, str, int]] = []

    def base(self, name: str) -> int:
        """Row of "cmx", "weights", "scratch", "step", a state, an input or an output."""
        names = ["cmx", "weights", "scratch", "step", *self.states, *self.inputs, *self.outputs]
        return names.index(name)

    def dma(self, src: str, dst: str, size: tuple[int, ...], dtype: DType, **fields: Any) -> int:
        """A record; strides default to row-major. step: {Reloc: (symbol, addend)}. Returns its row."""
        to = fields.get("dst_type", dtype)
        record = {
            "op": 1, "queue": Queue.DMA_OUT if src == "cmx" else Queue.DMA_IN, "src_type": dtype, "dst_type": to,
            "src_base": self.base(src), "dst_base": self.base(dst), "index_base": NO_BASE, "row_dim": 4 - len(size),
            "size": padded(size, 1), "src_stride": padded(strides(size, dtype.nbytes), 0),
            "dst_stride": padded(strides(size, to.nbytes), 0),
        }  # fmt: skip
        row = len(self._dma)
        for kind, (symbol, addend) in fields.pop("step", {}).items():
            self._steps.append((row, kind, symbol, addend))
        self._dma.append(record | with_masks(fields))
        self._dma[-1].setdefault("valid", self._dma[-1]["size"][self._dma[-1]["row_dim"]])
        return row

    def dpu(
        self, m: int, n: int, k: int, types: tuple[DType, DType, DType], offsets: tuple[int, int, int], **fields: Any
    ) -> None:
        """A record with operands in CMX; rows without gaps, [n, k] or, with flag 2, [k, n]."""
        a, b, c = types
        width = n if fields.get("flags", 0) & 2 else k
        record = {
            "a_type": a, "b_type": b, "c_type": c, "a_base": CMX, "b_base": CMX, "c_base": CMX, "table_base": NO_BASE,
            "a_offset": offsets[0], "b_offset": offsets[1], "c_offset": offsets[2], "batch": 1, "m": m, "n": n, "k": k,
            "a_stride": k * a.nbytes, "b_stride": width * b.nbytes, "c_stride": n * c.nbytes, "scale": 1.0,
        }  # fmt: skip
        self._dpu.append(record | with_masks(fields))

    def shave(self, code: bytes, args: list[tuple[int, int, int]], **fields: Any) -> None:
        """A record that runs `code` on (base or NO_BASE, scalar, offset) arguments."""
        record = {"kernel": len(self._kernels), "arg_first": len(self._args), "arg_count": len(args)}
        self._kernels.append(code)
        self._args += args
        self._shave.append(record | with_masks(fields))

    def to_bytes(self) -> bytes:
        tables = self._tables()
        self.edit(tables)
        return self._write(tables)

    def _tables(self) -> Tables:
        symbols = self._symbols()
        index = {name: i + 1 for i, (name, *_) in enumerate(symbols)}
        bases = np.zeros(4 + len(self.states) + len(self.inputs) + len(self.outputs), BASE)
        kinds = [BaseKind.CMX, BaseKind.CONST, BaseKind.SCRATCH, BaseKind.STEP]
        kinds += [BaseKind.STATE] * len(self.states) + [BaseKind.INPUT] * len(self.inputs)
        kinds += [BaseKind.OUTPUT] * len(self.outputs)
        sizes = [self.cmx, len(self.weights), self.scratch, STEP_BYTES]
        sizes += [nbytes(*port[:2]) for port in (*self.states.values(), *self.inputs.values(), *self.outputs.values())]
        bases["kind"], bases["size"] = kinds, sizes
        bases["symbol"] = [index[name] for name in self._base_names()]
        relas = []
        for row, kind in enumerate(kinds):
            static = kind in (BaseKind.CONST, BaseKind.SCRATCH)
            relas.append((static, row * BASE.itemsize, index[self._base_names()[row]]))
        kernels = np.zeros(len(self._kernels), SHAVE_KERNEL)
        kernels["text"] = [1024 * i for i in range(len(kernels))]
        kernels["text_bytes"] = [len(code) for code in self._kernels]
        kernels["name"] = 1 + len(self.name) + 1
        entry = np.zeros(1, ENTRY)
        entry["name"], entry["rows"], entry["capacity"], entry["cmx_peak"] = 1, self.rows, self.capacity, self.cmx
        for name, count in (("dma", len(self._dma)), ("dpu", len(self._dpu)), ("shave", len(self._shave))):
            entry[f"{name}_count"] = count
        entry["barrier_count"], entry["step_count"] = len(self.barriers), len(self._steps)
        entry["base_first"] = 4 + len(self.states)
        entry["base_count"] = len(self.inputs) + len(self.outputs)
        barriers = np.zeros(len(self.barriers), BARRIER)
        for i, row in enumerate(self.barriers):
            barriers[i] = (*row, 0)
        steps = [
            rela(row * DMA.itemsize + DMA.fields[FIELD[kind]][1], index[symbol], kind, addend)
            for row, kind, symbol, addend in self._steps
        ]
        return {
            "entries": entry, "bases": bases, "barriers": barriers, "dma": records(DMA, self._dma),
            "dpu": records(DPU, self._dpu), "shave": records(SHAVE, self._shave), "kernels": kernels,
            "args": np.array(self._args, SHAVE_ARG), "symbols": self._symbol_rows(symbols),
            "static": rows_of(rela(offset, symbol, Reloc.ABS64, 0) for static, offset, symbol in relas if static),
            "bind": rows_of(rela(offset, symbol, Reloc.BIND64, 0) for static, offset, symbol in relas if not static),
            "step": rows_of(iter(steps)),
        }  # fmt: skip

    def _base_names(self) -> list[str]:
        ports = [f"{self.name}.in.{name}" for name in self.inputs] + [
            f"{self.name}.out.{name}" for name in self.outputs
        ]
        return ["cmx0", "weights", "scratch", "step", *(f"state.{name}" for name in self.states), *ports]

    def _symbols(self) -> list[tuple[str, int, str]]:
        where = {"weights": blob.NAME_WEIGHTS, "scratch": blob.NAME_SCRATCH}
        found = [(name, 0, where.get(name, "")) for name in self._base_names()]
        return found + [(name, value, "*ABS*") for name, value in STEP_SYMBOLS.items()]

    def _symbol_rows(self, symbols: list[tuple[str, int, str]]) -> np.ndarray:
        rows = np.zeros(len(symbols) + 1, blob.SYM)
        offset = 1
        for row, (name, value, section) in zip(rows[1:], symbols, strict=True):
            row["st_name"], row["st_value"] = offset, value
            row["st_shndx"] = 0xFFF1 if section == "*ABS*" else NAMES.index(section) if section else 0
            offset += len(name) + 1
        return rows

    def _metadata(self) -> dict[str, Any]:
        def ports(given: dict[str, tuple[DType, tuple[int, ...]]]) -> list[dict[str, Any]]:
            return [
                {"name": name, "dtype": dtype.label, "shape": list(shape), "graph_dtype": dtype.label}
                for name, (dtype, shape) in given.items()
            ]

        entry = {"name": self.name, "rows": self.rows, "capacity": self.capacity}
        states = [
            {
                "id": name,
                "dtype": dtype.label,
                "shape": list(shape),
                "kind": "append",
                "row_axis": 0,
                "initial": initial,
            }
            for name, (dtype, shape, initial) in self.states.items()
        ]
        entry |= {"inputs": ports(self.inputs), "outputs": ports(self.outputs)}
        return {"format": 1, "target": "npu40xx", "llm": None, "entries": [entry], "states": states} | self.meta

    def _write(self, tables: Tables) -> bytes:
        text = b"".join(code + bytes(-len(code) % 1024) for code in self._kernels)
        names = b"\0".join([b"", self.name.encode(), b"kernel", b""])
        note = (
            np.array([5, 8, blob.NOTE_ABI], "<u4").tobytes() + b"npuc\0\0\0\0" + np.array(self.version, "<u4").tobytes()
        )
        contents = {
            blob.NAME_NOTE: note, blob.NAME_NAMES: names, blob.NAME_SHAVE_TEXT: text, blob.NAME_WEIGHTS: self.weights,
            blob.NAME_META: json.dumps(self._metadata()).encode(), blob.NAME_SCRATCH: b"",
            blob.NAME_STRTAB: b"\0" + b"".join(name.encode() + b"\0" for name, *_ in self._symbols()),
            blob.NAME_SHSTRTAB: b"\0".join(name.encode() for name in NAMES) + b"\0",
            ".npu.asset.note.txt": b"hello",
        }  # fmt: skip
        contents |= {section: tables[key].tobytes() for key, section in TABLE_SECTIONS.items()} | self.sections
        digests = np.zeros(len(NAMES) - 4, blob.SECTION_DIGEST)
        covered = [
            i
            for i, name in enumerate(NAMES)
            if name not in ("", blob.NAME_SCRATCH, blob.NAME_DIGEST, blob.NAME_SHSTRTAB)
        ]
        digests["section"] = covered
        for row, i in zip(digests, covered, strict=True):
            row["sha256"] = np.frombuffer(hashlib.sha256(contents[NAMES[i]]).digest(), "u1")
        contents.setdefault(blob.NAME_DIGEST, digests.tobytes())
        headers = np.zeros(len(NAMES), blob.SHDR)
        offset = 64 + headers.nbytes
        body = b""
        name_at = 0
        for row, name in zip(headers, NAMES, strict=True):
            row["sh_name"], row["sh_type"] = (
                name_at,
                TYPES.get(name, SectionType.NPU_ASSET if name else SectionType.NULL),
            )
            name_at += len(name) + 1
            data = contents.get(name, b"")
            row["sh_offset"], row["sh_size"] = (
                offset + len(body),
                self.scratch if name == blob.NAME_SCRATCH else len(data),
            )
            row["sh_info"] = NAMES.index(RELA_TARGET[name]) if name in RELA_TARGET else 0
            body += data
        header = np.zeros((), blob.EHDR)
        header["e_ident"][:7] = list(b"\x7fELF\2\1\1")
        header["e_type"], header["e_machine"], header["e_shoff"], header["e_shentsize"] = 1, blob.E_MACHINE, 64, 64
        header["e_shnum"], header["e_shstrndx"] = len(NAMES), NAMES.index(blob.NAME_SHSTRTAB)
        return header.tobytes() + headers.tobytes() + body


TABLE_SECTIONS = {
    "entries": blob.NAME_ENTRIES, "bases": blob.NAME_BASES, "barriers": blob.NAME_BARRIERS, "dma": blob.NAME_DMA,
    "dpu": blob.NAME_DPU, "shave": blob.NAME_SHAVE, "kernels": blob.NAME_SHAVE_KERNELS, "args": blob.NAME_SHAVE_ARGS,
    "symbols": blob.NAME_SYMTAB, "static": blob.NAME_RELA_STATIC, "bind": blob.NAME_RELA_BIND,
    "step": blob.NAME_RELA_STEP,
}  # fmt: skip
KIND = SectionType
TYPES = {
    blob.NAME_NOTE: KIND.NOTE, blob.NAME_NAMES: KIND.STRTAB, blob.NAME_META: KIND.NPU_META,
    blob.NAME_ENTRIES: KIND.NPU_ENTRIES, blob.NAME_BASES: KIND.NPU_BASES,
    blob.NAME_BARRIERS: KIND.NPU_BARRIERS, blob.NAME_DMA: KIND.NPU_DMA, blob.NAME_DPU: KIND.NPU_DPU,
    blob.NAME_SHAVE: KIND.NPU_SHAVE, blob.NAME_SHAVE_KERNELS: KIND.NPU_SHAVE_KERNELS,
    blob.NAME_SHAVE_ARGS: KIND.NPU_SHAVE_ARGS, blob.NAME_SHAVE_TEXT: KIND.NPU_SHAVE_TEXT,
    blob.NAME_SYMTAB: KIND.SYMTAB, blob.NAME_STRTAB: KIND.STRTAB, blob.NAME_RELA_STATIC: KIND.RELA,
    blob.NAME_RELA_BIND: KIND.RELA, blob.NAME_RELA_STEP: KIND.RELA, blob.NAME_DIGEST: KIND.NPU_DIGEST,
    blob.NAME_SHSTRTAB: KIND.STRTAB, blob.NAME_SCRATCH: KIND.NOBITS, blob.NAME_WEIGHTS: KIND.PROGBITS,
}  # fmt: skip
NAMES = ["", *TYPES, ".npu.asset.note.txt"]
RELA_TARGET = {
    blob.NAME_RELA_STATIC: blob.NAME_BASES, blob.NAME_RELA_BIND: blob.NAME_BASES, blob.NAME_RELA_STEP: blob.NAME_DMA,
}  # fmt: skip
