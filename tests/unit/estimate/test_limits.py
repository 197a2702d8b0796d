"""What fits, and what is said not to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from npuc.estimate.formats import FORMATS
from npuc.estimate.limits import limits_of, memory_of
from npuc.estimate.subject import Subject
from npurt.target import load_target
from tests.unit.estimate.shapes import TINY, subject_of

NPU = load_target()
F16 = FORMATS["f16"]


def test_memory_by_hand(tiny: Subject):
    memory = memory_of(tiny, NPU, F16)
    assert memory.weights == tiny.weights.bytes(F16)
    assert memory.states == 2 * 2 * 2 * 8 * (64 + 15) * 2  # layers, key and value, heads, width, rows, bytes
    assert memory.scratch == 0
    # ids and hidden rows of prefill and generate; hidden rows and logits of the head
    assert memory.ports == 4 * (16 + 16 * 32) + 4 * (1 + 32) + 4 * (32 + 64)
    assert memory.total == memory.weights + memory.states + memory.ports


def test_a_small_model_fits(tiny: Subject):
    limits = limits_of(tiny, NPU, F16, 1000)
    assert all(limit.fits for limit in limits)
    assert [limit.what for limit in limits] == [
        "device memory", "memory that the runtime allocates", "cmx for one row", "elements of one value",
        "work of one run",
    ]  # fmt: skip


def test_what_does_not_fit_is_named(tmp_path: Path):
    """64 heads share a key head: one row of their scores is too long for the scratchpad, and so are the sums of a panel
    of rows."""
    shape = replace(TINY, heads=64, kv_heads=1, head_dim=512, positions=8192)
    found = subject_of(tmp_path / "long", shape, prompt=4000, tokens=100, chunk=8)
    small = replace(NPU, memories={**NPU.memories, "ddr": replace(NPU.memories["ddr"], bytes=10**6)})
    limits = {limit.what: limit for limit in limits_of(found, small, F16, 1)}
    row = limits["cmx for one row"]
    assert not row.fits
    assert row.where.startswith("prefill, /model/layers.")
    assert row.needed == 64 * 4000 * (2 + 2) + 512 * 512 * 2 + 64 * (512 + 512) * 2
    memory = limits["device memory"]
    assert (memory.fits, memory.where) == (False, "states")
    assert memory.needed > 2 * 2 * 512 * (4100 + 7) * 2
