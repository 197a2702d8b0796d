"""One entry ready to run: a call for each task, built again only where the step block or a binding changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npurt import verify
from npurt.abi.records import Step
from npurt.errors import BlobError, DeviceError
from npurt.exec.dma import prepare_dma
from npurt.exec.dpu import Workspace, prepare_dpu
from npurt.exec.interpreter import Hook, Values, flagged, predicated, run
from npurt.exec.memory import Bases
from npurt.exec.shave import prepare_shave
from npurt.image import Entry, Image
from npurt.relocate import apply_steps
from npurt.shave.machine import Prepared


class PreparedEntry:
    """The calls of one entry on one binding of its bases. programs: prepared, of each kernel row."""

    def __init__(self, image: Image, entry: Entry, bases: np.ndarray, find: Bases, programs: list[Prepared]) -> None:
        self._entry, self._bases, self._find = entry, bases, find
        self._patches = [image.steps[i] for i in entry.steps]
        self._dma = image.tables.dma[entry.dma.start : entry.dma.stop].copy()
        self._first = entry.dma.start
        self._predicates = predicated(entry, image.tables)
        self._flags = flagged(entry, image.tables, find)
        self._stepped = sorted({patch.row for patch in self._patches})
        self._step: dict[Step, int] = {}
        tables, workspace = image.tables, Workspace()
        stepped = set(self._stepped)
        calls: list[Callable[[], None]] = []
        for row in entry.dma:
            calls.append(_not_patched if row in stepped else prepare_dma(tables.dma[row], find))
        calls += [prepare_dpu(tables.dpu[row], find, workspace) for row in entry.dpu]
        calls += [prepare_shave(tables.shave[row], tables, programs, find) for row in entry.shave]
        self._calls = calls

    def run(self, step: Mapping[Step, int], hooks: Sequence[Hook]) -> None:
        """Patches what follows the step block, checks it again, and runs. DeviceError where it leaves its buffer."""
        if self._stepped and step != self._step:
            self._patch(step)
        run(self._entry.tasks, self._predicates, self._flags, step, (Values(self._calls), *hooks))

    def _patch(self, step: Mapping[Step, int]) -> None:
        self._step = {}
        local = [row - self._first for row in self._stepped]
        records = self._dma
        apply_steps(records, self._patches, self._first, step)
        chosen = records[local]
        offsets = np.stack([chosen["src_offset"], chosen["dst_offset"]], axis=1)
        try:
            verify.check_dma(chosen, offsets, chosen["valid"].astype(np.int64), self._bases, self._refuse)
        except BlobError as error:
            values = ", ".join(f"{field.name.lower()} {value}" for field, value in step.items())
            raise DeviceError(f"entry {self._entry.name} with {values}: {error}") from None
        for place, record in zip(local, chosen, strict=True):
            self._calls[place] = prepare_dma(record, self._find)
        self._step = dict(step)

    def _refuse(self, place: int, what: str) -> BlobError:
        return BlobError(f"dma task {self._stepped[place]}: {what}")


def _not_patched() -> None:
    raise AssertionError("a step-dependent task runs after its first patch only")
