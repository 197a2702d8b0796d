"""Other people's ELF readers see in a blob what was written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from npuc.emit import write_blob
from npurt.abi import blob, records
from npurt.abi.blob import Reloc, SectionFlag
from tests.unit.emit.programs import model

ORDER = [
    ".note.npu", ".npu.entries", ".npu.bases", ".npu.barriers", ".npu.dma", ".npu.dpu", ".npu.shave",
    ".npu.shave.kernels", ".npu.shave.args", ".npu.shave.text", ".npu.origins", ".npu.names", ".npu.meta",
    ".npu.asset.tokenizer.json", ".rela.npu.bases", ".rela.npu.bases.bind", ".rela.npu.dma.step", ".symtab", ".strtab",
    ".npu.digest", ".shstrtab", ".npu.scratch", ".npu.weights",
]  # fmt: skip
RECORDS = {
    ".npu.entries": records.ENTRY, ".npu.bases": records.BASE, ".npu.barriers": records.BARRIER,
    ".npu.dma": records.DMA, ".npu.dpu": records.DPU, ".npu.shave": records.SHAVE,
    ".npu.shave.kernels": records.SHAVE_KERNEL,
    ".npu.shave.args": records.SHAVE_ARG, ".npu.origins": records.ORIGIN, ".npu.digest": blob.SECTION_DIGEST,
    ".rela.npu.bases": blob.RELA, ".rela.npu.bases.bind": blob.RELA, ".rela.npu.dma.step": blob.RELA,
    ".symtab": blob.SYM,
}  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readers") / "small.blob"
    assert write_blob(*model().arguments(), out) == out.stat().st_size
    return out


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils are not installed")
def test_readelf_has_nothing_to_complain_about(path: Path) -> None:
    done = subprocess.run(["readelf", "-aW", str(path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "arning" not in done.stdout and "rror" not in done.stdout
    for name in ORDER:
        assert name in done.stdout


def test_pyelftools_sections(path: Path) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    with path.open("rb") as file:
        elf = elffile.ELFFile(file)
        assert (elf["e_type"], elf["e_machine"], elf.little_endian, elf.elfclass) == (
            "ET_REL",
            blob.E_MACHINE,
            True,
            64,
        )
        sections = {s.name: s for s in elf.iter_sections()}
        assert [*sections] == ["", *ORDER]
        index = {name: i for i, name in enumerate(sections)}
        for name, dtype in RECORDS.items():
            assert sections[name]["sh_entsize"] == dtype.itemsize
            assert sections[name]["sh_size"] % dtype.itemsize == 0
        for name, target in ((".rela.npu.bases", ".npu.bases"), (".rela.npu.bases.bind", ".npu.bases"),
                             (".rela.npu.dma.step", ".npu.dma")):  # fmt: skip
            assert (sections[name]["sh_link"], sections[name]["sh_info"]) == (index[".symtab"], index[target])
            assert sections[name]["sh_flags"] == SectionFlag.INFO_LINK
        scratch, weights = sections[".npu.scratch"], sections[".npu.weights"]
        assert scratch["sh_type"] == "SHT_NOBITS" and scratch["sh_size"] == 128
        assert scratch["sh_flags"] == SectionFlag.ALLOC | SectionFlag.WRITE | SectionFlag.MEM_DMA
        assert weights["sh_offset"] % blob.PAGE == 0
        assert weights["sh_offset"] + weights["sh_size"] == path.stat().st_size
        assert (
            sections[".npu.shave.text"]["sh_addralign"] == 1024 and sections[".npu.shave.text"]["sh_offset"] % 1024 == 0
        )


def test_pyelftools_symbols_and_relocations(path: Path) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    with path.open("rb") as file:
        elf = elffile.ELFFile(file)
        symtab = elf.get_section_by_name(".symtab")
        symbols = list(symtab.iter_symbols())
        binds = [s["st_info"]["bind"] for s in symbols]
        assert binds == sorted(binds, reverse=True)  # LOCAL before GLOBAL
        assert binds.index("STB_GLOBAL") == symtab["sh_info"]
        names = [s.name for s in symbols]
        assert names[names.index("cmx0") :] == [
            "cmx0", "step", "state.k0", "state.k1", "prefill.in.input_ids", "prefill.out.hidden",
            "generate.16.in.input_ids", "generate.16.out.hidden", "step.n_past", "step.n_new",
        ]  # fmt: skip

        def relocations(section: str) -> list[tuple[int, int, str, int]]:
            rows = elf.get_section_by_name(section).iter_relocations()
            return [(r["r_offset"], r["r_info_type"], names[r["r_info_sym"]], r["r_addend"]) for r in rows]

        assert relocations(".rela.npu.bases") == [(32, Reloc.ABS64, "weights", 0), (64, Reloc.ABS64, "scratch", 0)]
        bound = relocations(".rela.npu.bases.bind")
        assert [r[2] for r in bound] == names[names.index("cmx0") : names.index("step.n_past")]
        assert [r[0] // 32 for r in bound] == [0, 3, 4, 5, 6, 7, 8, 9]
        assert {r[1] for r in bound} == {Reloc.BIND64} and {r[3] for r in bound} == {0}

        cos = next(s for s in symbols if s.name == "const.cos")["st_value"]
        fields = records.DMA.fields
        assert fields is not None
        src, dst, valid = (fields[name][1] for name in ("src_offset", "dst_offset", "valid"))
        steps = relocations(".rela.npu.dma.step")
        half = len(steps) // 2  # two entries alike
        assert [(o % 192, *rest) for o, *rest in steps[:half]] == [
            (valid, Reloc.STEP_VALID, "step.n_new", 0),
            (src, Reloc.STEP_SRC, "step.n_past", cos),
            (valid, Reloc.STEP_VALID, "step.n_past", 0),
            (dst, Reloc.STEP_DST, "step.n_past", 0),
            (valid, Reloc.STEP_VALID, "step.n_new", 0),
            (valid, Reloc.STEP_VALID, "step.n_past", 0),
            (dst, Reloc.STEP_DST, "step.n_past", 0),
            (valid, Reloc.STEP_VALID, "step.n_new", 0),
        ]
        assert [o - steps[0][0] for o, *_ in steps[:half]] == [o - steps[half][0] for o, *_ in steps[half:]]


def test_lief_agrees(path: Path) -> None:
    lief = pytest.importorskip("lief")
    config = lief.ELF.ParserConfig()
    config.parse_relocations = False
    parsed = lief.ELF.parse(str(path), config)
    assert [s.name for s in parsed.sections] == ["", *ORDER]
    assert [s.name for s in parsed.symtab_symbols][1:3] == ["weights", "scratch"]
    weights = next(s for s in parsed.sections if s.name == ".npu.weights")
    assert int(weights.flags) == SectionFlag.ALLOC | SectionFlag.MEM_DMA and weights.alignment == blob.PAGE
    assert weights.size == next(s for s in parsed.symtab_symbols if s.name == "weights").size
    rela = next(s for s in parsed.sections if s.name == ".rela.npu.bases")
    assert np.frombuffer(bytes(rela.content), blob.RELA)["r_offset"].tolist() == [32, 64]


def test_every_section_has_its_memory_class(path: Path) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    firmware, dma, shave = (SectionFlag.ALLOC | f for f in (0x100000, 0x200000, 0x400000))
    expected = dict.fromkeys(
        [".npu.entries", ".npu.bases", ".npu.barriers", ".npu.dma", ".npu.dpu", ".npu.shave"], firmware
    )
    expected |= dict.fromkeys([".npu.shave.kernels", ".npu.shave.args", ".npu.shave.text"], shave)
    expected[".npu.weights"] = dma
    with path.open("rb") as file:
        flags = {s.name: s["sh_flags"] for s in elffile.ELFFile(file).iter_sections()}
    found = {name: bits for name, bits in flags.items() if bits & SectionFlag.ALLOC}
    assert found == expected | {".npu.scratch": dma | SectionFlag.WRITE}
