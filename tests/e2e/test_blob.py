"""What a blob is: tasks and no graph, the same bytes everywhere, bound to any buffers, run by NumPy alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npurt
from npurt.abi import blob, records
from npurt.errors import NpurtError
from tests.support.blobs import sections, zeroed_records
from tests.support.models import CORPUS, answer, compile_to, make_case, reference

MODEL = CORPUS / "llama-torchdyn-op18"
SIZES = {"max_prompt_len": 12, "min_response_len": 8, "capacities": (11, 20), "chunk": 4}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return compile_to(tmp_path_factory.mktemp("blob") / "llama.npu", MODEL / "model.onnx", **SIZES)


def test_the_same_bytes_for_another_seed_folder_name_clock_and_thread_count(llama, tmp_path):
    elsewhere = tmp_path / "another folder" / "renamed.onnx"
    elsewhere.parent.mkdir()
    shutil.copy(MODEL / "model.onnx", elsewhere)
    os.utime(elsewhere, (1, 1))
    arguments = [
        "compile", str(elsewhere), "-o", str(tmp_path / "x.npu"), "--max-prompt-len", "12", "--min-response-len", "8",
        "--capacities", "11,20", "--chunk", "4",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "OPENBLAS_NUM_THREADS": "1",
        "TZ": "Asia/Tokyo",
        "HOME": str(tmp_path),
    }
    subprocess.run(
        [sys.executable, "-m", "npuc.cli", *arguments], check=True, env=environment, cwd=tmp_path, capture_output=True
    )
    made = (tmp_path / "x.npu").read_bytes()
    assert made == llama.read_bytes()
    for word in (str(tmp_path), "renamed", "model.onnx", str(ROOT), os.environ.get("USER", "nobody!")):
        assert word.encode() not in made


def test_no_section_holds_an_onnx_graph(llama):
    import onnx

    data = llama.read_bytes()
    for section in sections(llama).values():
        content = data[section.offset : section.offset + section.size]
        model = onnx.ModelProto()
        try:
            model.ParseFromString(content)
        except Exception:  # what is no protobuf is no graph
            continue
        assert not model.graph.node, section.name
    assert b"ReduceMean" not in data and b"MatMul\x00" not in data


@pytest.mark.parametrize(
    ("name", "record"),
    [(blob.NAME_DMA, records.DMA), (blob.NAME_DPU, records.DPU), (blob.NAME_SHAVE, records.SHAVE)],
)
def test_a_zeroed_record_is_refused_or_changes_the_logits(name, record, tmp_path):
    model, expected = make_case("a10_state_decoder", tmp_path)
    path = compile_to(tmp_path / "m.npu", model, chunk=4, max_prompt_len=8, capacities=(12,))
    prompt = expected["prompt_6"].tolist()
    wanted = answer(path, prompt, [1, 2])
    damaged, tried = tmp_path / "damaged.npu", 0
    for row, data in zeroed_records(path, name, record):
        damaged.write_bytes(data)
        tried += 1
        try:
            got = answer(damaged, prompt, [1, 2])
        except NpurtError as error:
            assert "\n" not in str(error)
            continue
        same = np.array_equal(got.prompt, wanted.prompt) and np.array_equal(got.step, wanted.step)
        assert not same, f"row {row} of {name} does nothing"
    assert tried > 10


def test_two_sets_of_bound_buffers(llama):
    """Equal results wherever the buffers lie, and no byte outside them changes."""
    image = npurt.load(llama)
    symbols = {
        name: int(image.tables.bases["size"][row])
        for row, name in enumerate(image.tables.base_names)
        if name.startswith(("prefill.", "generate.11.", "state."))
    }
    prompt, *_ = reference("llama-torchdyn-op18")
    results = []
    for seed in (1, 2):
        device = npurt.Device(image)
        rng = np.random.default_rng(seed)
        arenas, views = {}, {}
        for name, size in symbols.items():
            before, after = rng.integers(1, 200, 2)
            arena = rng.integers(0, 256, int(before) + size + int(after), dtype=np.uint8)
            view = arena[int(before) : int(before) + size]
            if name.startswith("state."):
                view[...] = 0
            arenas[name], views[name] = (arena, arena.copy(), int(before), size), view
            device.bind(name, view)
        views["prefill.in.input_ids"][...] = np.array(prompt[:4], "<i4").view(np.uint8)
        device.run_bound("prefill", n_past=0, n_new=4)
        views["generate.11.in.input_ids"][...] = np.array([prompt[4]], "<i4").view(np.uint8)
        device.run_bound("generate.11", n_past=4, n_new=1)
        results.append({name: view.copy() for name, view in views.items()})
        for name, (arena, original, before, size) in arenas.items():
            assert np.array_equal(arena[:before], original[:before]), name
            assert np.array_equal(arena[before + size :], original[before + size :]), name
    written = [name for name in symbols if ".out." in name or name.startswith("state.")]
    assert written
    for name in written:
        assert np.array_equal(results[0][name], results[1][name]), name


def test_rows_past_a_short_chunk_touch_no_slot(llama):
    """A chunk of 4 rows of which 2 are valid writes two slots of each head and nothing else."""
    image = npurt.load(llama)
    device = npurt.Device(image)
    for state in image.metadata.states:
        device.set_state(state.id, np.full(state.shape, 7.0, np.float32))
    device.run("prefill", {"input_ids": np.array([[5, 6, 7, 8]])}, n_past=3, n_new=2)
    for state in image.metadata.states:
        rows = device.state(state.id)
        untouched = np.delete(rows, [3, 4], axis=2)
        assert (untouched == 7.0).all()
        assert not (rows[:, :, 3:5] == 7.0).all(axis=-1).any()


def test_numpy_alone_runs_a_blob(llama, tmp_path):
    """`python -m npurt` where nothing but NumPy can be imported."""
    import numpy

    site = tmp_path / "site"
    site.mkdir()
    installed = Path(numpy.__file__).parent.parent
    for entry in ("numpy", "numpy.libs"):
        if (installed / entry).exists():
            (site / entry).symlink_to(installed / entry)
    shutil.copytree(Path(npurt.__file__).parent, site / "npurt", ignore=shutil.ignore_patterns("__pycache__"))
    prompt, fed, *_ = reference("llama-torchdyn-op18")
    command = [sys.executable, "-S", "-m", "npurt", "run", str(llama), "--prompt-ids", " ".join(map(str, prompt)),
               "--max-new-tokens", str(len(fed)), "--json"]  # fmt: skip
    environment = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert result["tokens"] == fed
    assert result["stop_reason"] == "max_tokens"
    missing = subprocess.run(
        [sys.executable, "-S", "-c", "import onnx"], env=environment, capture_output=True, cwd=tmp_path
    )
    assert missing.returncode != 0, "the environment has more than NumPy"
