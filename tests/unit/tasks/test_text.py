"""The text form of task graphs: golden text, exact round trip, and errors that name the line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.tasks.assemble import ListingError, assemble
from npuc.tasks.graph import Buffer, Const, Task, TaskGraph, When
from npuc.tasks.text import TaskTextError, format_tasks, parse_tasks
from npuc.tasks.words import Cursor, word
from npurt.shave import listing, parse
from tests.unit.tasks.every_field import graph, program

GOLDEN = Path(__file__).parents[2] / "golden" / "tasks" / "every_field.tasks"


def plain(value: object) -> object:
    """Records as nested tuples; a constant's function does not count."""
    if isinstance(value, Const):
        return value.key, value.dtype, value.shape
    if isinstance(value, Buffer | Task):
        return tuple(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if dataclasses.is_dataclass(value):
        return type(value).__name__, *(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    return value


def test_the_text_is_the_golden_text() -> None:
    assert format_tasks(graph()) == GOLDEN.read_text()


def test_every_field_reads_back() -> None:
    again = parse_tasks(GOLDEN.read_text())
    assert [plain(task) for task in again.tasks] == [plain(task) for task in graph().tasks]
    assert (again.entry, again.rows, again.capacity) == ("prefill", 128, 1152)


@pytest.mark.parametrize("when", [When("n_past", 64, 128), When("n_new", -1, 0)])
def test_a_range_of_a_step_field(when: When) -> None:
    made = graph()
    made.tasks[3] = dataclasses.replace(made.tasks[3], when=when)
    text = format_tasks(made)
    assert f"when {when.field} > {when.above} most {when.most}\n" in text
    assert parse_tasks(text).tasks[3].when == when


def test_buffers_keep_their_identity() -> None:
    again = parse_tasks(GOLDEN.read_text())
    names = [buffer.name for buffer in again.buffers()]
    assert names == [buffer.name for buffer in graph().buffers()]
    assert len(set(names)) == len(names)


def test_constants_come_from_the_caller() -> None:
    def weights(again: TaskGraph) -> Const:
        found = next(buffer.const for buffer in again.buffers() if buffer.const is not None)
        assert found is not None
        return found

    given_bytes = parse_tasks(GOLDEN.read_text(), lambda key: np.array([len(key)]))
    assert weights(given_bytes).produce().tolist() == [3]
    with pytest.raises(LookupError, match="constant w 0 was read from a text, which has no bytes"):
        weights(parse_tasks(GOLDEN.read_text())).produce()


def test_the_listing_of_a_program_assembles_to_its_bytes() -> None:
    assert assemble(listing(parse(program())).splitlines()) == program()


@given(st.text(max_size=20))
def test_any_text_is_one_word(text: str) -> None:
    cursor = Cursor(1, word(text))
    assert cursor.name() == text
    assert cursor.done


HEAD = "entry main rows 0 capacity 0\nbuffer a cmx local 64\n"
ARGUMENT = "expected: arg 0 in|out|inout TYPE[SHAPE] stride [BYTES] (step BYTES), or arg 0 scalar i32"
TYPES = "f32, f16, bf16, i32, i8, u8, bool, i64, i4, u4, e4m3, e5m2, e2m1, e8m0, u2"
ERRORS = [
    ("", "line 1: there is no entry line"),
    (
        "task 0 dpu copy : -> a f16[1]\n",
        "line 1: task is not expected here: one entry line comes first, then code, buffer and task lines",
    ),
    ("entry main rows 0\n", "line 1: expected 'capacity', found the end of the line"),
    (HEAD + "buffer a cmx local 64\n", "line 3: buffer a stands here twice"),
    (
        HEAD + "buffer b cmx lokal 64\n",
        "line 3: lokal is no role; there are local, const, input, output, state, step",
    ),
    (HEAD + "buffer b cmx local big\n", "line 3: expected a whole number, found big"),
    (HEAD + "# a comment\n\ntask 1 dpu copy : -> a f16[1]\n", "line 5: task 1 stands where task 0 is due"),
    (
        HEAD + "task 0 dpu move : -> a f16[1]\n",
        "line 3: move is no operation; there are copy, fill, gather, scatter, mma, call",
    ),
    (HEAD + "task 0 dpu copy : b f16[1] -> a f16[1]\n", "line 3: buffer b does not stand above"),
    (HEAD + "task 0 dpu copy : a f17[1] -> a f16[1]\n", f"line 3: f17 is no element type; there are {TYPES}"),
    (HEAD + "task 0 dpu copy : a f16[1][2,2] -> a f16[1]\n", "line 3: a has 1 dimensions and 2 strides"),
    (HEAD + "task 0 dpu copy : a f16[1]\n", "line 3: expected ',', found the end of the line"),
    (HEAD + "task 0 dpu copy : a f16[1] -> a f16[1] ; noed x\n", "line 3: noed is not expected after ';'"),
    (HEAD + "task 0 dpu call f c0 () : -> a f16[1]\n", "line 3: code c0 does not stand above"),
    (HEAD + "task 0 dpu copy : -> a f16[1] ?\n", "line 3: cannot read '?'"),
    (
        HEAD + "code c0\n  program trip 1\n    %0 f32[2] = lod arg0\n",
        "line 5: code c0: '%0 f32[2] = lod arg0': no opcode LOD",
    ),
    (
        HEAD + "code c0\n  program trip 1\n    arg 1 scalar i32\n",
        f"line 5: code c0: 'arg 1 scalar i32': {ARGUMENT}",
    ),
    (
        HEAD + "code c0\n  hex 0g\n",
        "line 4: code c0: non-hexadecimal number found in fromhex() arg at position 1",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(TaskTextError) as failed:
        parse_tasks(text)
    assert str(failed.value) == message


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (["program trip"], 0, "a listing begins with: program trip N"),
        (["program trip 1", "store %0 arg0"], 1, "'store %0 arg0': operand 0 of store must be argN"),
        (["program trip 1", "%0 f32[2] = const"], 1, "'%0 f32[2] = const': expected a value"),
        (["program trip 1", "%0 f32[2] = const 1.0 2.0"], 1, "'%0 f32[2] = const 1.0 2.0': 2.0 is left over"),
        (["program trip 1", "%1 f32[2] = const 1.0"], 1, "registers [1] are not numbered 0 to 0"),
        (
            ["program trip 1", "%0 f32[2] = const 1.0", "%0 f32[3] = const 1.0"],
            2,
            "'%0 f32[3] = const 1.0': register 0 has another type before",
        ),
    ],
)
def test_errors_of_a_listing(lines: list[str], line: int, message: str) -> None:
    with pytest.raises(ListingError) as failed:
        assemble(lines)
    assert (failed.value.line, str(failed.value)) == (line, message)
