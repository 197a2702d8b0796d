"""What fits, and what is said not to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from npuc.estimate.formats import FORMATS
from npuc.estimate.limits import limits_of, memory_of
from npuc.estimate.subject import Subject
from npuc.models import SHAPES
from npurt.target import load_target
from tests.unit.estimate.shapes import subject_of

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
    """Two layers with 100,000 tokens: the scores of one row are too long for the scratchpad."""
    shape = replace(SHAPES["gemma3-4b"].shape, layers=2, vocab=64)
    found = subject_of(tmp_path / "long", shape, prompt=100, tokens=100_000, chunk=8)
    small = replace(NPU, memories={**NPU.memories, "ddr": replace(NPU.memories["ddr"], bytes=10**9)})
    limits = {limit.what: limit for limit in limits_of(found, small, F16, 1)}
    row = limits["cmx for one row"]
    assert not row.fits
    assert row.where.startswith("generate.100100, /model/layers.")
    assert row.needed == 2 * 100_101 * (4 + 2) + 512 * 256 * 2 + 2 * (256 + 256) * 2
    states = 2 * 2 * 4 * 256 * (100_100 + 7) * 2
    assert limits["device memory"].where == "states"
    assert limits["device memory"].needed > states
    assert limits["device memory"].fits == (limits["device memory"].needed <= 10**9)
