"""Timing-only runs of a blob's entries: no data, no weights, no outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npurt.abi.dtypes import DType
from npurt.abi.records import FLAGS, PREDICATE_FIELDS, RANGES, BaseKind, Predicate, Queue, Step
from npurt.device import step_values
from npurt.errors import TargetError
from npurt.exec.order import read_sync
from npurt.image import Entry, Image
from npurt.target.model import Engine, Target
from npurt.timing.compute import product_seconds, program_time, record_products
from npurt.timing.job import PS, Costs, Job, Shared
from npurt.timing.machine import simulate
from npurt.timing.result import QueueInfo, Timing, Traffic
from npurt.timing.transfers import Transfers, record_moves, transfer_costs

QUEUE_NAMES = {Queue.DMA_IN: "dma.in", Queue.DMA_OUT: "dma.out", Queue.DPU: "dpu", Queue.SHAVE: "shave"}
MEMORY_CLASS = {
    BaseKind.CMX: "cmx", BaseKind.CONST: "weights", BaseKind.SCRATCH: "scratch", BaseKind.STEP: "step",
    BaseKind.INPUT: "inputs", BaseKind.OUTPUT: "outputs", BaseKind.STATE: "states",
}  # fmt: skip


class EntryTimer:
    """One entry on one machine, ready for runs at any step. Errors: TargetError where the machine has not the engines
    that a blob's records name."""

    def __init__(self, image: Image, entry: Entry, target: Target) -> None:
        self._entry, self._target, self._tables = entry, target, image.tables
        self._engines = _engines(target)
        ranges = {"dma": entry.dma, "dpu": entry.dpu, "shave": entry.shave}
        dma, dpu, shave = (getattr(image.tables, name)[rows.start : rows.stop] for name, rows in ranges.items())
        self._dma: np.ndarray = dma.copy()
        self._queue = np.concatenate(
            [dma["queue"].astype(np.int64), np.full(len(dpu), Queue.DPU), np.full(len(shave), Queue.SHAVE)]
        )
        self._kinds = image.tables.bases["kind"]
        self._sync = read_sync(image.tables, ranges)
        barriers = image.tables.barriers[entry.barriers.start : entry.barriers.stop]
        self._barriers = [(number, producers, consumers) for number, producers, consumers, _ in barriers.tolist()]
        self._predicate = np.concatenate([records["pred"] for records in (dma, dpu, shave)])
        self._above = np.concatenate([records["pred_value"].astype(np.int64) for records in (dma, dpu, shave)])
        self._most = self._above + np.concatenate([records["pred_base"] for records in (dma, dpu, shave)])
        patches = [image.steps[i] for i in entry.steps]
        cut = [patch for patch in patches if patch.field == "valid"]
        self._cut = np.array([(p.row - entry.dma.start, p.symbol, p.addend) for p in cut], np.int64).reshape(-1, 3)
        vector, memory = self._engines[Queue.SHAVE], target.memories["cmx"]
        programs = [program_time(program, vector, memory) for program in image.tables.programs]
        seconds, lost = (np.array([getattr(time, name) for time in programs] or [0.0])[shave["kernel"]]
                         for name in ("seconds", "conflicts"))  # fmt: skip
        products = product_seconds(record_products(dpu), self._engines[Queue.DPU], target.matrix)
        self._compute = np.concatenate([products, seconds])
        self._lost = np.concatenate([np.zeros(len(dma) + len(dpu)), lost])
        self._nodes = _by_index(entry)
        self._types = tuple(np.unique(dpu["a_type"]).tolist())

    def run(
        self, n_past: int | None = None, n_new: int | None = None, *, held: bool = True, taken: bool | np.ndarray = True
    ) -> Timing:
        """n_past: rows of the cache before the step, None for a full one; n_new: valid rows, None for all.

        held: a queue's port stands still for the latency of a transfer; else it goes on to the next. taken: whether
        flags are set, for all tasks with a device predicate alike; or which tasks act, bool [tasks] by index, as a run
        on real data has shown (`npurt.exec.interpreter.Actives`). DeviceError for an impossible step.
        """
        step = step_values(self._entry, self._entry.max_past if n_past is None else n_past, n_new)
        records = self._records(step)
        active = self._active(step, taken)
        target = self._target
        transfers = transfer_costs(record_moves(records, self._kinds, target), target)
        job = self._job(transfers, active)
        info = [
            QueueInfo(name, self._engines[queue].name, self._engines[queue].kind) for queue, name in QUEUE_NAMES.items()
        ]
        traffic = _traffic(records, transfers, active[: len(records)], self._kinds)
        times = simulate(job, held=held)
        return Timing(
            self._entry.name, dict(step), held, tuple(info), job, times, active, self._nodes, traffic,
            target.assumed(self._figures(transfers, held)),
        )  # fmt: skip

    def _records(self, step: Mapping[Step, int]) -> np.ndarray:
        """The DMA records with their valid rows in this step; offsets do not matter here."""
        if len(self._cut):
            row, field, addend = self._cut.T
            values = np.array([step.get(Step(s), 0) for s in range(len(Step))])[field] + addend
            most = self._dma["size"][row, self._dma["row_dim"][row]]
            self._dma["valid"][row] = np.clip(values, 0, most)
        return self._dma

    @property
    def flagged(self) -> int:
        """Tasks with a device predicate."""
        return int(np.isin(self._predicate, FLAGS).sum())

    def _active(self, step: Mapping[Step, int], taken: bool | np.ndarray) -> np.ndarray:
        if isinstance(taken, np.ndarray):
            return taken
        idle = self._predicate == (Predicate.FLAG_Z if taken else Predicate.FLAG_NZ)
        for code, field in PREDICATE_FIELDS.items():
            outside = (step[field] <= self._above) | ((step[field] > self._most) & (code in RANGES))
            idle |= (self._predicate == code) & outside
        return np.asarray(~idle)

    def _job(self, transfers: Transfers, active: np.ndarray) -> Job:
        """A task whose predicate is false costs its issue alone."""
        target, count = self._target, len(self._queue)
        moves = len(transfers.seconds)
        work, latency, pool, demand = np.zeros(count), np.zeros(count), np.full((count, 1), -1), np.zeros(count)
        work[:moves], work[moves:] = transfers.seconds, self._compute
        latency[:moves] = transfers.latency
        names = tuple(target.pools)
        for number, route in enumerate(transfers.routes):
            if route.pool:
                chosen = np.flatnonzero(transfers.route == number)
                pool[chosen], demand[chosen] = names.index(route.pool), route.rate
        launch = np.array([self._engines[queue].launch for queue in QUEUE_NAMES])[self._queue] * active
        pool[~active] = -1
        return Job(
            tuple(QUEUE_NAMES.values()), self._queue,
            Costs(_ps(target.sync.issue + launch), _ps(latency * active), _ps(work * active),
                  _ps(self._lost * active), pool, np.rint(demand).astype(np.int64)),
            self._sync, self._barriers, tuple(Shared(round(pool.rate)) for pool in target.pools.values()),
            tuple(self._engines[queue].outstanding for queue in QUEUE_NAMES), int(_ps(target.sync.latency)),
        )  # fmt: skip

    def _figures(self, transfers: Transfers, held: bool) -> list[str]:
        """Keys of the target's numbers that a run rests on."""
        keys = [f"routes.{way.source}->{way.destination}" for way in transfers.routes]
        keys += [f"pools.{way.pool}" for way in transfers.routes if way.pool] + ["sync", "matrix"]
        matrix, vector = self._engines[Queue.DPU].name, self._engines[Queue.SHAVE].name
        fields = ("clock", "launch", "operand_rate", *(f"macs_per_cycle.{DType(code).label}" for code in self._types))
        keys += [f"engines.{matrix}.{field}" for field in fields]
        moves = ("clock", "max_transfer", "fill_rate", *(() if held else ("outstanding", "gather_rows")))
        keys += [f"engines.{self._engines[q].name}.{field}" for q in (Queue.DMA_IN, Queue.DMA_OUT) for field in moves]
        return [*keys, *([f"engines.{vector}"] if (self._queue == Queue.SHAVE).any() else [])]


def time_entry(image: Image, entry: str, target: Target, n_past: int | None = None, *, held: bool = True) -> Timing:
    """One timing-only run of the entry of that name."""
    return EntryTimer(image, image.entries[entry], target).run(n_past, held=held)


def _engines(target: Target) -> dict[Queue, Engine]:
    by_queue = {engine.queue: engine for engine in target.engines.values()}
    missing = [name for name in QUEUE_NAMES.values() if name not in by_queue]
    if missing or "cmx" not in target.memories:
        raise TargetError(
            f"target {target.name} cannot run a blob: it has no {', '.join(missing) or 'memory cmx'}; its queues are "
            f"{', '.join(by_queue)}"
        )
    return {queue: by_queue[name] for queue, name in QUEUE_NAMES.items()}


def _ps(seconds: np.ndarray | float) -> np.ndarray:
    return np.asarray(np.rint(np.asarray(seconds) * PS), np.int64)


def _by_index(entry: Entry) -> tuple[str, ...]:
    """The graph node of each task, by the task's index."""
    nodes = [""] * len(entry.tasks)
    for task in entry.tasks:
        nodes[task.index] = task.node
    return tuple(nodes)


def _traffic(records: np.ndarray, transfers: Transfers, active: np.ndarray, kinds: np.ndarray) -> tuple[Traffic, ...]:
    """Transfers and bytes from each class of memory to each."""
    place = np.append(kinds, 0)
    last = len(kinds)
    source = place[np.minimum(records["src_base"], last)]
    sink = place[np.minimum(records["dst_base"], last)]
    found = []
    for a, b in sorted({*zip(source[active].tolist(), sink[active].tolist(), strict=True)}):
        chosen = active & (source == a) & (sink == b)
        names = [MEMORY_CLASS[BaseKind(kind)] if kind else "fill" for kind in (a, b)]
        found.append(
            Traffic(names[0], names[1], int(chosen.sum()), int(transfers.read[chosen].sum()),
                    int(transfers.written[chosen].sum()))
        )  # fmt: skip
    return tuple(found)
