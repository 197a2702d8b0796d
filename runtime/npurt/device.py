"""A device that runs the entries of one image, in exact mode: each task from its record, on byte-accurate memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npurt.abi.records import STEP_BYTES, BaseKind, Step
from npurt.errors import DeviceError
from npurt.exec.interpreter import Hook
from npurt.exec.memory import AddressSpace, Bases
from npurt.exec.prepared import PreparedEntry
from npurt.host.run import check_whole, run_program
from npurt.image import Entry, Image
from npurt.metadata import Port, State
from npurt.ports import check_inputs, from_device, to_device
from npurt.relocate import apply_base
from npurt.shave.machine import prepare

_BOUND_BY_CALLER = (BaseKind.INPUT, BaseKind.OUTPUT, BaseKind.STATE)


class Device:
    """Memory, addresses and the relocated tables of one image. Not to be used by two threads at once.

    Inputs, outputs and states lie in buffers of the device until `bind` puts a caller's buffer in their place.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self._space = AddressSpace()
        self._bases = image.tables.bases.copy()
        self._memory: dict[int, np.ndarray] = {}
        self._address: dict[int, int] = {}
        self._prepared: dict[str, PreparedEntry] = {}
        self._programs = [prepare(program) for program in image.tables.programs]
        self._rows = {name: row for row, name in enumerate(image.tables.base_names)}
        self._states = {state.id: state for state in image.metadata.states}
        scratch = _zeros(int(self._bases["size"][image.base_rows(BaseKind.SCRATCH)[0]]))
        sections = {image.weights_section: image.weights, image.scratch_section: scratch}
        section_address = {section: self._space.place(memory) for section, memory in sections.items()}
        for reloc in image.relocations:
            if reloc.section is not None:
                apply_base(self._bases, reloc, section_address[reloc.section])
                self._memory[reloc.row] = sections[reloc.section][reloc.offset :]
            else:
                self._put(reloc.row, _zeros(self._bound_bytes(reloc.row)))
        self._step = self._memory[image.base_rows(BaseKind.STEP)[0]][:STEP_BYTES].view("<i4")
        for state in image.metadata.states:
            if state.initial is not None:  # the others are zero already, and large
                self._reset(state)

    def run(
        self,
        entry: str,
        inputs: Mapping[str, np.ndarray],
        *,
        n_past: int = 0,
        n_new: int | None = None,
        hooks: Sequence[Hook] = (),
    ) -> dict[str, np.ndarray]:
        """Runs an entry, or the program of entries and host steps by its name. Returns its outputs by name, as new
        arrays in the element types of the graph.

        inputs: by name, in the shapes of the ports, any number type: rounded or saturated to the device's.
        n_past: valid rows of the cache before the run; n_new: valid rows of the input, None for all. States change in
        place. Errors: DeviceError, before anything has run.
        """
        program = self.image.host
        if program is not None and entry == program.name:
            check_whole(program.name, n_past, n_new)
            return run_program(program, self.image, lambda part, given: self.run(part, given, hooks=hooks), inputs)
        chosen = self._entry(entry)
        step = step_values(chosen, n_past, n_new)
        check_inputs(entry, chosen.ports.inputs, inputs)
        for port in chosen.ports.inputs:
            view = self._port(entry, "in", port)
            if not view.flags.writeable:
                raise DeviceError(f"entry {entry}, input {port.name!r}: a read-only buffer is bound, use run_bound")
            view[...] = to_device(np.asarray(inputs[port.name]), port.dtype)
        self._run(chosen, step, hooks)
        return {
            port.name: from_device(self._port(entry, "out", port), port.dtype, port.graph_dtype)
            for port in chosen.ports.outputs
        }

    def run_bound(self, entry: str, *, n_past: int = 0, n_new: int | None = None, hooks: Sequence[Hook] = ()) -> None:
        """Runs an entry on what its bound buffers hold; results stay in the bound outputs."""
        chosen = self._entry(entry)
        self._run(chosen, step_values(chosen, n_past, n_new), hooks)

    def bind(self, symbol: str, buffer: np.ndarray) -> None:
        """Puts a caller's buffer in the place of an input, an output or a state.

        symbol: ``<entry>.in.<name>``, ``<entry>.out.<name>`` or ``state.<id>``. buffer: C-contiguous, in device element
        types, of the base's size in bytes, writable unless it is an input. Nothing is copied. DeviceError else.
        """
        row = self._rows.get(symbol, -1)
        if row < 0 or self._bases["kind"][row] not in _BOUND_BY_CALLER:
            names = [name for name, at in self._rows.items() if self._bases["kind"][at] in _BOUND_BY_CALLER]
            raise DeviceError(f"nothing to bind is called {symbol!r}: there are {', '.join(names) or 'none'}")
        size = self._bound_bytes(row)
        if not buffer.flags.c_contiguous or buffer.nbytes != size:
            raise DeviceError(f"{symbol}: a C-contiguous buffer of {size} bytes is due, {buffer.nbytes} were given")
        if not buffer.flags.writeable and self._bases["kind"][row] != BaseKind.INPUT:
            raise DeviceError(f"{symbol}: the buffer is read-only and the device writes it")
        self._space.release(self._address[row])
        self._put(row, buffer.reshape(-1).view(np.uint8))
        self._prepared.clear()

    def state(self, id: str) -> np.ndarray:
        """A copy of a state, in the storage type of device memory (bf16 as uint16)."""
        return self._state_view(id).copy()

    def set_state(self, id: str, values: np.ndarray) -> None:
        """Overwrites a state; values in its shape, rounded or saturated to the device's element type."""
        view = self._state_view(id)
        if np.shape(values) != view.shape:
            raise DeviceError(f"state {id!r}: the shape {list(np.shape(values))} was given, {list(view.shape)} is due")
        view[...] = to_device(np.asarray(values), self._states[id].dtype)

    def reset(self) -> None:
        """All states back to their initial values."""
        for state in self._states.values():
            self._reset(state)

    def _reset(self, state: State) -> None:
        memory = self._memory[self._rows[f"state.{state.id}"]][: state.nbytes]
        memory[...] = 0 if state.initial is None else self.image.weights[state.initial : state.initial + state.nbytes]

    def _run(self, entry: Entry, step: dict[Step, int], hooks: Sequence[Hook]) -> None:
        self._step[...] = 0
        for field, value in step.items():
            self._step[field] = value
        prepared = self._prepared.get(entry.name)
        if prepared is None:
            find = Bases(self._bases, self._space)
            prepared = PreparedEntry(self.image, entry, self._bases, find, self._programs)
            self._prepared[entry.name] = prepared
        prepared.run(step, hooks)

    def _entry(self, name: str) -> Entry:
        entry = self.image.entries.get(name)
        if entry is None:
            raise DeviceError(f"no entry {name!r}: there are {', '.join(self.image.entries)}")
        return entry

    def _put(self, row: int, memory: np.ndarray) -> None:
        """Gives a base its memory and address: what a bind relocation does."""
        reloc = self.image.relocations[row]
        address = self._space.place(memory)
        self._address[row], self._memory[row] = address, memory[reloc.offset :]
        apply_base(self._bases, reloc, address)

    def _bound_bytes(self, row: int) -> int:
        return int(self._bases["size"][row]) + self.image.relocations[row].offset

    def _port(self, entry: str, way: str, port: Port) -> np.ndarray:
        return _typed(self._memory[self._rows[f"{entry}.{way}.{port.name}"]], port)

    def _state_view(self, id: str) -> np.ndarray:
        state = self._states.get(id)
        if state is None:
            raise DeviceError(f"no state {id!r}: there are {', '.join(self._states) or 'none'}")
        return _typed(self._memory[self._rows[f"state.{id}"]], state)


def _zeros(size: int) -> np.ndarray:
    try:
        return np.zeros(size, np.uint8)
    except MemoryError:
        raise DeviceError(f"the blob's buffers need {size} more bytes, which this host does not give") from None


def _typed(memory: np.ndarray, what: Port | State) -> np.ndarray:
    return memory[: what.nbytes].view(what.dtype.storage).reshape(what.shape)


def step_values(entry: Entry, n_past: int, n_new: int | None) -> dict[Step, int]:
    new = entry.rows if n_new is None else n_new
    if not 0 <= n_past <= entry.max_past:
        raise DeviceError(f"entry {entry.name}: n_past {n_past}, 0 to {entry.max_past} are possible")
    if not 0 <= new <= entry.rows:
        raise DeviceError(f"entry {entry.name}: n_new {new}, 0 to {entry.rows} are possible")
    if entry.ports.whole_runs and new != entry.rows:
        raise DeviceError(f"entry {entry.name}: n_new {new}, only {entry.rows} is possible: it replaces a state")
    return {Step.N_PAST: n_past, Step.N_NEW: new}
