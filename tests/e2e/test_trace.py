"""`npuc profile --trace`: every field of the Chrome trace format as documented, and Perfetto's own reading of it.

Perfetto's trace processor is a program that the PyPI package `perfetto` fetches when it is first used. The last test
needs it: PERFETTO_TRACE_PROCESSOR is the path of `trace_processor_shell`, or the package is installed and can get it.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import npurt
from npuc.cli import main
from npurt.image import Image
from npurt.target import load_target
from npurt.timing import EntryTimer, Timing
from tests.support.models import compile_to

MODEL = Path(__file__).parents[2] / "npuc" / "data" / "default_model"
# of each phase that a trace of ours may have: the fields of an event, with their types; all are due, no other may be
NUMBER = (int, float)
FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "X": {"name": (str,), "cat": (str,), "ph": (str,), "pid": (int,), "tid": (int,), "ts": NUMBER, "dur": NUMBER,
          "args": (dict,)},
    "M": {"name": (str,), "ph": (str,), "pid": (int,), "tid": (int,), "args": (dict,)},
    "C": {"name": (str,), "ph": (str,), "pid": (int,), "ts": NUMBER, "args": (dict,)},
}  # fmt: skip
METADATA = ("process_name", "thread_name")
Rows = list[dict[str, str]]


def faults(trace: Any) -> list[str]:
    """What the documented format does not allow, in words; the order of events only where each alone is right."""
    found = []
    if set(trace) != {"traceEvents", "displayTimeUnit"} or trace["displayTimeUnit"] not in ("ns", "ms"):
        found.append(f"the file has {sorted(trace)}, and a displayTimeUnit is ns or ms")
    for at, event in enumerate(trace["traceEvents"]):
        found += [f"event {at}: {fault}" for fault in _fields(event)]
    return found or list(_order(trace["traceEvents"]))


def _fields(event: dict[str, Any]) -> Iterator[str]:
    fields = FIELDS.get(event.get("ph", ""), {})
    if not fields or set(event) != set(fields):
        yield f"phase {event.get('ph')} with {sorted(event)}"
        return
    wrong = [name for name, types in fields.items() if type(event[name]) not in types]
    yield from (f"{name} is {event[name]!r}" for name in wrong)
    if wrong:
        return
    if min(event.get("ts", 0), event.get("dur", 0)) < 0:
        yield "a negative time"
    if event["ph"] == "M" and (event["name"] not in METADATA or not isinstance(event["args"].get("name"), str)):
        yield f"metadata {event['name']} of {event['args']}"
    if event["ph"] == "C" and not all(isinstance(value, NUMBER) for value in event["args"].values()):
        yield f"a counter of {event['args']}"


def _order(events: list[dict[str, Any]]) -> Iterator[str]:
    """Slices of one thread follow each other, and do not overlap; counters follow each other; threads have names."""
    named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    threads: dict[tuple[int, Any], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] != "M":
            threads.setdefault((event["pid"], event.get("tid", event["name"])), []).append(event)
    for key, mine in threads.items():
        if mine[0]["ph"] == "X" and key not in named:
            yield f"thread {key} has no name"
        for one, other in pairwise(mine):
            # ends and starts are picoseconds, written as microseconds
            if other["ts"] < one["ts"] + one.get("dur", 0) - 1e-6:
                yield f"thread {key}: {other} begins before {one} ends"


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_to(tmp_path_factory.mktemp("trace") / "model.npu", MODEL)


@pytest.fixture(scope="module")
def image(blob: Path) -> Image:
    return npurt.load(blob)


@pytest.fixture(scope="module")
def path(blob: Path) -> Path:
    out = blob.with_name("trace.json")
    assert main(["profile", str(blob), "--trace", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def timings(image: Image) -> list[Timing]:
    return [EntryTimer(image, entry, load_target()).run() for entry in image.entries.values()]


def test_every_field_is_as_documented(path: Path):
    assert faults(json.loads(path.read_text())) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dur": -1.0}, "a negative time"),
        ({"ts": "0"}, "ts is '0'"),
        ({"id": 1}, "phase X with"),
        ({"dur": 1e9}, "begins before"),
        ({"tid": 77}, "has no name"),
    ],
)
def test_the_check_finds_what_is_wrong(path: Path, change: dict[str, Any], words: str):
    trace = json.loads(path.read_text())
    first = next(event for event in trace["traceEvents"] if event["ph"] == "X")
    first |= change
    assert any(words in fault for fault in faults(trace))


def test_slices_carry_the_nodes_of_the_graph_and_sum_to_the_run(path: Path, timings: list[Timing]):
    events = json.loads(path.read_text())["traceEvents"]
    for pid, timing in enumerate(timings, 1):
        for tid, queue in enumerate(timing.queues):
            mine = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (pid, tid)]
            assert sum(event["dur"] for event in mine) == pytest.approx(timing.makespan * 1e-6)
            nodes = [event["name"] for event in mine if event["cat"] == queue.name]
            assert nodes == [
                timing.nodes[task] or "(no node)" for task in (timing.job.queue == tid).nonzero()[0].tolist()
            ]
            assert {event["cat"] for event in mine} <= {queue.name, "stall", "idle"}


def shell(program: str, trace: Path, query: str) -> Rows:
    """Rows by column, as `trace_processor_shell -q` prints them."""
    script = trace.with_suffix(".sql")
    script.write_text(query)
    done = subprocess.run([program, "-q", str(script), str(trace)], capture_output=True, text=True, check=True)
    return list(csv.DictReader(done.stdout.splitlines()))


@pytest.fixture(scope="module")
def processor() -> Callable[[Path, str], Rows]:
    program = os.environ.get("PERFETTO_TRACE_PROCESSOR")
    if program:
        return lambda trace, query: shell(program, trace, query)
    package = pytest.importorskip(
        "perfetto.trace_processor", reason="no PERFETTO_TRACE_PROCESSOR, and the package perfetto is not installed"
    )

    def ask(trace: Path, query: str) -> Rows:
        try:
            with package.TraceProcessor(trace=str(trace)) as opened:
                return [{name: str(value) for name, value in vars(row).items()} for row in opened.query(query)]
        except (OSError, subprocess.SubprocessError, package.TraceProcessorException) as error:
            pytest.skip(f"the package perfetto cannot get its trace processor: {error}")

    return ask


def test_perfetto_opens_it(path: Path, timings: list[Timing], processor: Callable[[Path, str], Rows]):
    query = """
        select process.name as entry, thread.name as queue, sum(slice.dur) as ns, count(*) as slices
        from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
        join process using (upid) group by entry, queue;
    """
    found = {(row["entry"], row["queue"]): row for row in processor(path, query)}
    for timing in timings:
        for queue in timing.queues:
            row = found[timing.entry, queue.name]
            # a slice begins and ends on a whole nanosecond
            assert int(row["ns"]) == pytest.approx(timing.makespan / 1000, abs=int(row["slices"]))
    errors = "select sum(value) as count from stats where severity in ('error', 'data_loss');"
    assert int(float(processor(path, errors)[0]["count"])) == 0
