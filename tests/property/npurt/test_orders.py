"""A compiled program computes the same whichever queue runs ahead: its barriers order all that must be ordered."""

from dataclasses import replace
from importlib.resources import files
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import npurt
from npuc.driver import CompileOptions, compile_to_blob
from npurt.abi.records import Queue
from npurt.exec.order import allowed_order


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> npurt.Image:
    blob = tmp_path_factory.mktemp("orders") / "default.npu"
    options = CompileOptions(chunk=16, max_prompt_len=32, capacities=(64,))
    compile_to_blob(Path(str(files("npuc") / "data/default_model/model.onnx")), blob, options)
    return npurt.load(blob)


def reordered(image: npurt.Image, priority: tuple[Queue, ...]) -> npurt.Image:
    entries = {}
    for name, entry in image.entries.items():
        ranges = {"dma": entry.dma, "dpu": entry.dpu, "shave": entry.shave, "barrier": entry.barriers}
        entries[name] = replace(entry, tasks=allowed_order(image.tables, ranges, priority))
    return replace(image, entries=entries)


def answer(image: npurt.Image) -> list[bytes]:
    """Hidden rows of a prompt of two chunks and three more tokens, and the cache after them."""
    device = npurt.Device(image)
    ids = np.arange(40, 72).reshape(2, 1, 16)
    outputs = [device.run("prefill", {"input_ids": ids[0]})["hidden"]]
    outputs.append(device.run("prefill", {"input_ids": ids[1]}, n_past=16, n_new=11)["hidden"][:, :11])
    for i in range(3):
        outputs.append(device.run("generate.64", {"input_ids": np.array([[i]])}, n_past=27 + i)["hidden"])
    return [array.tobytes() for array in (*outputs, *(device.state(state.id) for state in image.metadata.states))]


def test_every_priority_of_the_queues_gives_the_same_bits(image: npurt.Image):
    want = answer(image)
    orders = set()
    for priority in list(permutations(Queue))[::4]:
        changed = reordered(image, priority)
        orders.add(tuple(task.index for task in changed.entries["prefill"].tasks))
        assert answer(changed) == want, priority
    assert len(orders) > 3
