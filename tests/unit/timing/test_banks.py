"""Bank groups of the unified buffer of ascend950, with the strides of the published kernel."""

import pytest

from npurt.abi.bytecode import ArgMode
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder
from npurt.shave.program import parse
from npurt.target import load_target
from npurt.timing.banks import store_cycles
from npurt.timing.compute import program_time

NPU, ASCEND = load_target(), load_target("ascend950")
UB, CMX = ASCEND.memories["ub"], NPU.memories["cmx"]
# 32 rows of 512 bf16 become columns of fractals, 16 channels wide: [column, row, channel]
SHAPE, SOURCE = (32, 32, 16), (32, 1024, 2)


def columns(rows: int) -> tuple[int, int, int]:
    """Strides of a buffer whose columns have so many rows of 32 bytes."""
    return rows * 32, 32, 2


@pytest.mark.parametrize(("rows", "times"), [(32, 8), (33, 1), (34, 2), (36, 4), (40, 8), (41, 1)])
def test_a_row_of_padding_spreads_the_pieces_of_a_vector(rows: int, times: int):
    """Unpadded, the 8 pieces of a vector fall into one group; with a row of padding, into all 8 groups."""
    assert store_cycles(SHAPE, SOURCE, columns(rows), 2, UB, 256) == times


def test_what_stays_adjacent_has_no_conflict():
    assert store_cycles((32, 512), (1024, 2), (2048, 2), 2, UB, 256) == 1
    assert store_cycles((512,), (2,), (2,), 2, UB, 256) == 1


def test_a_memory_without_groups_has_no_conflict():
    assert store_cycles(SHAPE, SOURCE, columns(32), 2, CMX, 256) == 1


@pytest.mark.parametrize(("rows", "times"), [(32, 8), (33, 1)])
def test_a_program_that_makes_fractals_pays_for_its_conflicts(rows: int, times: int):
    """32 rows of 512 bf16: 128 vectors, each loaded in half a cycle and stored in one for each conflict; and both
    instructions' latency."""
    build = ProgramBuilder()
    x = build.arg(ArgMode.IN, DType.BF16, (32, 512))
    y = build.arg(ArgMode.OUT, DType.BF16, (32, 32, 16), columns(rows))
    value = build.transpose(build.reshape(build.load(x), (32, 32, 16)), (1, 0, 2))
    build.store(y, value)
    time = program_time(parse(build.bytes()), ASCEND.engines["vector"], UB)
    seconds = time.seconds
    assert time.conflicts == pytest.approx(128 * (times - 1) / 1650e6)
    assert seconds == pytest.approx((128 * (0.5 + times) + 2 * 6.5) / 1650e6)


def test_a_memory_without_groups_pays_for_the_transposition():
    build = ProgramBuilder()
    x = build.arg(ArgMode.IN, DType.F16, (32, 64))
    y = build.arg(ArgMode.OUT, DType.F16, (64, 32))
    build.store(y, build.transpose(build.load(x), (1, 0)))
    seconds = program_time(parse(build.bytes()), NPU.engines["shave"], CMX).seconds
    assert seconds == pytest.approx(256 * (0.75 + 1 + 0.75) / 2 / 971e6)
