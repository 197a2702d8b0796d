"""What the writer refuses, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from npuc.emit import EmitError, write_blob
from npuc.tasks.graph import Buffer, CopyOp, Flag, GatherOp, MmaOp, Role
from npuc.tasks.program import Sync
from npurt.abi.dtypes import DType
from tests.unit.emit.programs import Draft, Model, model, one_entry, view


def refusal(small: Model, path: Path) -> str:
    with pytest.raises(EmitError) as caught:
        write_blob(*small.arguments(), path)
    assert list(path.parent.iterdir()) == []
    return str(caught.value)


def drafted(fill: Callable[[Draft], None]) -> Model:
    draft = Draft("main", 0, 0)
    fill(draft)
    return one_entry(draft)


def test_a_port_that_the_metadata_does_not_know(tmp_path: Path) -> None:
    small = model()
    small.metadata["entries"][0]["inputs"] = []
    assert refusal(small, tmp_path / "x") == (
        "entry prefill, buffer prefill.in.input_ids: no input of that name in states and metadata; there are: "
        "state.k0, state.k1, prefill.out.hidden, generate.16.in.input_ids, generate.16.out.hidden"
    )


def test_a_port_of_another_size(tmp_path: Path) -> None:
    small = model()
    small.metadata["entries"][0]["inputs"][0]["dtype"] = "i64"
    assert refusal(small, tmp_path / "x") == (
        "entry prefill, buffer prefill.in.input_ids: 16 bytes in the tasks, 32 in states and metadata"
    )


def test_entries_that_the_metadata_names_otherwise(tmp_path: Path) -> None:
    small = model()
    small.metadata["entries"].reverse()
    assert refusal(small, tmp_path / "x") == (
        "entries of the metadata: generate.16, prefill; of the programs: prefill, generate.16; "
        "the same were expected, in one order and each once"
    )


def test_states_that_the_metadata_names_otherwise(tmp_path: Path) -> None:
    small = model()
    small.metadata["states"].reverse()
    assert refusal(small, tmp_path / "x") == (
        "states of the metadata: k1, k0; given: k0, k1; the same in the same order were expected"
    )


def test_a_memory_that_the_format_does_not_know(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        buffers = [Buffer(name, "l0c", 64) for name in "ab"]
        draft.add("dma.in", CopyOp(), [view(buffers[0], (8,))], [view(buffers[1], (8,))], ("n", "copy", (), "load"))

    assert refusal(drafted(fill), tmp_path / "x") == (
        "entry main, buffer a: memory 'l0c' has no base in a blob of version 1.1; local buffers lie in cmx or ddr"
    )


def test_a_queue_that_the_format_does_not_know(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b = draft.local("a", 64), draft.local("b", 64)
        draft.add("mte2", CopyOp(), [view(a, (8,))], [view(b, (8,))], ("n", "copy", (1,), "load"))

    assert refusal(drafted(fill), tmp_path / "x") == (
        "entry main, node n, kernel copy[1]: CopyOp on queue 'mte2'; "
        "the queues of a blob are dma.in, dma.out, dpu, shave"
    )


@pytest.mark.parametrize(
    ("op", "reads", "writes", "message"),
    [
        (CopyOp(), [(2, 4)], [(8,)], "copy of [2, 4] to [8]: shapes must be equal"),
        (CopyOp(layout="nd2nz"), [(8,)], [(8,)], "copy with layout 'nd2nz', a DMA record has none"),
        (CopyOp(), [(1, 1, 1, 1, 8)], [(1, 1, 1, 1, 8)], "a copy of rank 5, a DMA record has 4 dimensions"),
        (GatherOp(2), [(2, 4), (3,)], [(2, 4)],
         "gather of [2, 4] by index [3] into [2, 4]: rows must agree and the index must be a contiguous vector"),
    ],
)  # fmt: skip
def test_copies_that_have_no_record(op: CopyOp, reads: list[tuple[int, ...]], writes: list[tuple[int, ...]],
                                    message: str, tmp_path: Path) -> None:  # fmt: skip
    def fill(draft: Draft) -> None:
        regions = [view(draft.local(f"b{i}", 64), shape) for i, shape in enumerate([*reads, *writes])]
        draft.add("dma.in", op, regions[: len(reads)], regions[len(reads) :], ("n", "k", (0,), "load"))

    assert refusal(drafted(fill), tmp_path / "x") == f"entry main, node n, kernel k[0]: {message}"


def test_a_matmul_operand_with_gaps_between_elements(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b, c = (draft.local(name, 1024) for name in "abc")
        reads = [view(a, (4, 8), stride=(64, 4)), view(b, (2, 8))]
        draft.add("dpu", MmaOp(), reads, [view(c, (4, 2), DType.F32)], ("n", "mm", (0, 1), "mma"))

    assert refusal(drafted(fill), tmp_path / "x") == (
        "entry main, node n, kernel mm[0, 1]: operand a has strides [64, 4]: elements of a row must be adjacent"
    )


def test_a_matmul_operand_of_another_shape(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b, c = (draft.local(name, 1024) for name in "abc")
        draft.add("dpu", MmaOp(), [view(a, (4, 8)), view(b, (8, 2))], [view(c, (4, 2))], ("n", "mm", (), "mma"))

    assert refusal(drafted(fill), tmp_path / "x") == (
        "entry main, node n, kernel mm[]: operand b is [8, 2], [2, 8] was expected"
    )


def test_a_constant_without_one(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b = Buffer("w", "ddr", 16, Role.CONST), draft.local("b", 16)
        draft.add("dma.in", CopyOp(), [view(a, (8,))], [view(b, (8,))], ("n", "copy", (), "load"))

    assert refusal(drafted(fill), tmp_path / "x") == "buffer w: role const without a constant"


def test_coordinates_and_barriers_beyond_the_record(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b = draft.local("a", 16), draft.local("b", 16)
        draft.add("dma.in", CopyOp(), [view(a, (8,))], [view(b, (8,))], ("n", "copy", (0,) * 7, "load"))

    small = drafted(fill)
    assert refusal(small, tmp_path / "x") == (
        "entry main, node n, kernel copy: coordinate [0, 0, 0, 0, 0, 0, 0] has 7 places, a record holds 6"
    )
    small.programs[0] = replace(small.programs[0], sync=[Sync((128,), (), 1)])
    assert refusal(small, tmp_path / "x") == "barrier id 128: a record's masks hold ids up to 127"


def test_what_other_machines_say_and_no_record_holds(tmp_path: Path) -> None:
    def copy(draft: Draft) -> None:
        regions = [view(draft.local(name, 16), (8,)) for name in "abcd"]
        draft.add("dma.in", CopyOp(), regions[:2], regions[2:], ("n", "k", (), "both"))

    small = drafted(copy)
    assert refusal(small, tmp_path / "x") == (
        "entry main, node n, kernel k[]: a copy of 2 regions at once, a DMA record holds one"
    )
    task = small.programs[0].tasks[0]
    source, flag, other = (*task.reads, task.writes[1])
    task.reads, task.writes, task.flag = (source, flag), task.writes[:1], Flag((1,))
    assert refusal(small, tmp_path / "x") == (
        "entry main, node n, kernel k[]: the flag f16[8] at byte 64 of b: "
        "one int32 in the first 2 GiB of memory that tasks write was expected"
    )
    task.reads, task.flag = (source, flag, other), Flag((1, 2))
    assert refusal(small, tmp_path / "x") == "entry main, node n, kernel k[]: 2 flags, a record has one predicate"


def test_a_name_that_no_string_table_holds(tmp_path: Path) -> None:
    def fill(draft: Draft) -> None:
        a, b = draft.local("a", 16), draft.local("b", 16)
        draft.add("dma.in", CopyOp(), [view(a, (8,))], [view(b, (8,))], ("a\0b", "copy", (), "load"))

    assert refusal(drafted(fill), tmp_path / "x") == (
        "the name 'a\\x00b' contains a NUL character, which a string table cannot hold"
    )
