"""docs/blob-format.md and docs/bytecode.md say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from npuc.emit import write_blob
from npuc.report.format_meaning import ENUMS, MEANING, RECORDS, SECTIONS
from npuc.report.format_opcodes import MEANING as OPCODES
from npuc.report.format_tables import DOCUMENTS, blocks, main, rendered
from npuc.report.reader import Blob
from npurt.abi.blob import NAME_ASSET_PREFIX
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder, listing, parse
from npurt.shave.rules import RULES
from tests.golden.update import FOLDER
from tests.unit.emit.programs import model

TEXT, BYTECODE = (document.read_text(encoding="utf-8") for document in DOCUMENTS)


def test_the_document_is_up_to_date() -> None:
    assert rendered(TEXT) == TEXT and rendered(BYTECODE) == BYTECODE, "python -m npuc.report.format_tables"
    assert main(["--check"]) == 0


def test_every_table_of_the_format_is_in_it() -> None:
    assert sorted(blocks(TEXT + BYTECODE)) == sorted(
        ["sections", "opcodes", "limits", *RECORDS, *(kind.__name__ for kind in ENUMS)]
    )


def test_every_field_has_a_meaning_and_no_meaning_is_left_over() -> None:
    assert {name: set(dtype.names or ()) for name, dtype in RECORDS.items()} == {
        name: set(fields) for name, fields in MEANING.items()
    }


def test_an_outdated_block_is_found() -> None:
    assert rendered(TEXT.replace("| 0 | `address` | u64 |", "| 8 | `address` | u64 |")) == TEXT


def test_every_opcode_has_a_meaning() -> None:
    assert set(OPCODES) == set(Op) == set(RULES)


def test_the_program_of_the_example() -> None:
    b = ProgramBuilder()
    source, result = (b.arg(mode, DType.F16, (16, 64)) for mode in (ArgMode.IN, ArgMode.OUT))
    x = b.load(source)
    e = b.op(Op.EXP, b.op(Op.SUB, x, b.reduce(Op.RMAX, x, 1)))
    b.store(result, b.op(Op.DIV, e, b.reduce(Op.SUM, e, 1)))
    assert re.findall(r"```\n(program.*?)```", BYTECODE, re.DOTALL) == [listing(parse(b.bytes()))]


def test_the_sections_are_those_of_a_blob(tmp_path: Path) -> None:
    write_blob(*model().arguments(), tmp_path / "x.blob")
    found = [(s.name, s.type, s.memory_class) for s in Blob(tmp_path / "x.blob").sections[1:]]
    asset = f"{NAME_ASSET_PREFIX}tokenizer.json"
    assert found == [
        (asset if name.startswith(NAME_ASSET_PREFIX) else name, kind, memory) for name, kind, memory, _ in SECTIONS
    ]


def test_the_example_is_in_the_golden_listing() -> None:
    lines = [line for block in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
    golden = (FOLDER / "synthetic.full.txt").read_text(encoding="utf-8").splitlines()
    prefill = [line.strip() for line in golden[: golden.index("entry generate.16  rows 1  capacity 16")]]
    assert len(lines) == 2 and all(line in prefill for line in lines)
