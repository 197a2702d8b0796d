"""Chunk, prompt limit and capacities: defaults, clamps with one report line each, and what is refused."""

from __future__ import annotations

import pytest

from npuc.graph.options import BuildOptions, OptionError
from npuc.graph.sizes import Bound, Sizes, choose_sizes, wanted_positions

TABLE = Bound(128, "a position table of the model has")


def chosen(options: BuildOptions, *bounds: Bound, fixed_rows: int | None = None) -> tuple[Sizes, list[str]]:
    report: list[str] = []
    return choose_sizes(options, list(bounds), fixed_rows, report), report


def test_defaults() -> None:
    sizes, report = chosen(BuildOptions())
    assert sizes == Sizes(128, 1024, (320, 1152))
    assert sizes.prefill_capacity == 896
    assert sizes.physical_rows == 1152 + 127
    assert report == []


def test_chunk_need_not_divide_the_limit() -> None:
    sizes, report = chosen(BuildOptions(chunk=48, max_prompt_len=100, capacities=(150,)))
    assert (sizes.chunk, sizes.prefill_capacity, report) == (48, 96, [])


def test_prompt_that_fits_one_chunk_reads_no_past() -> None:
    sizes, _ = chosen(BuildOptions(chunk=8, max_prompt_len=8))
    assert sizes.prefill_capacity == 0


@pytest.mark.parametrize(
    ("options", "fixed_rows", "line"),
    [
        (BuildOptions(chunk=64, max_prompt_len=40), None, "chunk 64 is more than the prompt limit: 40 is used"),
        (BuildOptions(chunk=64), 1, "chunk 64: the graph was exported with 1 rows a run: 1 is used"),
    ],
)
def test_chunk_is_clamped_with_one_line(options: BuildOptions, fixed_rows: int | None, line: str) -> None:
    sizes, report = chosen(options, fixed_rows=fixed_rows)
    assert report == [line]
    assert sizes.chunk == int(line.split(": ")[-1].split(" is")[0])


def test_default_limits_shrink_to_the_position_table() -> None:
    sizes, report = chosen(BuildOptions(), TABLE)
    assert sizes.capacities == (64, 128)
    assert sizes.max_prompt_len == 64
    assert report == [
        "limited to 128 tokens (a position table of the model has): prompts up to 64, then 64 new tokens or more"
    ]


def test_explicit_prompt_shrinks_the_response() -> None:
    sizes, report = chosen(BuildOptions(max_prompt_len=100), TABLE)
    assert (sizes.max_prompt_len, sizes.capacity, len(report)) == (100, 128, 1)


def test_the_lowest_bound_counts() -> None:
    sizes, _ = chosen(BuildOptions(), TABLE, Bound(96, "the model's configuration allows"))
    assert sizes.capacity == 96


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            BuildOptions(max_prompt_len=129),
            "max_prompt_len 129 is beyond the 128 tokens that a position table of the model has",
        ),
        (
            BuildOptions(capacities=(64, 200)),
            "capacity 200 is beyond the 128 tokens that a position table of the model has",
        ),
        (BuildOptions(capacities=(64,), max_prompt_len=65), "max_prompt_len 65 is beyond the largest capacity, 64"),
    ],
)
def test_impossible_requests_name_what_bounds_them(options: BuildOptions, message: str) -> None:
    with pytest.raises(OptionError) as error:
        chosen(options, TABLE)
    assert str(error.value) == message


def test_a_prompt_may_fill_the_largest_capacity() -> None:
    sizes, report = chosen(BuildOptions(max_prompt_len=12, capacities=(12,)))
    assert (sizes.max_prompt_len, sizes.capacity, report) == (12, 12, [])


def test_wanted_positions_respect_known_bounds() -> None:
    assert wanted_positions(BuildOptions(), []) == 1152
    assert wanted_positions(BuildOptions(capacities=(7, 30), max_prompt_len=9), []) == 30
    assert wanted_positions(BuildOptions(), [TABLE]) == 128


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk": 0}, "chunk is 0; it must be at least 1"),
        ({"capacities": (0,)}, "a capacity is 0; it must be at least 1"),
        ({"capacities": (8, 10**9)}, "a capacity is 1000000000; it must be at most 131072"),
        ({"max_prompt_len": 10**25}, f"max_prompt_len is {10**25}; it must be at most 131072"),
        ({"min_response_len": 131073}, "min_response_len is 131073; it must be at most 131072"),
        ({"dims": {"n": -2}}, "the value of n is -2; it must not be negative"),
    ],
)
def test_options_without_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as error:
        BuildOptions(**values)  # type: ignore[arg-type]
    assert str(error.value) == message
