"""Constants are produced once, stored once, and never held together."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from npuc.emit import EmitError
from npuc.emit.pool import ConstPlan, plan_consts, stream
from npuc.graph.entry import StateSpec
from npuc.tasks.graph import Buffer, Const, CopyOp, Role
from npurt.abi.dtypes import DType
from tests.unit.emit.programs import Draft, view


def plan_of(*buffers: Buffer, states: tuple[StateSpec, ...] = ()) -> ConstPlan:
    draft = Draft("main", 0, 0)
    for buffer in buffers:
        assert buffer.const is not None
        local = draft.local(f"{buffer.name}.copy", buffer.nbytes)
        shape, dtype = buffer.const.shape, buffer.const.dtype
        draft.add("dma.in", CopyOp(), [view(buffer, shape, dtype)], [view(local, shape, dtype)], ("n", "copy", (), ""))
    return plan_consts([draft.program(), draft.program()], states)


def buffer(key: str, produce: Callable[[], np.ndarray], shape: tuple[int, ...] = (8,), align: int = 64) -> Buffer:
    const = Const(key, DType.F32, shape, produce)
    return Buffer(key, "ddr", int(np.prod(shape)) * 4, Role.CONST, align, const)


def filled(value: float, shape: tuple[int, ...] = (8,)) -> np.ndarray:
    return np.full(shape, value, "<f4")


def test_each_key_is_produced_once_and_equal_contents_lie_once() -> None:
    calls: list[str] = []

    def produce(key: str, value: float) -> Callable[[], np.ndarray]:
        return lambda: calls.append(key) or filled(value)  # type: ignore[func-returns-value]

    plan = plan_of(
        buffer("a", produce("a", 1)),
        buffer("a", produce("a", 1)),
        buffer("b", produce("b", 2)),
        buffer("c", produce("c", 1)),
    )
    out = io.BytesIO()
    placed = stream(plan, out)
    assert calls == ["a", "b", "c"]
    assert placed.offsets.tolist() == [0, 64, 0] and placed.size == 96
    assert out.getvalue() == filled(1).tobytes() + bytes(32) + filled(2).tobytes()


def test_no_two_constants_are_in_memory_together() -> None:
    alive: list[weakref.ref[np.ndarray]] = []

    def produce(value: float) -> Callable[[], np.ndarray]:
        def make() -> np.ndarray:
            gc.collect()
            assert [ref for ref in alive if ref() is not None] == []
            array = filled(value, (1000,))
            alive.append(weakref.ref(array))
            return array

        return make

    stream(plan_of(*(buffer(str(i), produce(i), (1000,)) for i in range(4))), io.BytesIO())
    assert len(alive) == 4


def test_alignment_is_kept_where_contents_are_shared() -> None:
    plan = plan_of(
        buffer("a", lambda: filled(0)), buffer("b", lambda: filled(1)), buffer("c", lambda: filled(1), align=4096)
    )
    placed = stream(plan, io.BytesIO())
    assert placed.offsets.tolist() == [0, 64, 4096]


def test_initial_values_come_first_and_are_found_by_later_constants() -> None:
    zero = StateSpec("a", (8,), DType.F32, "replace", None, None, "state.a", "next.a", "")
    given = StateSpec("b", (8,), DType.F32, "replace", None, filled(3), "state.b", "next.b", "")
    other = StateSpec("c", (8,), DType.F32, "replace", None, filled(4), "state.c", "next.c", "")
    plan = plan_of(buffer("k", lambda: filled(4)), states=(zero, given, other))
    assert plan.state_offsets == {"b": 0, "c": 64}
    assert stream(plan, io.BytesIO()).offsets.tolist() == [0, 64, 64]


def test_a_constant_that_is_not_what_was_promised() -> None:
    with pytest.raises(EmitError) as caught:
        stream(plan_of(buffer("w", lambda: np.zeros((8,), "<f2"))), io.BytesIO())
    assert str(caught.value) == "constant 'w': f32[8] was promised (float32), and float16[8] was produced"


def test_one_key_for_two_shapes() -> None:
    with pytest.raises(EmitError) as caught:
        plan_of(buffer("w", lambda: filled(0)), buffer("w", lambda: filled(0, (4,)), (4,)))
    assert str(caught.value) == "buffer w: the key 'w' stands for f32[8] and for f32[4]; equal keys mean equal bytes"


def test_an_impossible_alignment() -> None:
    with pytest.raises(EmitError) as caught:
        plan_of(buffer("w", lambda: filled(0), align=96))
    assert str(caught.value) == "buffer w: alignment 96 is no power of two up to 4096"


def test_a_transposed_constant_is_written_in_row_major_order() -> None:
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    out = io.BytesIO()
    stream(plan_of(buffer("w", lambda: array.T, (4, 3))), out)
    assert out.getvalue() == np.ascontiguousarray(array.T).tobytes()
