"""DPU records whose second operand holds codes: packed types, zero points, scales of groups; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from npurt import BlobError, Device, load_bytes, numerics
from npurt.abi.dtypes import DType
from tests.unit.npurt.images import CMX, TinyBlob

F16, F32, I8, U8 = DType.F16, DType.F32, DType.I8, DType.U8
RNG = np.random.default_rng(3)
M, N, K, GROUP = 3, 5, 40, 16


def codes_blob(b_type: DType, a_type: DType = F16, scale_type: DType = F32, **fields: object) -> TinyBlob:
    """c [3, 5] f32 = a [3, 40] x codes [5, 40], scales [5, 3] beside the codes: rows of b have 64 bytes."""
    inputs = {"a": (a_type, (M, K)), "b": (U8, (N, 64))}
    blob = TinyBlob(inputs=inputs, outputs={"c": (F32, (M, N))})
    blob.dma("a", "cmx", (M, K), a_type)
    blob.dma("b", "cmx", (N, 64), U8, dst_offset=512, post=(0,), start_after=1)
    scaled = {"flags": 16, "scale_type": scale_type, "group": GROUP, "table_stride": 64,
              "table_base": CMX, "table_offset": 512 + 48}  # fmt: skip
    fields = scaled | {"b_stride": 64, "wait": (0,), "post": (1,), "start_after": 2} | fields
    blob.dpu(M, N, K, (a_type, b_type, F32), (0, 512, 1024), **fields)
    blob.dma("cmx", "c", (M, N), F32, src_offset=1024, wait=(1,), start_after=2)
    blob.barriers = [(0, 1, 1), (1, 1, 1)]
    return blob


def rows(b_type: DType, scale_type: DType = F32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes [5, 64], the numbers of the codes [5, 40] in float64, scales [5, 3]."""
    data = RNG.integers(0, 256, (N, 64)).astype(np.uint8)
    scales = RNG.uniform(0.1, 1, (N, 3)).astype(np.float32)
    stored = numerics.store(scales, scale_type)
    data[:, 48 : 48 + stored.itemsize * 3] = stored.view(np.uint8).reshape(N, -1)
    numbers = numerics.unpack(np.ascontiguousarray(data[:, : K * b_type.bits // 8]), b_type).astype(np.float64)
    return data, numbers, numerics.load(stored, scale_type)


@pytest.mark.parametrize("scale_type", [F32, F16, DType.BF16, DType.E8M0, DType.E4M3], ids=lambda d: d.label)
@pytest.mark.parametrize(
    ("b_type", "zero"),
    [(DType.U4, 8), (DType.I4, 0), (DType.U2, 2), (DType.E2M1, 0), (U8, 128), (I8, -3)],
    ids=lambda v: getattr(v, "label", str(v)),
)
def test_sums_of_groups_are_scaled_in_order(b_type: DType, zero: int, scale_type: DType) -> None:
    a = RNG.normal(size=(M, K)).astype(np.float16)
    data, numbers, scales = rows(b_type, scale_type)
    want = np.zeros((M, N), np.float32)
    for group in range(3):
        part = slice(group * GROUP, min(K, group * GROUP + GROUP))
        exact = a[:, part].astype(np.float64) @ (numbers[:, part] - zero).T
        want = want + exact.astype(np.float32) * scales[:, group]
    blob = codes_blob(b_type, scale_type=scale_type, b_zero=zero)
    np.testing.assert_array_equal(Device(load_bytes(blob.to_bytes())).run("main", {"a": a, "b": data})["c"], want)


@pytest.mark.parametrize("b_type", [DType.U4, I8], ids=lambda d: d.label)
def test_integers_with_codes_sum_exactly(b_type: DType) -> None:
    a = RNG.integers(-128, 128, (M, K)).astype(np.int8)
    data, numbers, scales = rows(b_type)
    got = Device(load_bytes(codes_blob(b_type, I8, group=0, b_zero=3).to_bytes())).run("main", {"a": a, "b": data})["c"]
    exact = (a.astype(np.int64) @ (numbers.astype(np.int64) - 3).T).astype(np.float32)
    np.testing.assert_array_equal(got, exact * scales[:, 0])


REFUSED = [
    ({"flags": 20}, "scales beside a table, or of more than one matrix"),
    ({"flags": 18}, "packed or scaled operand b that is stored [k, n]"),
    ({"flags": 0}, "a field of scales without scales"),
    ({"scale_type": 4}, "unknown type of scales"),
    ({"k": 39}, "codes of operand b end within a byte"),
    ({"b_zero": 256}, "a zero point of operand b"),
    ({"b_type": DType.F16, "b_zero": 8}, "a zero point of operand b"),
    ({"b_type": DType.E2M1, "b_zero": 8}, "a zero point of operand b"),
    ({"group": 1, "table_stride": 1000}, "scales spans bytes 560 to 4720 of base 0, which has 4096"),
    ({"table_stride": 1 << 30}, "scales spans bytes 560 to 4294967868 of base 0, which has 4096"),
    ({"b_stride": 1 << 40}, "operand b spans bytes 512 to 4398046511636 of base 0, which has 4096"),
    ({"a_type": DType.E2M1}, "operands are neither both floats nor both integers"),
    ({"c_type": DType.U4}, "unknown result type"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_wrong_records_are_refused(fields: dict[str, int], message: str) -> None:
    blob = codes_blob(DType.U4)

    def edit(tables: dict[str, np.ndarray]) -> None:
        for name, value in fields.items():
            tables["dpu"][name] = value

    blob.edit = edit
    with pytest.raises(BlobError) as found:
        load_bytes(blob.to_bytes())
    assert message in str(found.value)
