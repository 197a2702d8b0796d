"""Profiles of the embedded model: sums, the bound, the trace, and what faster machines do to the time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npurt
from npuc.cli import main
from npuc.report.profile import profile, profile_json
from npuc.report.trace import trace_events
from npuc.report.vendor import is_benchmark, token_ratios
from npurt.abi.records import Queue
from npurt.image import Image
from npurt.target import load_target, scaled
from npurt.timing import EntryTimer, Timing, critical_path, shares
from tests.support.models import compile_to

MODEL = Path(__file__).parents[2] / "npuc" / "data" / "default_model"
NPU = load_target()
READINGS = pytest.mark.parametrize("held", [True, False], ids=["held", "overlapped"])


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_to(tmp_path_factory.mktemp("profile") / "model.npu", MODEL)


@pytest.fixture(scope="module")
def image(blob: Path) -> Image:
    return npurt.load(blob)


@pytest.fixture(scope="module")
def found(blob: Path) -> dict[str, Any]:
    return json.loads(json.dumps(profile_json(profile(blob))))


def timings(image: Image, held: bool) -> list[Timing]:
    return [EntryTimer(image, entry, NPU).run(held=held) for entry in image.entries.values()]


@READINGS
def test_busy_and_idle_fill_the_run_and_the_path_explains_it(image: Image, held: bool):
    for timing in timings(image, held):
        for queue in timing.queues:
            assert queue.busy + sum(queue.stalls.values()) + queue.idle == timing.makespan
            assert min(queue.work, queue.launch, queue.idle, *queue.stalls.values()) >= 0
            assert not {"bandwidth", "bank", "issue"} & {*queue.stalls}  # one tile's ports do not fill the memory
            assert ("latency" in queue.stalls) == (held and queue.name.startswith("dma") and queue.tasks > 0)
        assert sum(time for _, time in critical_path(timing)) == timing.makespan
        for table in shares(timing):
            assert sum(share.time for share in table.values()) == timing.makespan


@READINGS
def test_each_task_is_at_or_above_its_roofline(image: Image, held: bool):
    tables = image.tables
    for timing in timings(image, held):
        entry = image.entries[timing.entry]
        took = (timing.times.release - timing.times.start) * 1e-12
        dpu = tables.dpu[entry.dpu.start : entry.dpu.stop]
        macs = np.prod([dpu[name].astype(float) for name in ("batch", "m", "n", "k")], axis=0)
        on_matrix = took[timing.job.queue == Queue.DPU]
        assert (on_matrix >= macs / 1024 / 1850e6 - 1e-12)[timing.active[timing.job.queue == Queue.DPU]].all()
        moved = timing.queues[Queue.DMA_IN].work * 1e-12
        assert moved >= timing.ddr_read / 68e9 - 1e-9


@READINGS
def test_the_same_times_on_every_run(image: Image, held: bool):
    for one, other in zip(timings(image, held), timings(image, held), strict=True):
        assert np.array_equal(one.times.start, other.times.start)
        assert np.array_equal(one.times.end, other.times.end)


FASTER = [
    (key, 0.5 if key.rpartition(".")[2] in ("launch", "latency", "issue") or ".cycles." in key else 2)
    for key in NPU.figures
    if key.startswith(("routes", "engines", "pools", "sync")) and key != "sync.clock"
    and not key.endswith((".max_transfer", ".outstanding", ".granule", ".count"))
]  # fmt: skip


@pytest.mark.parametrize(("key", "factor"), FASTER, ids=[key for key, _ in FASTER])
def test_a_faster_machine_is_never_slower(image: Image, key: str, factor: float):
    target = scaled(NPU, key, factor)
    for name in ("generate.128", "head"):
        for held in (True, False):
            slow = EntryTimer(image, image.entries[name], NPU).run(held=held)
            fast = EntryTimer(image, image.entries[name], target).run(held=held)
            assert fast.makespan <= slow.makespan


def test_a_shorter_past_is_never_slower(image: Image):
    timer = EntryTimer(image, image.entries["generate.512"], NPU)
    spans = [timer.run(n_past).makespan for n_past in (0, 100, 300, 512)]
    assert spans == sorted(spans) and spans[0] < spans[-1]
    assert timer.run(0).ddr_read < timer.run(512).ddr_read


def test_json_fields_and_the_bound(found: dict[str, Any]):
    for entry in found["entries"]:
        assert entry["makespan_us"] >= entry["bound_us"] == max(entry["bound_parts_us"].values()) > 0
        assert entry["bound_ratio"] == pytest.approx(entry["makespan_us"] / entry["bound_us"])
        assert set(entry["bound_parts_us"]) == {"ddr", "matrix", "vector", "launches", "cut"}
        assert set(entry["resources_us"]) == {"dma.in", "dma.out", "dpu", "shave"}
        assert max(entry["resources_us"].values()) <= entry["makespan_us"]
        assert entry["ddr_bytes"] == entry["ddr_read"] + entry["ddr_written"]
        assert entry["tasks"] == sum(queue["tasks"] for queue in entry["queues"])
        assert sum(row["path_us"] for row in entry["nodes"]) == pytest.approx(entry["makespan_us"])
        assert entry["makespan_other_latency_us"] <= entry["makespan_us"]
        parts = entry["estimate_parts_us"]
        assert entry["estimate_us"] > 0 and set(parts) == {"ddr", "matrix", "vector", "launches"}
        # the queues' own times, under the names of the estimate's parts
        assert parts["ddr"]["program"] == pytest.approx(entry["resources_us"]["dma.in"])
        assert parts["matrix"]["program"] == pytest.approx(entry["resources_us"]["dpu"])
        shave = parts["vector"]["program"] + parts["launches"]["program"]
        assert shave == pytest.approx(entry["resources_us"]["shave"])
    assert [entry["name"] for entry in found["entries"]] == ["prefill", "generate.128", "generate.512", "head"]
    assert found["tokens"] == []


def test_occupancy_stays_inside_the_scratchpad(found: dict[str, Any]):
    for entry in found["entries"]:
        cmx = entry["cmx"]
        assert 0 < cmx["mean_bytes"] <= cmx["peak_bytes"] <= NPU.memories["cmx"].bytes
        assert all(0 <= level <= cmx["peak_bytes"] for _, level in cmx["steps"])


def test_trace_times_sum_to_the_run(blob: Path, tmp_path: Path):
    path = tmp_path / "t.json"
    assert main(["profile", str(blob), "--entry", "generate.128", "--trace", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    image = npurt.load(blob)
    timing = EntryTimer(image, image.entries["generate.128"], NPU).run()
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(list(trace_events(timing)))
    for tid, queue in enumerate(timing.queues):
        mine = [event for event in complete if event["tid"] == tid]
        assert sum(event["dur"] for event in mine) == pytest.approx(timing.makespan * 1e-6)
        assert sum(event["dur"] for event in mine if event["cat"] == queue.name) == pytest.approx(queue.held * 1e-6)
        assert all(b["ts"] == pytest.approx(a["ts"] + a["dur"]) for a, b in pairwise(mine))
    names = {event["name"] for event in complete if event["cat"] == "dpu"}
    assert names and names <= {node for node in timing.nodes if node}
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"generate.128", "dma.in", "shave"}
    assert any(event["ph"] == "C" and event["args"]["bytes"] > 0 for event in events)


def test_text_and_options(blob: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["profile", str(blob), "--entry", "head", "--dma-latency", "overlapped", "--target", "npu50xx"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("target npu50xx, latency of a transfer overlapped\n\nhead  capacity 0")
    assert text.splitlines()[3].startswith("  bound ")
    assert "\nrests on assumed numbers: engines.dma.in.max_transfer" in text
    assert main(["profile", str(blob), "--entry", "tail"]) == 2
    assert capsys.readouterr().err == ("error: no entry 'tail': there are prefill, generate.128, generate.512, head\n")
    assert main(["profile", str(blob), "--entry", "generate.128", "--n-past", "129"]) == 2
    assert capsys.readouterr().err == "error: entry generate.128: n_past 129, 0 to 128 are possible\n"
    assert main(["profile", str(blob), "--target", "ascend950"]) == 2


@pytest.mark.parametrize("target", ["npu37xx", "npu40xx", "npu50xx"])
@pytest.mark.parametrize("reading", ["held", "overlapped"])
def test_no_step_beats_its_bound_on_any_machine(blob: Path, target: str, reading: str):
    limits = []
    for n_past in (0, 5, 128):
        (row,) = profile_json(profile(blob, entry="generate.128", target=target, n_past=n_past, reading=reading))[
            "entries"
        ]
        assert row["n_past"] == n_past and row["makespan_us"] >= row["bound_us"] > 0
        assert (row["estimate_us"] is None) == (target != "npu40xx" or n_past != 128)
        assert list(row)[:9] == ["name", "capacity", "makespan_us", "bound_us", "bound_ratio", "bound_parts_us",
                                 "resources_us", "ddr_bytes", "tasks"]  # fmt: skip
        limits.append(row["bound_parts_us"]["ddr"])
    assert limits == sorted(limits) and limits[0] < limits[-1]


def test_ratios_to_the_vendors_schedule():
    llm = {"vocab": 49152, "hidden": 576}
    meta = {"llm": llm, "states": [{}] * 60}
    assert is_benchmark(meta)
    assert not is_benchmark(meta | {"llm": None})
    assert not is_benchmark(meta | {"states": []})
    rows = token_ratios({"prefill": 9.0, "generate.320": 3000.0, "head": 892.0}, "held")
    assert [(row["entry"], row["token_us"], row["ratio_to_vendor"]["f16"]) for row in rows] == [
        ("generate.320", 3892.0, 1.0)
    ]
    assert rows[0]["ratio_to_forecast"] == {"f16": 3892 / 9460, "int4": 3892 / 8340}
    assert token_ratios({"generate.320": 1.0}, "held") == []
