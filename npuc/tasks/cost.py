"""The time of a scheduled program on any machine, before it is a blob and without data.

A numbered unit (vector.1, ub.1) has the costs of its kind, and the scalar unit of its number issues its tasks where
the machine has one. Tasks with a device predicate act as the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.tasks.graph import CallOp, FillOp, MmaOp, Region, Task
from npuc.tasks.moves import kind_of, moves_of
from npuc.tasks.program import EntryProgram
from npurt.exec.barriers import Sync
from npurt.shave.program import parse
from npurt.target.model import Engine, Memory, Target
from npurt.timing import PS, Costs, Issue, Job, Shared
from npurt.timing.banks import store_cycles
from npurt.timing.compute import Products, ProgramTime, product_seconds, program_time
from npurt.timing.transfers import transfer_costs

Taken = bool | Callable[[Task], bool]
"""Whether the device predicates hold: all alike, or asked for each task that has one."""


@dataclass(frozen=True)
class _Seconds:
    """Of each task, [tasks] float64: work, the part of it that bank conflicts cost, latency, and the full rate in
    bytes per second."""

    work: np.ndarray
    conflicts: np.ndarray
    latency: np.ndarray
    demand: np.ndarray


def program_job(
    program: EntryProgram, target: Target, step: Mapping[str, int] | None = None, *, taken: Taken = True
) -> Job:
    """A job for `npurt.timing.simulate`.

    step: n_past and n_new, by default a full cache and all rows. Errors: KeyError for an engine or a route that the
    target has not.
    """
    values = {"n_past": program.capacity, "n_new": program.rows} if step is None else step
    queues = list(dict.fromkeys(program.queues))
    engines = [target.engines[kind_of(task.engine, target.engines)] for task in program.tasks]
    active = np.array([_acts(task, values, taken) for task in program.tasks], np.bool_)
    shared, pools = _pools(program, target, engines, active)
    found = _seconds(program, target, engines, values)
    issue = _issue(program, target, queues)
    launch = np.array([engine.launch for engine in engines]) * active
    setup = launch if issue is not None else launch + target.sync.issue
    number = {name: at for at, name in enumerate(queues)}
    by_queue = dict(zip(program.queues, engines, strict=True))
    return Job(
        tuple(queues), np.array([number[queue] for queue in program.queues], np.int64),
        Costs(_ps(setup), _ps(found.latency * active), _ps(found.work * active), _ps(found.conflicts * active), pools,
              np.rint(found.demand).astype(np.int64)),
        [Sync(sync.wait, sync.post, sync.start_after) for sync in program.sync],
        [(barrier.id, barrier.producers, barrier.consumers) for barrier in program.barriers],
        shared, tuple(by_queue[queue].outstanding for queue in queues), int(_ps(target.sync.latency)), issue,
    )  # fmt: skip


def _acts(task: Task, step: Mapping[str, int], taken: Taken) -> bool:
    if task.flag is not None and task.flag.taken != (taken if isinstance(taken, bool) else taken(task)):
        return False
    return task.when is None or task.when.holds(step)


def _seconds(program: EntryProgram, target: Target, engines: Sequence[Engine], step: Mapping[str, int]) -> _Seconds:
    tasks, count = program.tasks, len(program.tasks)
    work, conflicts, latency, demand = (np.zeros(count) for _ in range(4))
    products = [at for at, task in enumerate(tasks) if isinstance(task.op, MmaOp)]
    for engine in target.engines.values():
        mine = [at for at in products if engines[at] is engine]
        if mine:
            work[mine] = product_seconds(_products([tasks[at] for at in mine]), engine, target.matrix)
    code: dict[tuple[bytes, str], ProgramTime] = {}
    moves = []
    for at, (task, engine) in enumerate(zip(tasks, engines, strict=True)):
        if isinstance(task.op, CallOp) and engine.kind == "vector":
            key = task.op.code, engine.name
            if key not in code:
                code[key] = program_time(parse(task.op.code), engine, target.memories[engine.writes[0]])
            work[at], conflicts[at] = code[key].seconds, code[key].conflicts
        elif engine.kind == "vector":
            time = _rearranged(task, engine, target)
            work[at], conflicts[at] = time.seconds, time.conflicts
        elif not isinstance(task.op, MmaOp | CallOp):
            moves.append(at)
    transfers = transfer_costs(moves_of([tasks[at] for at in moves], step, target), target)
    rates = np.array([route.rate for route in transfers.routes] or [0.0])
    times = [_rounds(tasks[at], engines[at]) for at in moves]
    work[moves], latency[moves] = transfers.seconds * times, transfers.latency
    demand[moves] = rates[transfers.route]
    return _Seconds(work, conflicts, latency, demand)


def _rounds(task: Task, engine: Engine) -> int:
    """How often the engine goes for the destinations of one transfer."""
    return -(-len(task.writes) // engine.destinations)


def _rearranged(task: Task, engine: Engine, target: Target) -> ProgramTime:
    """A copy or fill by the vector unit: a load and a store of every vector, stores in as many cycles as banks ask."""
    sink = task.writes[0]
    vectors = -(-sink.nbytes // engine.bytes_per_cycle)
    second = vectors / engine.units / engine.clock
    if isinstance(task.op, FillOp):
        return ProgramTime(engine.cycles["store"] * second, 0.0)
    source, memory = task.reads[0], target.memories[kind_of(sink.buffer.memory, target.memories)]
    times = store_cycles(sink.shape, source.stride, sink.stride, sink.dtype.nbytes, memory, engine.bytes_per_cycle)
    lost = max(0.0, times - engine.cycles["store"])
    cycles = engine.cycles["load"] + engine.cycles["store"] + lost
    return ProgramTime(cycles * second, lost * second)


def _products(tasks: Sequence[Task]) -> Products:
    rows: list[tuple[int, ...]] = []
    for task in tasks:
        a, b, c = task.reads[0], task.reads[1], task.writes[0]
        batch = a.shape[0] if a.rank == 3 else 1
        assert isinstance(task.op, MmaOp)
        kinds = a.dtype, task.op.codes or b.dtype, c.dtype
        rows.append((batch, c.shape[-2], c.shape[-1], a.shape[-1], *kinds, task.op.group))
    return Products(*np.array(rows, np.int64).T)


def _issue(program: EntryProgram, target: Target, queues: Sequence[str]) -> Issue | None:
    """The scalar unit of its number issues a task, where the machine has scalar units."""
    scalars = [engine for engine in target.engines.values() if engine.kind == "scalar"]
    if not scalars:
        return None
    units: dict[str, int] = {}
    unit = [
        units.setdefault(task.engine[len(kind_of(task.engine, target.engines)) :], len(units)) for task in program.tasks
    ]
    own = [f"{scalars[0].queue}{number}" for number in units]
    return Issue(
        np.array(unit, np.int64),
        tuple(queues.index(queue) if queue in queues else -1 for queue in own),
        int(_ps(target.sync.issue)),
    )


def _pools(
    program: EntryProgram, target: Target, engines: Sequence[Engine], active: np.ndarray
) -> tuple[tuple[Shared, ...], np.ndarray]:
    """The ways and the banks that transfers share, and for each task [tasks, k] the numbers of those that it uses.

    A transfer uses a bank for as long as it lasts, and several where it spans them.
    """
    shared = [Shared(round(pool.rate)) for pool in target.pools.values()]
    names = {name: at for at, name in enumerate(target.pools)}
    banks: dict[tuple[str, int], int] = {}
    rows: list[list[int]] = []
    for task, engine, acts in zip(program.tasks, engines, active.tolist(), strict=True):
        row: list[int] = []
        if acts and engine.kind == "dma":
            sink = task.writes[0]
            ends = [] if isinstance(task.op, FillOp) else [task.reads[0]]
            if ends:
                way = target.routes[tuple(kind_of(r.buffer.memory, target.memories) for r in (ends[0], sink))]  # type: ignore[index]
                row += [names[way.pool]] if way.pool else []
            for region in (*ends, sink):
                memory = target.memories[kind_of(region.buffer.memory, target.memories)]
                for bank in _banks(region, memory, program):
                    key = region.buffer.memory, bank
                    if key not in banks:
                        banks[key] = len(shared)
                        shared.append(Shared(round(memory.bank_rate), bank=True))
                    row.append(banks[key])
        rows.append(row)
    width = max(map(len, rows), default=0) or 1
    table = np.array([row + [-1] * (width - len(row)) for row in rows], np.int64).reshape(len(rows), width)
    return tuple(shared), table


def _banks(region: Region, memory: Memory, program: EntryProgram) -> range:
    """The banks, equal parts of the memory, that the region touches."""
    if memory.bank_groups > 1 or memory.banks == 1 or not memory.bank_rate:
        return range(0)
    base = program.offsets.get(region.buffer, 0)
    low, high = region.span
    size = memory.bytes // memory.banks
    return range((base + low) // size, (base + high - 1) // size + 1)


def _ps(seconds: np.ndarray | float) -> np.ndarray:
    return np.asarray(np.rint(np.asarray(seconds) * PS), np.int64)
