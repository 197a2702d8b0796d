"""Sections, symbols, relocations and versions of a blob (ELF64, little-endian, ET_REL)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

ABI_MAJOR, ABI_MINOR = 1, 1
E_MACHINE = 0x4E50  # unassigned in the ELF registry
PAGE = 4096

EHDR = np.dtype(
    [
        ("e_ident", "u1", (16,)), ("e_type", "<u2"), ("e_machine", "<u2"), ("e_version", "<u4"), ("e_entry", "<u8"),
        ("e_phoff", "<u8"), ("e_shoff", "<u8"), ("e_flags", "<u4"), ("e_ehsize", "<u2"), ("e_phentsize", "<u2"),
        ("e_phnum", "<u2"), ("e_shentsize", "<u2"), ("e_shnum", "<u2"), ("e_shstrndx", "<u2"),
    ]
)
SHDR = np.dtype(
    [
        ("sh_name", "<u4"), ("sh_type", "<u4"), ("sh_flags", "<u8"), ("sh_addr", "<u8"), ("sh_offset", "<u8"),
        ("sh_size", "<u8"), ("sh_link", "<u4"), ("sh_info", "<u4"), ("sh_addralign", "<u8"), ("sh_entsize", "<u8"),
    ]
)
SYM = np.dtype(
    [
        ("st_name", "<u4"), ("st_info", "u1"), ("st_other", "u1"), ("st_shndx", "<u2"),
        ("st_value", "<u8"), ("st_size", "<u8"),
    ]
)
RELA = np.dtype([("r_offset", "<u8"), ("r_info", "<u8"), ("r_addend", "<i8")])
assert (EHDR.itemsize, SHDR.itemsize, SYM.itemsize, RELA.itemsize) == (64, 64, 24, 24)


class SectionType(IntEnum):
    """Standard types used, and npuc's own in the SHT_LOUSER range."""

    NULL = 0
    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOTE = 7
    NOBITS = 8
    NPU_ENTRIES = 0x80000001
    NPU_BASES = 0x80000002
    NPU_BARRIERS = 0x80000003
    NPU_DMA = 0x80000004
    NPU_DPU = 0x80000005
    NPU_SHAVE = 0x80000006
    NPU_SHAVE_KERNELS = 0x80000007
    NPU_SHAVE_TEXT = 0x80000008
    NPU_SHAVE_ARGS = 0x80000009
    NPU_META = 0x8000000A  # one JSON object, UTF-8
    NPU_ASSET = 0x8000000B  # one file for the session: tokenizer, template and so on
    NPU_DIGEST = 0x8000000C  # rows of SECTION_DIGEST
    NPU_ORIGINS = 0x8000000D  # for tools only: no loader needs it to run a program


class SectionFlag(IntFlag):
    """sh_flags. The three MEM bits are the memory class: who reads the section, and so where a driver must put it."""

    WRITE = 0x1
    ALLOC = 0x2
    INFO_LINK = 0x40
    MEM_FIRMWARE = 0x00100000  # task tables, barriers, bases: fetched by the scheduler
    MEM_DMA = 0x00200000  # weights and scratch: read and written by DMA
    MEM_SHAVE = 0x00400000  # kernel text and arguments


NAME_ENTRIES = ".npu.entries"
NAME_BASES = ".npu.bases"
NAME_BARRIERS = ".npu.barriers"
NAME_DMA = ".npu.dma"
NAME_DPU = ".npu.dpu"
NAME_SHAVE = ".npu.shave"
NAME_SHAVE_KERNELS = ".npu.shave.kernels"
NAME_SHAVE_TEXT = ".npu.shave.text"
NAME_SHAVE_ARGS = ".npu.shave.args"
NAME_WEIGHTS = ".npu.weights"  # PROGBITS, page-aligned, the last section with bytes
NAME_SCRATCH = ".npu.scratch"  # NOBITS
NAME_NAMES = ".npu.names"  # STRTAB: names of entries, nodes and kernels
NAME_ORIGINS = ".npu.origins"
NAME_META = ".npu.meta"
NAME_DIGEST = ".npu.digest"
NAME_ASSET_PREFIX = ".npu.asset."  # + file name
NAME_SYMTAB = ".symtab"
NAME_STRTAB = ".strtab"
NAME_SHSTRTAB = ".shstrtab"
NAME_NOTE = ".note.npu"
NAME_RELA_STATIC = ".rela.npu.bases"  # address of a base that lies in a section
NAME_RELA_BIND = ".rela.npu.bases.bind"  # address of a base that the caller binds
NAME_RELA_STEP = ".rela.npu.dma.step"  # fields of .npu.dma, patched before each submit

SECTION_DIGEST = np.dtype([("section", "<u4"), ("reserved", "<u4"), ("sha256", "u1", (32,))])
NOTE_NAME = b"npuc"
NOTE_ABI = 1  # desc: major, minor as two <u4


class Reloc(IntEnum):
    """Relocation types. D: the field, S: the symbol's value, A: the addend, T: the DMA record that holds the field.

    A step symbol's value is the current value of its step-block field.
    """

    ABS64 = 1  # static: D = address of the symbol's section + st_value + A
    BIND64 = 2  # bind: D = address of the bound buffer + A
    STEP_SRC = 3  # step: T.src_offset = A + S * T.src_stride[T.row_dim]
    STEP_DST = 4  # step: T.dst_offset = A + S * T.dst_stride[T.row_dim]
    STEP_VALID = 5  # step: T.valid = min(max(S + A, 0), T.size[T.row_dim])
