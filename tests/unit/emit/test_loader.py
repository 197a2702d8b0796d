"""The runtime takes what the writer writes: every check of the loader passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuc.emit import write_blob
from npurt.abi.records import Step
from npurt.loader import load
from tests.unit.emit.programs import model


def test_the_loader_verifies_a_blob(tmp_path: Path) -> None:
    small = model()
    metadata = small.metadata | {"llm": None}  # two entries alone are no language model
    write_blob(small.programs, small.states, metadata, small.assets, tmp_path / "x.blob")
    image = load(tmp_path / "x.blob")
    assert list(image.entries) == ["prefill", "generate.16"]
    assert dict(image.assets) == small.assets
    for program, entry in zip(small.programs, image.entries.values(), strict=True):
        assert (entry.rows, entry.capacity, len(entry.tasks)) == (program.rows, program.capacity, len(program.tasks))
        nodes = [task.origin.node for task in program.tasks]
        assert [ref.node for ref in entry.tasks] == nodes  # each task waits for the one before: trace order
    first = image.steps[0]
    assert (first.field, first.symbol, first.addend) == ("valid", Step.N_NEW, 0)
    initial = image.metadata.states[1].initial
    assert initial is not None
    assert np.all(image.weights[initial : initial + image.metadata.states[1].nbytes].view("<f2") == 1)
