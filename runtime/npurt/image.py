"""A loaded blob: its tables, programs, weights and metadata, all verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npurt.abi.records import NO_NODE, BaseKind, Queue, Step
from npurt.elf import StringTable
from npurt.host.program import HostProgram
from npurt.metadata import EntryPorts, Metadata
from npurt.shave.program import Program


@dataclass(frozen=True)
class StepPatch:
    """A field of a DMA record that follows the step block: see npurt.abi.blob.Reloc.

    row: of the DMA table. field: "src_offset", "dst_offset" or "valid". symbol: the step field S. addend: A.
    """

    row: int
    field: str
    symbol: Step
    addend: int


@dataclass(frozen=True)
class BaseReloc:
    """A relocation of one base's address. section: index of the ELF section for a static one, None for a bound one.

    offset: added to the address of the section or of the bound buffer.
    """

    row: int
    section: int | None
    offset: int


@dataclass(frozen=True)
class Tables:
    """The blob-wide tables, writable copies. base_names: the symbol of each base; programs: of each kernel row."""

    bases: np.ndarray
    base_names: tuple[str, ...]
    barriers: np.ndarray
    dma: np.ndarray
    dpu: np.ndarray
    shave: np.ndarray
    shave_args: np.ndarray
    programs: tuple[Program, ...]
    kernel_names: tuple[str, ...]
    names: StringTable

    def node(self, offset: int) -> str:
        """Name of a task's graph node, "" where it belongs to none."""
        return "" if offset == NO_NODE else self.names[offset]


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One task of an entry. table: "dma", "dpu" or "shave"; row: in that table.

    index: among the entry's tasks, those of one table after the other.
    """

    table: str
    row: int
    queue: Queue
    node: str
    index: int

    def __str__(self) -> str:
        return f"{self.queue.name.lower()} task {self.row}" + (f" ({self.node})" if self.node else "")


@dataclass(frozen=True)
class Entry:
    """One entry. dma, dpu, shave, barriers, steps: row ranges of the tables and of `Image.steps`.

    max_past: largest n_past for which every access stays inside its buffer; at most `capacity`.
    tasks: in an order that the queues and barriers allow.
    """

    name: str
    rows: int
    capacity: int
    dma: range
    dpu: range
    shave: range
    barriers: range
    steps: range
    ports: EntryPorts
    max_past: int
    tasks: tuple[TaskRef, ...]


@dataclass(frozen=True)
class Image:
    """A verified blob. weights: uint8, read-only, mapped from the file where it was loaded by path.

    relocations: of every base, once each. assets: files for the session by name.
    host: the program that its entries and steps of the host make up together, where there is one.
    """

    version: tuple[int, int]
    metadata: Metadata
    tables: Tables
    entries: Mapping[str, Entry]
    relocations: tuple[BaseReloc, ...]
    steps: tuple[StepPatch, ...]
    weights: np.ndarray
    weights_section: int
    scratch_section: int
    assets: Mapping[str, bytes]
    host: HostProgram | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata as the JSON object that it is in the blob."""
        return self.metadata.raw

    def base_rows(self, kind: BaseKind) -> list[int]:
        """Rows of the base table of one kind."""
        return [int(row) for row in np.flatnonzero(self.tables.bases["kind"] == kind)]
