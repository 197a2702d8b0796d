"""A device that says how far an answer is, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npuc.cli.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from npurt.llm.protocol import RunsEntries

    Tensors = Mapping[str, NDArray[np.generic]]


class AnsweringDevice:
    """Passes everything on to a device, and says so.

    prompt: tokens of the prompt. answer: tokens wanted, or None where the answer itself is seen as it comes: progress
    then ends with the prompt, so that it does not write into the answer.
    """

    def __init__(self, device: RunsEntries, progress: Progress, prompt: int, answer: int | None) -> None:
        self._device, self._progress, self._prompt, self._answer = device, progress, prompt, answer

    def run(self, entry: str, inputs: Tensors, *, n_past: int = 0, n_new: int | None = None) -> Tensors:
        if n_past < self._prompt:
            if entry != "head":
                self._progress(f"prompt, {n_past} of {self._prompt} tokens", n_past / self._prompt)
        elif self._answer is not None:
            done = n_past - self._prompt + 1
            self._progress(f"answer, {done} of {self._answer} tokens", min(done / self._answer, 1.0))
        outputs = self._device.run(entry, inputs, n_past=n_past, n_new=n_new)
        if self._answer is None and entry != "head" and n_past < self._prompt <= n_past + (n_new or 0):
            self._progress.close()
        return outputs

    def reset(self) -> None:
        self._device.reset()
