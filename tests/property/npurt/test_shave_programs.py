"""Random and mutated SHAVE programs are either refused with one line or run inside their views."""

import numpy as np
import pytest

from npurt.abi.bytecode import Op
from npurt.errors import BytecodeError
from npurt.shave import parse
from npurt.shave.rules import RULES
from tests.support.shaveprograms import ProgramWriter, mutated, random_program, run_in_bounds, try_bytes


def sweep(programs: int, seed: int) -> None:
    """So many random programs, which all run, and as many mutated ones, which run or are refused."""
    rng = np.random.default_rng(seed)
    seen: set[Op] = set()
    outcomes = {True: 0, False: 0, None: 0}
    for _ in range(programs):
        code = random_program(rng)
        seen |= {instruction.op for instruction in parse(code).instructions}
        assert try_bytes(code, rng) is True
        outcomes[try_bytes(mutated(code, rng), rng)] += 1
    assert seen == set(RULES)
    assert outcomes[False] > programs // 4
    assert outcomes[True] > programs // 20


def test_random_and_mutated_programs_run_in_bounds_or_are_refused():
    sweep(600, 2024)


@pytest.mark.slow
def test_ten_thousand_random_and_ten_thousand_mutated_programs():
    sweep(10_000, 7)


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_every_opcode_alone(op: Op):
    """Each opcode in a few programs of its own: it verifies, runs in bounds, and is among the instructions."""
    rng = np.random.default_rng(op)
    found = 0
    for _ in range(8):
        writer = ProgramWriter(rng)
        writer.add(op)
        writer.store()
        program = parse(writer.builder.bytes())
        found += any(instruction.op is op for instruction in program.instructions)
        run_in_bounds(program, rng)
    assert found


def test_random_bytes_are_refused():
    rng = np.random.default_rng(5)
    for _ in range(300):
        code = rng.integers(0, 256, int(rng.integers(0, 400)), np.uint8).tobytes()
        if rng.random() < 0.5:
            code = np.array(0x4B56484E, "<u4").tobytes() + code[4:]
        try:
            parse(code)
        except BytecodeError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError(code)
