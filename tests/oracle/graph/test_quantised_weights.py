"""Quantised weights, packed or dense: each form against its formula in float64, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused
from npuc.graph.infer import Inference
from npuc.graph.quantised.table import dequantise
from tests.oracle.graph.one_node import OneNode, weight_of

RANDOM = np.random.default_rng(21)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [rows, n] in bytes, low bits first, each row from a fresh byte."""
    per_byte = 8 // bits
    filled = np.pad(codes, [(0, 0), (0, -codes.shape[1] % per_byte)]).reshape(codes.shape[0], -1, per_byte)
    return (filled << (np.arange(per_byte) * bits)).sum(-1).astype(np.uint8)


def blocked(bits: int, block: int, k: int, n: int, zeros: str, dtype: Any) -> tuple[OneNode, np.ndarray, np.ndarray]:
    """A MatMulNBits; its codes [N, blocks * block] and the zero point of each place."""
    count = -(-k // block)
    codes = RANDOM.integers(0, 1 << bits, (n, count * block))
    scales = RANDOM.uniform(0.02, 0.2, (n, count)).astype(dtype)
    zero = np.full((n, count), 1 << (bits - 1), np.float64)
    held = {1: packed(codes, bits).reshape(n, count, -1), 2: scales}
    if zeros == "packed":
        whole = RANDOM.integers(0, 1 << bits, (n, count))
        held[3], zero = packed(whole, bits), whole.astype(np.float64)
    elif zeros == "floats":
        held[3] = RANDOM.uniform(0, 1 << bits, (n, count)).astype(dtype)
        zero = held[3].astype(np.float64)
    x = RANDOM.normal(size=(2, 3, k)).astype(dtype)
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    return OneNode("MatMulNBits", {0: x}, held, attrs), codes, zero


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize(("block", "k", "n"), [(16, 40, 5), (32, 32, 1), (32, 70, 3), (64, 200, 17), (128, 96, 6)])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_of_packed_codes(bits: int, block: int, k: int, n: int, zeros: str, dtype: Any) -> None:
    """What stands past K must not matter."""
    one, codes, zero = blocked(bits, block, k, n, zeros, dtype)
    group = np.arange(k) // block
    want = (codes[:, :k] - zero[:, group]) * one.held[2].astype(np.float64)[:, group]
    model = one.model()
    report = dequantise(model, Inference())
    assert [node.op_type for node in model.graph] == ["DequantizedWeight", "MatMul"]
    weight = weight_of(model, (k, n))
    if zeros == "floats":
        np.testing.assert_allclose(
            weight.T.astype(np.float64), want, rtol=1e-3 if dtype == np.float16 else 1e-6, atol=1e-6
        )
    else:  # one rounding of an exact product
        np.testing.assert_array_equal(weight.T, want.astype(np.float32).astype(dtype))
    kind = {"": "", "packed": ", zero points", "floats": ", zero points as floats"}[zeros]
    assert report == [f"1 weight kept as codes: {bits} bits in blocks of {block}{kind} (MatMulNBits)"]


@pytest.mark.parametrize("zeros", ["", "packed"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("bias", [False, True])
def test_products_agree_with_onnxruntime(bits: int, zeros: str, bias: bool) -> None:
    one, *_ = blocked(bits, 32, 64, 6, zeros, np.float32)
    if bias:
        one.held[5] = RANDOM.normal(size=6).astype(np.float32)
    before = one.run(one.model())
    model = one.model()
    dequantise(model, Inference())
    np.testing.assert_allclose(one.run(model), before, rtol=1e-4, atol=1e-4)


def test_groups_in_an_order_of_their_own() -> None:
    one, codes, zero = blocked(4, 16, 40, 5, "packed", np.float32)
    group = RANDOM.permutation(np.arange(40) // 16)
    one.held[4] = group.astype(np.int32)
    model = one.model()
    report = dequantise(model, Inference())
    want = (codes[:, :40] - zero[:, group]) * one.held[2].astype(np.float64)[:, group]
    order = np.argsort(group, kind="stable")
    np.testing.assert_array_equal(weight_of(model, (40, 5)).T, want[:, order].astype(np.float32))
    assert report == ["1 weight kept as codes: 4 bits in blocks of 16, zero points, permuted groups (MatMulNBits)"]
    x = one.feeds[0].astype(np.float64)
    np.testing.assert_allclose(one.run(model), x @ want.T, rtol=1e-5, atol=1e-5)


def test_groups_of_unequal_sizes_are_dense() -> None:
    one, codes, zero = blocked(4, 16, 40, 5, "packed", np.float32)
    group = np.arange(40) // 16
    group[39] = 0
    one.held[4] = group.astype(np.int32)
    model = one.model()
    report = dequantise(model, Inference())
    want = (codes[:, :40] - zero[:, group]) * one.held[2].astype(np.float64)[:, group]
    np.testing.assert_array_equal(weight_of(model, (40, 5)).T, want.astype(np.float32))
    assert report == [
        "1 weight dequantised while compiling, stored as floats of the precision in the blob: "
        "4 bits in blocks of 16, zero points, permuted groups (MatMulNBits): its groups differ in size"
    ]


def test_codes_that_end_within_a_byte_are_dense() -> None:
    one, codes, _ = blocked(4, 16, 33, 5, "", np.float32)
    model = one.model()
    report = dequantise(model, Inference())
    want = (codes[:, :33] - 8.0) * one.held[2].astype(np.float64)[:, np.arange(33) // 16]
    np.testing.assert_array_equal(weight_of(model, (33, 5)).T, want.astype(np.float32))
    assert report[0].endswith("4 bits in blocks of 16 (MatMulNBits): 33 codes of 4 bits end within a byte")


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    ("kind", "bits", "shape", "axis", "gather"),
    [
        ("uint8", 4, (7, 64), 1, 0),
        ("uint8", 8, (7, 48), 1, 0),
        ("uint8", 4, (5, 3, 32), 2, 0),
        ("uint8", 2, (7, 64), 1, 0),
        ("int4", 4, (7, 40), 1, 0),
        ("uint4", 4, (40, 7), 0, 1),
    ],
)
def test_gathered_rows(kind: str, bits: int, shape: tuple[int, ...], axis: int, gather: int, zeros: bool) -> None:
    block = 16
    low = -8 if kind == "int4" else 0
    codes = RANDOM.integers(low, low + (1 << bits), shape)
    groups = [*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :]]
    zero = RANDOM.integers(low, low + (1 << bits), groups) if zeros else None
    scales = RANDOM.uniform(0.1, 1, groups).astype(np.float32)

    def stored(values: np.ndarray) -> np.ndarray:
        if kind == "uint8":
            return packed(values.reshape(-1, values.shape[-1]), bits).reshape(*values.shape[:-1], -1)
        return values.astype(getattr(ml_dtypes, kind))

    indices = RANDOM.integers(0, shape[gather], (2, 3))
    attrs = {"bits": bits, "block_size": block, "quantize_axis": axis, "gather_axis": gather}
    held = {0: stored(codes), 2: scales, **({3: stored(zero)} if zero is not None else {})}
    one = OneNode("GatherBlockQuantized", {1: indices}, held, attrs)
    before = one.run(one.model())
    model = one.model()
    dequantise(model, Inference())
    if zero is None:
        zero = np.full(groups, 1 << (bits - 1) if kind == "uint8" else 0)
    where = np.arange(shape[axis]) // block
    want = (codes - np.take(zero, where, axis)) * np.take(scales.astype(np.float64), where, axis)
    np.testing.assert_array_equal(weight_of(model, shape), want.astype(np.float32))
    np.testing.assert_allclose(one.run(model), before, rtol=1e-5, atol=1e-5)


def test_nodes_of_one_weight_share_one_constant() -> None:
    one, *_ = blocked(4, 32, 64, 6, "packed", np.float32)
    one.attrs["accuracy_level"] = 4
    model = one.model(copies=3)
    report = dequantise(model, Inference())
    assert len({node.inputs[1] for node in model.graph if node.op_type == "MatMul"}) == 1
    assert report == [
        "1 weight kept as codes: 4 bits in blocks of 32, zero points (MatMulNBits)",
        "accuracy_level 4 of 3 MatMulNBits is not imitated: their activations stay floats",
    ]


def test_no_number_is_computed_before_it_is_read() -> None:
    one, *_ = blocked(4, 32, 64, 6, "", np.float32)
    model, reads = one.model(), []
    codes = model.graph.initializers["i1"]
    held = codes.const_value
    assert held is not None

    def read() -> ir.TensorProtocol:
        reads.append(1)
        return held

    codes.const_value = ir.LazyTensor(read, held.dtype, ir.Shape(held.shape.numpy()), cache=False, name="i1")
    dequantise(model, Inference())
    assert not reads
    (packed,) = (node for node in model.graph if node.op_type == "DequantizedWeight")
    assert packed.outputs[0].const_value is not None
    packed.outputs[0].const_value.numpy()
    assert len(reads) == 1


REFUSED = [
    ({"bits": 3}, {}, "codes of 3 bits are not supported; 2, 4, 8 are"),
    ({"block_size": 1}, {}, "block_size is 1; a block of 4-bit codes must fill whole bytes"),
    (
        {"weight_prepacked": 1},
        {},
        "weight_prepacked is the layout of one GPU; quantise the model with weight_prepacked=0",
    ),
    ({"K": 128}, {}, "B has the shape [6, 2, 16], 192 elements; the attributes ask for 384"),
    ({}, {2: np.ones((6, 3), np.float32)}, "scales has the shape [6, 3], 18 elements; the attributes ask for 12"),
    ({}, {3: np.ones((6, 2), np.uint8)}, "zero_points has the shape [6, 2], 12 elements; the attributes ask for 6"),
    ({}, {4: np.full(64, 2, np.int32)}, "g_idx must name one of the 2 blocks for each of the 64 input channels"),
]


@pytest.mark.parametrize(("attrs", "held", "said"), REFUSED)
def test_forms_that_are_not_known_are_refused(attrs: dict[str, Any], held: dict[int, np.ndarray], said: str) -> None:
    one, *_ = blocked(4, 32, 64, 6, "", np.float32)
    one.attrs.update(attrs)
    one.held.update(held)
    with pytest.raises(ModelRefused) as refused:
        dequantise(one.model(), Inference())
    assert str(refused.value) == f"node 'n0' (com.microsoft::MatMulNBits): {said}"


def test_weights_that_come_in_at_run_time_are_refused() -> None:
    one, *_ = blocked(4, 32, 64, 6, "", np.float32)
    one.feeds[1] = one.held.pop(1)
    with pytest.raises(ModelRefused) as refused:
        dequantise(one.model(), Inference())
    assert str(refused.value) == (
        "node 'n0' (com.microsoft::MatMulNBits): B 'i1' is no constant; only weights that the file holds are supported"
    )


@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_one_scale_for_each_channel_where_the_user_asks_for_it(bits: int, zeros: str) -> None:
    """Each number is the nearest multiple of its channel's step, in which the largest of them is the largest code."""
    one, codes, zero = blocked(bits, 32, 96, 6, zeros, np.float32)
    group = np.arange(96) // 32
    want = (codes - zero[:, group]) * one.held[2].astype(np.float64)[:, group]
    model = one.model()
    report = dequantise(model, Inference(), per_channel=True)
    found = weight_of(model, (96, 6)).T.astype(np.float64)
    step = np.abs(want).max(axis=1, keepdims=True) / ((1 << (max(bits, 4) - 1)) - 1)
    assert (np.abs(found - want) <= step / 2 * (1 + 1e-5)).all()
    np.testing.assert_allclose(found / step, np.rint(found / step), atol=1e-4)
    assert len(report) == 1 and report[0].endswith("(MatMulNBits), quantised again with one scale for each channel")


def test_what_has_one_scale_a_channel_already_is_left_alone() -> None:
    one, *_ = blocked(4, 64, 64, 6, "", np.float32)
    plain, again = one.model(), one.model()
    assert dequantise(plain, Inference()) == dequantise(again, Inference(), per_channel=True)
    np.testing.assert_array_equal(weight_of(plain, (64, 6)), weight_of(again, (64, 6)))
