"""Wrong metadata, wrong sections and random damage: one line each, never anything but a BlobError."""

import json

import numpy as np
import pytest

import npurt
from npurt import BlobError, load_bytes
from npurt.abi import blob
from tests.unit.npurt.images import NAMES, Tables
from tests.unit.npurt.samples import good, refused

METADATA = [
    ({"format": 2}, "metadata: format 2, this runtime reads 1"),
    ({"format": True}, "metadata: 'format' is missing or not of type int"),
    ({"target": None}, "metadata: 'target' is missing or not of type str"),
    ({"entries": {}}, "metadata: 'entries' is missing or not of type list"),
    ({"entries": [{"name": "main"}]}, "entry 'main': 'inputs' is missing or not of type list"),
    ({"entries": []}, "entries of the tables: main; of the metadata: "),
    ({"states": []}, "the state bases are not the states of the metadata"),
    ({"llm": {"vocab": 0}}, "metadata llm: vocab 0 is not positive"),
    (
        {"llm": {"vocab": 9, "chunk": 2, "max_prompt_len": 4, "capacities": [8], "eos": [1], "bos": None}},
        "metadata llm: the entry 'prefill' is missing",
    ),
    (
        {"llm": {"vocab": 9, "chunk": 2, "max_prompt_len": 4, "capacities": ["8"], "eos": [1], "bos": None}},
        "metadata llm: the capacities are no list of positive whole numbers",
    ),
]


@pytest.mark.parametrize(("meta", "message"), METADATA, ids=[message[:40] for _, message in METADATA])
def test_metadata_is_checked(meta: dict[str, object], message: str):
    tiny = good()
    tiny.meta = meta
    assert refused(tiny) == message


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3", json.dumps("x").encode()])
def test_metadata_that_is_no_object(text: bytes):
    tiny = good()
    tiny.sections = {blob.NAME_META: text}
    assert refused(tiny).startswith("metadata: ")


def test_missing_and_mistyped_sections():
    data = bytearray(good().to_bytes())
    headers = np.frombuffer(data, blob.SHDR, len(NAMES), 64)
    headers["sh_type"][NAMES.index(blob.NAME_DMA)] = 0x80000005
    with pytest.raises(BlobError, match=r"^section \.npu\.dma has type 0x80000005, NPU_DMA \(0x80000004\) is due$"):
        load_bytes(bytes(data))
    headers["sh_type"][NAMES.index(blob.NAME_DMA)] = 0x80000004
    headers["sh_size"][NAMES.index(blob.NAME_WEIGHTS)] = 2**60
    with pytest.raises(BlobError, match=r"^section \d+ ends at byte \d+, the file at \d+$"):
        load_bytes(bytes(data))


def test_random_damage_gives_blob_errors_only():
    """Single bytes and runs of bytes, with and without matching digests: refused, or loaded and harmless."""
    data = good().to_bytes()
    rng = np.random.default_rng(11)
    survived = 0
    for _ in range(600):
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(len(data)))
            damaged[at] = int(rng.integers(256))
        if rng.random() < 0.2:
            damaged = damaged[: int(rng.integers(len(data)))]
        try:
            load_bytes(bytes(damaged))
            survived += 1
        except BlobError as error:
            assert "\n" not in str(error)
    assert survived < 100


def test_damaged_records_with_right_digests_never_crash():
    """Random fields of random records: the loader refuses them, or the program runs inside its buffers."""
    rng = np.random.default_rng(12)
    outcomes = {"refused": 0, "ran": 0}
    for _ in range(400):
        tiny = good()

        def edit(tables: Tables) -> None:
            table = tables[
                str(
                    rng.choice(
                        ["bases", "dma", "dpu", "shave", "args", "barriers", "entries", "kernels", "step", "bind"]
                    )
                )
            ]
            raw = table.view(np.uint8).reshape(-1)
            at = int(rng.integers(raw.size))
            raw[at] = rng.integers(256) if rng.random() < 0.5 else raw[at] ^ (1 << rng.integers(8))

        tiny.edit = edit
        try:
            npurt.Device(load_bytes(tiny.to_bytes())).run("main", {"x": np.zeros((2, 8), np.float16)})
            outcomes["ran"] += 1
        except BlobError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert outcomes["ran"] > 40
    assert outcomes["refused"] > 40
