"""What each field of the format means, in a few words: the text beside the numbers of docs/blob-format.md and
docs/bytecode.md.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from npurt.abi import blob, bytecode, dtypes, records
from npurt.abi.blob import SectionType

RECORDS: dict[str, np.dtype] = {
    "ENTRY": records.ENTRY,
    "BASE": records.BASE,
    "BARRIER": records.BARRIER,
    "DMA": records.DMA,
    "DPU": records.DPU,
    "DPU_TABLE": records.DPU_TABLE,
    "SHAVE": records.SHAVE,
    "SHAVE_KERNEL": records.SHAVE_KERNEL,
    "SHAVE_ARG": records.SHAVE_ARG,
    "ORIGIN": records.ORIGIN,
    "SECTION_DIGEST": blob.SECTION_DIGEST,
    "HEADER": bytecode.HEADER,
    "ARG": bytecode.ARG,
    "REGISTER": bytecode.REGISTER,
    "INSTRUCTION": bytecode.INSTRUCTION,
}

ENUMS: tuple[type[Enum], ...] = (
    dtypes.DType,
    records.BaseKind,
    records.Queue,
    records.DmaOp,
    records.DpuFlag,
    records.Predicate,
    records.Step,
    blob.Reloc,
    blob.SectionFlag,
    bytecode.ArgMode,
)

# name, type, memory class, contents; in file order
SECTIONS: tuple[tuple[str, SectionType, str, str], ...] = (
    (blob.NAME_NOTE, SectionType.NOTE, "", "the version: one note, name `npuc`, type 1, two u32: major, minor"),
    (blob.NAME_ENTRIES, SectionType.NPU_ENTRIES, "firmware", "ENTRY records"),
    (blob.NAME_BASES, SectionType.NPU_BASES, "firmware", "BASE records"),
    (blob.NAME_BARRIERS, SectionType.NPU_BARRIERS, "firmware", "BARRIER records"),
    (blob.NAME_DMA, SectionType.NPU_DMA, "firmware", "DMA records, both queues"),
    (blob.NAME_DPU, SectionType.NPU_DPU, "firmware", "DPU records"),
    (blob.NAME_SHAVE, SectionType.NPU_SHAVE, "firmware", "SHAVE records"),
    (blob.NAME_SHAVE_KERNELS, SectionType.NPU_SHAVE_KERNELS, "shave", "SHAVE_KERNEL records"),
    (blob.NAME_SHAVE_ARGS, SectionType.NPU_SHAVE_ARGS, "shave", "SHAVE_ARG records"),
    (blob.NAME_SHAVE_TEXT, SectionType.NPU_SHAVE_TEXT, "shave", "programs, each at a multiple of 1024 bytes"),
    (blob.NAME_ORIGINS, SectionType.NPU_ORIGINS, "", "ORIGIN records: names of tasks, for tools"),
    (blob.NAME_NAMES, SectionType.STRTAB, "", "names of entries, nodes, kernels and stages"),
    (blob.NAME_META, SectionType.NPU_META, "", "one JSON object"),
    (
        blob.NAME_ASSET_PREFIX + "NAME",
        SectionType.NPU_ASSET,
        "",
        "a file for the session, any number, in order of name",
    ),
    (blob.NAME_RELA_STATIC, SectionType.RELA, "", "static relocations of `.npu.bases`"),
    (blob.NAME_RELA_BIND, SectionType.RELA, "", "bind relocations of `.npu.bases`"),
    (blob.NAME_RELA_STEP, SectionType.RELA, "", "step relocations of `.npu.dma`, those of an entry adjacent"),
    (blob.NAME_SYMTAB, SectionType.SYMTAB, "", "symbols, local ones first"),
    (blob.NAME_STRTAB, SectionType.STRTAB, "", "names of symbols"),
    (blob.NAME_DIGEST, SectionType.NPU_DIGEST, "", "SECTION_DIGEST records"),
    (blob.NAME_SHSTRTAB, SectionType.STRTAB, "", "names of sections"),
    (blob.NAME_SCRATCH, SectionType.NOBITS, "dma", "DDR scratch, zero at first, shared by the entries"),
    (blob.NAME_WEIGHTS, SectionType.PROGBITS, "dma", "constants, page-aligned, each at a multiple of 64 bytes"),
)

_SYNC = {
    "wait": "mask of the barrier ids that the task waits for; the first word holds ids 0 to 63",
    "post": "mask of the barrier ids that it posts when complete",
    "start_after": "barriers of the entry that must have been programmed before it starts",
    "node": "name of the graph node in `.npu.names`; 0xFFFFFFFF: none",
}
_PREDICATE = {
    "pred": "Predicate",
    "pred_value": "what the step field is compared with; of FLAG_NZ and FLAG_Z the flag's bytes from its base",
    "pred_base": "base row of the flag; of PAST_IN and NEW_IN the number of values that hold; else 0",
}

MEANING: dict[str, dict[str, str]] = {
    "ENTRY": {
        "name": "offset in `.npu.names`",
        "rows": "rows of one run; 0 where the entry has no step",
        "capacity": "slots of the cache that the entry can see",
        **{f"{table}_first": f"first row in `.npu.{table}`" for table in ("dma", "dpu", "shave")},
        **{f"{table}_count": "rows" for table in ("dma", "dpu", "shave")},
        "barrier_first": "first row in `.npu.barriers`",
        "barrier_count": "rows",
        "base_first": "first base of the entry's own inputs and outputs",
        "base_count": "inputs and outputs",
        "cmx_peak": "bytes of scratchpad, from its start",
        "scratch_bytes": "bytes of DDR scratch, from its start",
        "step_first": "first row in `.rela.npu.dma.step`",
        "step_count": "rows",
    },
    "BASE": {
        "address": "address of the memory; written by relocation, 0 in the file",
        "size": "bytes",
        "kind": "BaseKind",
        "tile": "0",
        "symbol": "index in `.symtab`",
        "flags": "0",
    },
    "BARRIER": {
        "id": "physical barrier",
        "producers": "tasks that post it while this row holds the id",
        "consumers": "tasks that wait for it meanwhile",
        "reserved": "0",
    },
    "DMA": {
        "op": "DmaOp",
        "queue": "Queue, 0 or 1",
        "row_dim": "dimension that `valid`, shifts, GATHER and SCATTER mean",
        **_PREDICATE,
        "src_type": "DType; of FILL that of the destination",
        "dst_type": "DType",
        "pad_": "0",
        "src_base": "base row; 0xFFFFFFFF for FILL",
        "dst_base": "base row",
        "index_base": "base row of the index vector; 0xFFFFFFFF but for GATHER and SCATTER",
        "src_offset": "bytes from the base to the first element",
        "dst_offset": "bytes from the base to the first element",
        "index_offset": "bytes from the base to the first index",
        "size": "elements per dimension, outermost first; unused leading ones are 1",
        "src_stride": "bytes between neighbours of each dimension",
        "dst_stride": "bytes between neighbours of each dimension",
        "valid": "indices of `row_dim` that are read; all where nothing is cut",
        "index_bound": "GATHER: rows of the source; SCATTER: of the destination",
        "fill": "FILL: the element's bits",
        **_SYNC,
    },
    "DPU": {
        "flags": "DpuFlag",
        "a_type": "DType",
        "b_type": "DType; codes of less than a byte lie packed in rows of bytes",
        "scale_type": "with SCALES: DType of a scale, else 0",
        "b_zero": "what is taken from each integer code of b",
        "c_type": "DType",
        **_PREDICATE,
        **{f"{name}_base": "base row" for name in "abc"},
        "table_base": "base row of DPU_TABLE rows, one per column of c, or of scales; 0xFFFFFFFF without either",
        **{f"{name}_offset": "bytes from the base to the first element" for name in ("a", "b", "c", "table")},
        "batch": "matrices, at least 1",
        "m": "rows of a and c",
        "n": "columns of c",
        "k": "columns of a",
        **{f"{name}_stride": "bytes between rows; elements of a row are adjacent" for name in "abc"},
        **{f"{name}_batch": "bytes between matrices; 0 where one serves all" for name in "abc"},
        "scale": "factor of the sum",
        "clamp_lo": "with CLAMP: least result",
        "clamp_hi": "with CLAMP: largest result",
        "group": "with SCALES: places along k that share a scale; 0: all",
        "table_stride": "with SCALES: bytes between the scales of two columns of c",
        **_SYNC,
    },
    "DPU_TABLE": {"scale": "factor of this output channel", "bias": "added after it"},
    "SHAVE": {
        "kernel": "row of `.npu.shave.kernels`",
        "arg_first": "first row in `.npu.shave.args`",
        "arg_count": "rows, as many as the program has arguments",
        **_PREDICATE,
        **_SYNC,
    },
    "SHAVE_KERNEL": {
        "text": "byte offset in `.npu.shave.text`",
        "text_bytes": "length of the program",
        "name": "offset in `.npu.names`",
    },
    "SHAVE_ARG": {
        "base": "base row of a pointer; 0xFFFFFFFF: the argument is `scalar`",
        "scalar": "the int32 argument",
        "offset": "bytes from the base; in base 3 the place of a step field",
    },
    "ORIGIN": {
        "kernel": "offset in `.npu.names`",
        "stage": "offset in `.npu.names`",
        "sequence": "place in the entry's trace order",
        "rank": "places of `coord` that count",
        "coord": "program ids and the like",
    },
    "SECTION_DIGEST": {"section": "section index", "reserved": "0", "sha256": "SHA-256 of its contents"},
    "HEADER": {
        "magic": f"{bytecode.MAGIC:#x}",
        "trip": "passes, at least 1",
        "args": "ARG records, right after this header",
        "registers": "REGISTER records, after them",
        "instructions": "INSTRUCTION records, after them",
        "reserved": "0, as the rest of the header",
    },
    "ARG": {
        "mode": "ArgMode",
        "dtype": "DType in memory",
        "rank": "dimensions",
        "pad_": "0",
        "reserved": "0",
        "shape": "elements; the first `rank` places",
        "stride": "bytes; the first `rank` places",
        "step": "bytes that the pointer moves after each pass",
    },
    "REGISTER": {"dtype": "DType: F32, I32 or BOOL", "rank": "dimensions", "pad_": "0", "shape": "elements"},
    "INSTRUCTION": {
        "op": "Op",
        "axis": "for the ops that have one",
        "dst": "register written",
        "a": "first operand: a register, or an argument for LOAD, STORE and SCALAR",
        "b": "second operand",
        "c": "third operand",
        "imm": "float32 or int32 bits, or an index",
    },
}
