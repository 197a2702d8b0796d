"""A device in fast mode: the protocol of `npurt.Device`, values within a tolerance of exact mode's.

States live in the shadow of their memory, in float32, and are device types at the edges only: `state` and `set_state`
convert. A bound buffer of f16 or bf16 keeps real bytes: it is read into the shadow before each run and written from it
after. An entry that the prepared form cannot run goes to an exact device, and `notes` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npurt.abi.records import STEP_BYTES, BaseKind, Step
from npurt.collector import collection_paused
from npurt.device import Device, step_values
from npurt.errors import DeviceError
from npurt.exec.interpreter import Hook
from npurt.fast.context import Context
from npurt.fast.lift import LinkError
from npurt.fast.link import LinkedEntry, LinkOptions, link
from npurt.fast.memory import Memory, default_budget
from npurt.fast.refs import Plane, Ref, make_ref
from npurt.host.run import check_whole, run_program
from npurt.image import Entry, Image
from npurt.metadata import Port, State
from npurt.ports import check_inputs, from_device, to_device

_BOUND_BY_CALLER = (BaseKind.INPUT, BaseKind.OUTPUT, BaseKind.STATE)
DEFAULTS = LinkOptions()


def open_device(
    image: Image, mode: str, options: LinkOptions = DEFAULTS, warn: Callable[[str], None] | None = None
) -> Device | FastDevice:
    """A device of an image. mode: "exact" or "fast"; DeviceError else. warn: as for `FastDevice`."""
    if mode not in ("exact", "fast"):
        raise DeviceError(f"no mode {mode!r}: there are exact and fast")
    return FastDevice(image, options, warn) if mode == "fast" else Device(image)


class FastDevice:
    """Memory and linked entries of one image. Not to be used by two threads at once.

    warn: is told once of each entry that runs in exact mode, and why; `notes` has the same lines.
    """

    def __init__(
        self, image: Image, options: LinkOptions = DEFAULTS, warn: Callable[[str], None] | None = None
    ) -> None:
        self.image, self.options, self._warn = image, options, warn
        self.notes: list[str] = []
        bases = image.tables.bases
        self._kinds = [int(kind) for kind in bases["kind"]]
        self._rows = {name: row for row, name in enumerate(image.tables.base_names)}
        self._states = {state.id: state for state in image.metadata.states}
        constant = image.base_rows(BaseKind.CONST)[0]
        memory: dict[int, np.ndarray] = {}
        for reloc in image.relocations:
            size = int(bases["size"][reloc.row])
            if reloc.section == image.weights_section:
                memory[reloc.row] = image.weights[reloc.offset : reloc.offset + size]
            else:
                memory[reloc.row] = np.zeros(size, np.uint8)
        self._step_row = image.base_rows(BaseKind.STEP)[0]
        budget = default_budget() if options.budget is None else options.budget
        self._memory = Memory(memory, constant, budget)
        self._context = Context(self._memory, options.rounding == "grid")
        self._homes = self._find_homes()
        self._linked: dict[str, LinkedEntry | None] = {}
        self._exact: Device | None = None
        self._bound: set[int] = set()
        self.reset()

    @property
    def stats(self) -> dict[str, object]:
        """decoded_bytes of `budget_bytes` of constants, and of each linked entry its tasks, calls and seconds."""
        entries = {name: vars(linked.stats) for name, linked in self._linked.items() if linked is not None}
        return {"decoded_bytes": self.decoded_bytes, "budget_bytes": self.budget_bytes, "entries": entries}

    @property
    def decoded_bytes(self) -> int:
        """Bytes of float32 that narrow constants take so far."""
        return self._memory.decoded

    @property
    def budget_bytes(self) -> int:
        """The most that they may take; constants beyond it are decoded on use."""
        return self._memory.budget

    def prepare(self, entry: str) -> None:
        """Links an entry now instead of at its first run."""
        self._link(self._entry(entry))

    def run(
        self,
        entry: str,
        inputs: Mapping[str, np.ndarray],
        *,
        n_past: int = 0,
        n_new: int | None = None,
        hooks: Sequence[Hook] = (),
    ) -> dict[str, np.ndarray]:
        """As `npurt.Device.run`; hooks see no tasks here and are refused."""
        program = self.image.host
        if program is not None and entry == program.name:
            check_whole(program.name, n_past, n_new)
            return run_program(program, self.image, lambda part, given: self.run(part, given, hooks=hooks), inputs)
        chosen = self._entry(entry)
        step = step_values(chosen, n_past, n_new)
        check_inputs(entry, chosen.ports.inputs, inputs)
        for port in chosen.ports.inputs:
            self._write(self._rows[f"{entry}.in.{port.name}"], port, np.asarray(inputs[port.name]))
        self._run(chosen, step, hooks)
        return {port.name: self._read(self._rows[f"{entry}.out.{port.name}"], port) for port in chosen.ports.outputs}

    def run_bound(self, entry: str, *, n_past: int = 0, n_new: int | None = None, hooks: Sequence[Hook] = ()) -> None:
        """As `npurt.Device.run_bound`."""
        chosen = self._entry(entry)
        self._run(chosen, step_values(chosen, n_past, n_new), hooks)

    def bind(self, symbol: str, buffer: np.ndarray) -> None:
        """As `npurt.Device.bind`. Entries are linked again, so bind once."""
        row = self._rows.get(symbol, -1)
        if row < 0 or self._kinds[row] not in _BOUND_BY_CALLER:
            names = [name for name, at in self._rows.items() if self._kinds[at] in _BOUND_BY_CALLER]
            raise DeviceError(f"nothing to bind is called {symbol!r}: there are {', '.join(names) or 'none'}")
        size = int(self.image.tables.bases["size"][row])
        offset = self.image.relocations[row].offset
        if not buffer.flags.c_contiguous or buffer.nbytes != size + offset:
            raise DeviceError(
                f"{symbol}: a C-contiguous buffer of {size + offset} bytes is due, {buffer.nbytes} were given"
            )
        if not buffer.flags.writeable and self._kinds[row] != BaseKind.INPUT:
            raise DeviceError(f"{symbol}: the buffer is read-only and the device writes it")
        self._memory.put(row, buffer.reshape(-1).view(np.uint8)[offset:])
        self._bound.add(row)
        self._linked.clear()
        if self._exact is not None:
            self._exact.bind(symbol, buffer)

    def state(self, id: str) -> np.ndarray:
        """A copy of a state, in the storage type of device memory (bf16 as uint16)."""
        state, row = self._state(id)
        if row not in self._bound:
            self._to_bytes(row)
        return _typed(self._memory.raw[row], state).copy()

    def set_state(self, id: str, values: np.ndarray) -> None:
        """Overwrites a state; values in its shape, rounded or saturated to the device's element type."""
        state, row = self._state(id)
        if np.shape(values) != state.shape:
            raise DeviceError(f"state {id!r}: the shape {list(np.shape(values))} was given, {list(state.shape)} is due")
        self._write(row, state, np.asarray(values))

    def reset(self) -> None:
        """All states back to their initial values."""
        for state in self._states.values():
            row = self._rows[f"state.{state.id}"]
            first = state.initial
            self._memory.raw[row][...] = 0 if first is None else self.image.weights[first : first + state.nbytes]
            if first is None and row in self._homes and self._homes[row].plane is not Plane.RAW:
                self._memory.shadow(row, self._homes[row].plane)[...] = 0
            else:
                self._from_bytes(row)

    def _run(self, entry: Entry, step: dict[Step, int], hooks: Sequence[Hook]) -> None:
        linked = self._link(entry)
        if linked is None or hooks:
            self._run_exact(entry, step, hooks)
            return
        fault = linked.fault(step)
        if fault is not None:
            raise DeviceError(f"entry {entry.name} with n_past {step[Step.N_PAST]}, n_new {step[Step.N_NEW]}: {fault}")
        self._context.set_step(step)
        block = self._memory.raw[self._step_row][:STEP_BYTES].view("<i4")
        for place, value in step.items():
            block[place] = value
        bound = [row for row in self._bound if row in self._homes and self._homes[row].plane is not Plane.RAW]
        for row in bound:
            self._from_bytes(row)
        linked.run()
        for row in bound:
            if self._kinds[row] != BaseKind.INPUT:
                self._to_bytes(row)

    def _link(self, entry: Entry) -> LinkedEntry | None:
        if entry.name not in self._linked:
            prefixes = (f"{entry.name}.in.", f"{entry.name}.out.", "state.")
            names = self.image.tables.base_names
            homes = {row: home for row, home in self._homes.items() if names[row].startswith(prefixes)}
            try:
                with collection_paused():
                    self._linked[entry.name] = link(self.image, entry, self._context, homes, self.options)
            except LinkError as error:
                self._linked[entry.name] = None
                self.notes.append(f"entry {entry.name} runs in exact mode: {error}")
                if self._warn is not None:
                    self._warn(self.notes[-1])
        return self._linked[entry.name]

    def _run_exact(self, entry: Entry, step: dict[Step, int], hooks: Sequence[Hook]) -> None:
        """The same run on an exact device that shares the buffers of the caller's side."""
        rows = [row for row, kind in enumerate(self._kinds) if kind in _BOUND_BY_CALLER]
        if self._exact is None:
            self._exact = Device(self.image)
            for row in rows:
                memory, offset = self._memory.raw[row], self.image.relocations[row].offset
                if offset == 0:
                    self._exact.bind(self.image.tables.base_names[row], memory)
        for row in rows:
            if row not in self._bound:
                self._to_bytes(row)
        self._exact.run_bound(entry.name, n_past=step[Step.N_PAST], n_new=step[Step.N_NEW], hooks=hooks)
        for row in rows:
            self._from_bytes(row)

    def _find_homes(self) -> dict[int, Ref]:
        """Of each input, output and state all of it, on the plane of its element type."""
        homes = {}
        described: list[tuple[str, Port | State]] = [
            (f"state.{state.id}", state) for state in self.image.metadata.states
        ]
        for entry in self.image.metadata.entries:
            described += [(f"{entry.name}.in.{port.name}", port) for port in entry.inputs]
            described += [(f"{entry.name}.out.{port.name}", port) for port in entry.outputs]
        for name, what in described:
            count = what.nbytes // what.dtype.nbytes
            homes[self._rows[name]] = make_ref(self._rows[name], what.dtype, 0, (count,), (what.dtype.nbytes,))
        return homes

    def _write(self, row: int, what: Port | State, values: np.ndarray) -> None:
        """Values of the caller into a base."""
        home = self._homes[row]
        if home.plane is Plane.RAW or row in self._bound:
            _typed(self._memory.raw[row], what)[...] = to_device(values, what.dtype)
            return
        view = self._memory.view(home).reshape(what.shape)
        if values.dtype == np.float32:
            with np.errstate(all="ignore"):
                self._context.round_now(values, view, what.dtype)
            return
        _typed(self._memory.raw[row], what)[...] = to_device(values, what.dtype)
        self._from_bytes(row)

    def _read(self, row: int, port: Port) -> np.ndarray:
        """An output in the element type of the graph, as a new array."""
        home = self._homes[row]
        if home.plane is Plane.RAW or row in self._bound:
            return from_device(_typed(self._memory.raw[row], port), port.dtype, port.graph_dtype)
        view = self._memory.view(home).reshape(port.shape)
        if port.graph_dtype in ("f32", "bf16", "f64"):
            return view.astype(np.float64 if port.graph_dtype == "f64" else np.float32)
        self._to_bytes(row)
        return from_device(_typed(self._memory.raw[row], port), port.dtype, port.graph_dtype)

    def _from_bytes(self, row: int) -> None:
        """The shadow of a base from its bytes, if it has one."""
        home = self._homes[row]
        if home.plane is not Plane.RAW and home.count:
            self._memory.decode(row, home.plane, *home.hull)

    def _to_bytes(self, row: int) -> None:
        home = self._homes[row]
        if home.plane is not Plane.RAW and home.count:
            self._memory.encode(row, home.plane, *home.hull)

    def _entry(self, name: str) -> Entry:
        entry = self.image.entries.get(name)
        if entry is None:
            raise DeviceError(f"no entry {name!r}: there are {', '.join(self.image.entries)}")
        return entry

    def _state(self, id: str) -> tuple[State, int]:
        state = self._states.get(id)
        if state is None:
            raise DeviceError(f"no state {id!r}: there are {', '.join(self._states) or 'none'}")
        return state, self._rows[f"state.{id}"]


def _typed(memory: np.ndarray, what: Port | State) -> np.ndarray:
    return memory[: what.nbytes].view(what.dtype.storage).reshape(what.shape)
