"""From a file to static fused graphs: seconds, and memory beside the mapped file.

    python -m benchmarks.load [MODEL ...]

Without MODEL: an export of 30 layers of SmolLM2-135M's sizes whose weights are zeros, and the TorchScript export in
tests/data/corpus with its last layer repeated to 33. Each is loaded in a process of its own, after the imports. Seconds
are those of the clock and of the processor: on a host that does other work the second is what loading takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CHATTY = Path(__file__).parent.parent / "tests/data/corpus/qwen2-optimum-op18/model.onnx"
LAYERS = 33  # make 7,757 nodes of it
MIB = 1 << 20


def main(words: Sequence[str] | None = None) -> int:
    """The command line: a table in Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.one:
        print(json.dumps(measure(options.models[0])))
        return 0
    print("| model | nodes | seconds | of the processor | MiB of files | MiB beside them | steps above 5 % |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in [(str(p), p) for p in options.models] or made(Path(folder)):
            print(_row(name, _in_a_process(path)))
    return 0


def measure(path: Path) -> dict[str, object]:
    """Loads and builds with default options. Bytes: of the model and its data, and the peak of this process over its
    size before."""
    import onnx

    from npuc.frontend import load
    from npuc.graph import build

    files = [path, *(found for found in path.parent.iterdir() if found.suffix.endswith("data"))]
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    loaded = load(path)
    opened = time.perf_counter()
    graphs = build(loaded)
    end = time.perf_counter()
    return {
        "nodes": nodes,
        "seconds": end - start,
        "processor": time.process_time() - busy,
        "steps": {"load": opened - start, **graphs.timings},
        "files": sum(file.stat().st_size for file in files),
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024,
    }


def made(folder: Path) -> list[tuple[str, Path]]:
    """The two models, written to `folder`."""
    import onnx

    from benchmarks.layers import deepened
    from npuc.models.hollow import DATA, write_hollow
    from npuc.models.shapes import SHAPES

    smol, chatty = folder / "smollm2", folder / "chatty"
    write_hollow(SHAPES["smollm2-135m"].shape, smol, force=False)
    extents = [
        int(entry.value)
        for tensor in onnx.load(smol / "model.onnx", load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key in ("offset", "length")
    ]
    with (smol / DATA).open("wb") as data:  # a file of zeros that takes no room
        data.truncate(max(sum(pair) for pair in zip(extents[::2], extents[1::2], strict=True)))
    chatty.mkdir()
    onnx.save(deepened(onnx.load(CHATTY), LAYERS), chatty / "model.onnx")
    return [("SmolLM2-135M's sizes", smol / "model.onnx"), (f"TorchScript, {LAYERS} layers", chatty / "model.onnx")]


def _in_a_process(path: Path) -> dict[str, object]:
    words = [sys.executable, "-m", "benchmarks.load", "--one", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"{path}: exit code {done.returncode}")
    return dict(json.loads(done.stdout))


def _row(name: str, found: dict[str, object]) -> str:
    seconds, steps = found["seconds"], found["steps"]
    assert isinstance(seconds, float) and isinstance(steps, dict)
    slow = ", ".join(f"{step} {spent:.2f}" for step, spent in steps.items() if spent > 0.05 * seconds)
    files, peak = (round(float(str(found[key])) / MIB) for key in ("files", "peak"))
    return f"| {name} | {found['nodes']} | {seconds:.2f} | {found['processor']:.2f} | {files} | {peak} | {slow} |"


if __name__ == "__main__":
    raise SystemExit(main())
