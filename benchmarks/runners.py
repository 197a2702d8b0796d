"""One model in three implementations behind one protocol, so that rounds can take turns."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.folder import FolderDecoder
from benchmarks.plain_numpy import Array

OWN = "npuc"
NAMES = (OWN, "onnxruntime", "plain NumPy")


class Runner(Protocol):
    """prompt: from an empty cache. token: after `past` others. Both give the logits [vocab] of the last row."""

    def prompt(self, ids: Array) -> Array: ...

    def token(self, token: int, past: int) -> Array: ...


class Plain:
    """The model as one would write it in NumPy."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self._decoder = FolderDecoder(folder, capacity)

    def prompt(self, ids: Array) -> Array:
        return self._last(self._decoder.hidden(ids, 0))

    def token(self, token: int, past: int) -> Array:
        return self._last(self._decoder.hidden(np.array([token]), past))

    def _last(self, hidden: Array) -> Array:
        logits: Array = self._decoder.logits(hidden[-1:])[0]
        return logits


class Ort:
    """onnxruntime with its own optimisations; the cache goes from outputs to inputs without a copy of ours."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        path = str(folder / "model.onnx")
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name: value for value in self._session.get_inputs()}
        self._past = [name for name in self._inputs if name.startswith("past_key_values")]
        self._cache: list[Array] = []

    def prompt(self, ids: Array) -> Array:
        self._cache = []
        for name in self._past:
            value = self._inputs[name]
            dtype = np.float16 if value.type == "tensor(float16)" else np.float32
            self._cache.append(np.zeros((1, value.shape[1], 0, value.shape[3]), dtype))
        return self._run(ids, 0)

    def token(self, token: int, past: int) -> Array:
        return self._run(np.array([token]), past)

    def _run(self, ids: Array, past: int) -> Array:
        total = past + ids.size
        feed = {
            "input_ids": ids.reshape(1, -1).astype(np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
        }
        feed = {name: value for name, value in feed.items() if name in self._inputs}
        feed |= dict(zip(self._past, self._cache, strict=True))
        logits, *self._cache = self._session.run(None, feed)
        last: Array = logits[0, -1]
        return last


class Npuc:
    """A blob in fast mode, as `npurt.llm.Session` drives it."""

    def __init__(self, blob: Path) -> None:
        import npurt
        from npurt.llm import ModelInfo

        image = npurt.load(blob)
        self._device, self.info = npurt.open_device(image, "fast"), ModelInfo.from_meta(image.meta)

    def prompt(self, ids: Array) -> Array:
        chunk = self.info.chunk
        for first in range(0, ids.size, chunk):
            part = ids[first : first + chunk]
            padded = np.zeros((1, chunk), self.info.ids_dtype)
            padded[0, : part.size] = part
            hidden = self._device.run("prefill", {"input_ids": padded}, n_past=first, n_new=part.size)["hidden"]
        return self._head(hidden, part.size - 1)

    def token(self, token: int, past: int) -> Array:
        entry, _ = self.info.generate_entry(past)
        ids = np.full((1, self.info.step_rows), token, self.info.ids_dtype)
        return self._head(self._device.run(entry, {"input_ids": ids}, n_past=past, n_new=1)["hidden"], 0)

    def _head(self, hidden: Array, row: int) -> Array:
        rows = np.zeros((1, self.info.step_rows, hidden.shape[-1]), hidden.dtype)
        rows[:, 0] = hidden[:, row]
        logits: Array = self._device.run("head", {"hidden": rows})["logits"].reshape(self.info.step_rows, -1)[0]
        return logits


def open_runner(name: str, folder: Path, blob: Path, capacity: int, threads: int) -> Runner:
    """A runner by its name. Errors: NoPlainForm; ImportError without onnxruntime."""
    if name == OWN:
        return Npuc(blob)
    return Ort(folder, threads) if name == "onnxruntime" else Plain(folder, capacity)
