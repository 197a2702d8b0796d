"""Speed of fast mode beside plain NumPy and onnxruntime, interleaved in one process.

    python benchmarks/session.py MODEL.onnx BLOB.npu [--rounds 24] [--prompt 128]

Each round takes one token (or one prompt) of every runner in turn, so that whatever else the machine does hits all
alike; what is printed is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
import time
from pathlib import Path
from typing import Protocol

import numpy as np
from plain_numpy import PlainDecoder

import npurt
from npurt.fast import FastDevice, LinkOptions
from npurt.llm.model_info import ModelInfo

HEADS, GROUPS = 9, 3
Array = np.ndarray


class Runner(Protocol):
    """One implementation of the model. Both functions return the logits [vocab] of the last row."""

    def prompt(self, ids: Array) -> Array: ...

    def token(self, token: int, past: int) -> Array: ...


class Plain:
    def __init__(self, model: Path, capacity: int) -> None:
        self.decoder = PlainDecoder(model, HEADS, GROUPS, capacity)

    def prompt(self, ids: Array) -> Array:
        return self.decoder.logits(self.decoder.hidden(ids, 0)[-1:])[0]

    def token(self, token: int, past: int) -> Array:
        return self.decoder.logits(self.decoder.hidden(np.array([token]), past))[0]


class Ort:
    """onnxruntime on the same file; the cache goes from outputs to inputs without a copy of ours."""

    def __init__(self, model: Path) -> None:
        import onnxruntime as ort

        ort.set_default_logger_severity(3)

        self.session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self.past = [value for value in self.session.get_inputs() if value.name.startswith("past_key_values")]
        self.cache: list[Array] = []

    def _run(self, ids: Array, past: int) -> Array:
        total = past + ids.size
        feed = {
            "input_ids": ids.reshape(1, -1).astype(np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
        }
        feed |= {value.name: rows for value, rows in zip(self.past, self.cache, strict=True)}
        logits, *self.cache = self.session.run(None, feed)
        return logits[0, -1]

    def prompt(self, ids: Array) -> Array:
        self.cache = [np.zeros((1, GROUPS, 0, value.shape[3]), np.float32) for value in self.past]
        return self._run(ids, 0)

    def token(self, token: int, past: int) -> Array:
        return self._run(np.array([token]), past)


class Fast:
    def __init__(self, image: npurt.Image, options: LinkOptions) -> None:
        self.device, self.info = FastDevice(image, options), ModelInfo.from_meta(image.meta)

    def _head(self, hidden: Array, row: int) -> Array:
        return self.device.run("head", {"hidden": hidden[:, row : row + 1]})["logits"].reshape(-1)

    def prompt(self, ids: Array) -> Array:
        for first in range(0, ids.size, self.info.chunk):
            part = ids[first : first + self.info.chunk]
            padded = np.zeros((1, self.info.chunk), self.info.ids_dtype)
            padded[0, : part.size] = part
            hidden = self.device.run("prefill", {"input_ids": padded}, n_past=first, n_new=part.size)["hidden"]
        return self._head(hidden, part.size - 1)

    def token(self, token: int, past: int) -> Array:
        entry, _ = self.info.generate_entry(past)
        ids = np.array([[token]], self.info.ids_dtype)
        return self._head(self.device.run(entry, {"input_ids": ids}, n_past=past, n_new=1)["hidden"], 0)


def kernel_name() -> str:
    """The kernel set that NumPy's OpenBLAS has chosen, as it says itself."""
    for path in sorted(set(re.findall(r"/\S*openblas\S*\.so\S*", Path("/proc/self/maps").read_text()))):
        library = ctypes.CDLL(path)
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                function = getattr(library, f"{prefix}_get_corename{suffix}", None)
                threads = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if function is not None and threads is not None:
                    function.restype = ctypes.c_char_p
                    return f"{function().decode()}, {threads()} threads"
    return "unknown"


def as_found() -> None:
    """Starts again without the variables that force a kernel set: BLAS reads them when NumPy loads."""
    forced = [name for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if os.environ.pop(name, None) is not None]
    if forced:
        os.execv(sys.executable, [sys.executable, *sys.argv])


def report(what: str, seconds: dict[str, list[float]], tokens: int) -> None:
    """Medians, and the median of fast's speed over each other's within a round."""
    for name, values in seconds.items():
        rates = tokens / np.array(values)
        ratio = np.median(np.array(values) / np.array(seconds["fast"]))
        speed = f"median {np.median(rates):8.1f}, best {rates.max():8.1f} tokens/s"
        print(f"{what:8} {name:6} {speed}   fast/{name} {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("blob", type=Path)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--rounding", choices=("grid", "none"), default="grid")
    parser.add_argument("--without-ort", action="store_true")
    options = parser.parse_args()
    as_found()
    print(f"NumPy {np.__version__}, BLAS {kernel_name()}")
    clock = time.perf_counter()
    image = npurt.load(options.blob)
    loaded = time.perf_counter()
    fast = Fast(image, LinkOptions(rounding=options.rounding))
    entries = ("prefill", "head", fast.info.generate_entry(options.prompt)[0])
    for entry in entries:
        fast.device.prepare(entry)
    linked = time.perf_counter()
    print(f"load {loaded - clock:.2f} s, link and decode {linked - loaded:.2f} s: {fast.device.stats}")
    runners: dict[str, Runner] = {"plain": Plain(options.model, options.prompt + options.rounds + 8), "fast": fast}
    if not options.without_ort:
        runners["ort"] = Ort(options.model)
    ids = np.random.default_rng(0).integers(0, fast.info.vocab, options.prompt)
    logits = {name: runner.prompt(ids) for name, runner in runners.items()}
    for name, values in logits.items():
        print(f"difference of the prompt's logits, {name} to plain: {np.abs(values - logits['plain']).max():.2e}")
    for what, rounds in (("prefill", max(options.rounds // 4, 3)), ("decode", options.rounds)):
        seconds: dict[str, list[float]] = {name: [] for name in runners}
        for turn in range(rounds):
            for name, runner in runners.items():
                clock = time.perf_counter()
                if what == "prefill":
                    runner.prompt(ids)
                else:
                    runner.token(7, options.prompt + turn)
                seconds[name].append(time.perf_counter() - clock)
        report(what, {name: values[1:] for name, values in seconds.items()}, options.prompt if what == "prefill" else 1)


if __name__ == "__main__":
    main()
