"""The time of a scheduled program on any machine, before it is a blob and without data.

A numbered unit (vector.1, ub.1) has the costs of its kind. Tasks with a device predicate act as the caller says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuc.tasks.graph import CallOp, CopyOp, FillOp, GatherOp, MmaOp, Region, ScatterOp, Task
from npuc.tasks.program import EntryProgram
from npurt.exec.barriers import Sync
from npurt.shave.program import parse
from npurt.target.model import Engine, Route, Target
from npurt.timing import PS, Costs, Job
from npurt.timing.banks import store_cycles
from npurt.timing.compute import Products, product_seconds, program_seconds
from npurt.timing.transfers import Moves, transfer_costs


def program_job(
    program: EntryProgram, target: Target, step: Mapping[str, int] | None = None, *, taken: bool = True
) -> Job:
    """A job for `npurt.timing.simulate`.

    step: n_past and n_new, by default a full cache and all rows. taken: whether the device predicates hold. Errors:
    KeyError for an engine or a route that the target has not.
    """
    values = {"n_past": program.capacity, "n_new": program.rows} if step is None else step
    queues = list(dict.fromkeys(program.queues))
    number = {name: at for at, name in enumerate(queues)}
    engines = [target.engines[_kind(task.engine, target.engines)] for task in program.tasks]
    count = len(program.tasks)
    active = np.array([_acts(task, values, taken) for task in program.tasks], np.bool_)
    work, latency, demand = np.zeros(count), np.zeros(count), np.zeros(count)
    pool, pools = np.full(count, -1), list(target.pools)

    products = [at for at, task in enumerate(program.tasks) if isinstance(task.op, MmaOp)]
    for engine in target.engines.values():
        mine = [at for at in products if engines[at] is engine]
        if mine:
            work[mine] = product_seconds(_products([program.tasks[at] for at in mine]), engine, target.matrix)
    code: dict[tuple[bytes, str], float] = {}
    moves = []
    for at, (task, engine) in enumerate(zip(program.tasks, engines, strict=True)):
        if isinstance(task.op, CallOp):
            key = task.op.code, engine.name
            if key not in code:
                code[key] = program_seconds(parse(task.op.code), engine, target.memories[engine.writes[0]])
            work[at] = code[key]
        elif engine.kind == "vector":
            work[at] = _rearranged(task, engine, target)
        elif not isinstance(task.op, MmaOp):
            moves.append(at)
    transfers = transfer_costs(_moves([program.tasks[at] for at in moves], values, target), target)
    work[moves], latency[moves] = transfers.seconds, transfers.latency
    for at, route in zip(moves, (transfers.routes[r] for r in transfers.route.tolist()), strict=True):
        if route.pool and active[at]:
            pool[at], demand[at] = pools.index(route.pool), route.rate
    setup = target.sync.issue + np.array([engine.launch for engine in engines]) * active
    by_queue = dict(zip(program.queues, engines, strict=True))
    return Job(
        tuple(queues), np.array([number[queue] for queue in program.queues], np.int64),
        Costs(_ps(setup), _ps(latency * active), _ps(work * active), pool, np.rint(demand).astype(np.int64)),
        [Sync(sync.wait, sync.post, sync.start_after) for sync in program.sync],
        [(barrier.id, barrier.producers, barrier.consumers) for barrier in program.barriers],
        tuple(round(target.pools[name].rate) for name in pools),
        tuple(by_queue[queue].outstanding for queue in queues), int(_ps(target.sync.latency)),
    )  # fmt: skip


def _kind(name: str, known: Mapping[str, object]) -> str:
    """The name without the number of its unit."""
    stem, _, unit = name.rpartition(".")
    return stem if name not in known and unit.isdigit() else name


def _acts(task: Task, step: Mapping[str, int], taken: bool) -> bool:
    if task.flag is not None and task.flag.taken != taken:
        return False
    return task.when is None or step[task.when.field] > task.when.above


def _rearranged(task: Task, engine: Engine, target: Target) -> float:
    """A copy or fill by the vector unit: a load and a store of every vector, stores in as many cycles as banks ask."""
    sink = task.writes[0]
    vectors = -(-sink.nbytes // engine.bytes_per_cycle)
    if isinstance(task.op, FillOp):
        return engine.cycles["store"] * vectors / engine.units / engine.clock
    source, memory = task.reads[0], target.memories[_kind(sink.buffer.memory, target.memories)]
    times = store_cycles(sink.shape, source.stride, sink.stride, sink.dtype.nbytes, memory, engine.bytes_per_cycle)
    cycles = engine.cycles["load"] + max(engine.cycles["store"], times)
    return cycles * vectors / engine.units / engine.clock


def _products(tasks: Sequence[Task]) -> Products:
    rows: list[tuple[int, ...]] = []
    for task in tasks:
        a, b, c = task.reads[0], task.reads[1], task.writes[0]
        batch = a.shape[0] if a.rank == 3 else 1
        assert isinstance(task.op, MmaOp)
        kinds = a.dtype, task.op.codes or b.dtype, c.dtype
        rows.append((batch, c.shape[-2], c.shape[-1], a.shape[-1], *kinds, task.op.group))
    return Products(*np.array(rows, np.int64).T)


def _moves(tasks: Sequence[Task], step: Mapping[str, int], target: Target) -> Moves:
    """The first pair of each: an engine that feeds several destinations does so at once."""
    rank = max((region.rank for task in tasks for region in (*task.reads, *task.writes)), default=1)
    routes: dict[Route, int] = {}
    views: list[tuple[tuple[int, ...], ...]] = []  # size, valid, strides of the source, of the sink
    rows: list[tuple[int, ...]] = []  # bytes of an element at either end, has_source, clears, gathered, route
    for task in tasks:
        sink = task.writes[0]
        source = sink if isinstance(task.op, FillOp) else task.reads[0]
        op = task.op
        moved = source if isinstance(op, ScatterOp) else sink
        size, valid = list(moved.shape), list(moved.shape)
        if isinstance(task.op, CopyOp) and task.op.valid is not None:
            extent = step[task.op.valid.field] + task.op.valid.add
            valid[task.op.row_dim] = min(max(extent, 0), size[task.op.row_dim])
        strides = [source.stride, sink.stride]
        if isinstance(op, (GatherOp, ScatterOp)):  # of rows chosen one by one no two touch
            side = int(isinstance(op, ScatterOp))
            strides[side] = (*strides[side][: op.row_dim], -1, *strides[side][op.row_dim + 1 :])
        views.append((_padded(size, rank, 1), _padded(valid, rank, 1), *(_padded(each, rank, 0) for each in strides)))
        gathered = moved.shape[op.row_dim] if isinstance(op, (GatherOp, ScatterOp)) else 0
        route = routes.setdefault(_route(task, source, sink, target), len(routes))
        has_source, clears = not isinstance(task.op, FillOp), sink.buffer.memory != "ddr"
        rows.append((source.dtype.nbytes, sink.dtype.nbytes, has_source, clears, gathered, route))
    size_, valid_, source_stride, sink_stride = np.array(views, np.int64).reshape(-1, 4, rank).swapaxes(0, 1)
    source_item, sink_item, with_source, clearing, gathers, numbers = np.array(rows, np.int64).reshape(-1, 6).T
    return Moves(
        size_, valid_, source_stride, sink_stride, source_item, sink_item, with_source.astype(np.bool_),
        clearing.astype(np.bool_), gathers, numbers, tuple(routes),
    )  # fmt: skip


def _route(task: Task, source: Region, sink: Region, target: Target) -> Route:
    """A fill is priced by its engine's first way to the memory."""
    to = _kind(sink.buffer.memory, target.memories)
    if isinstance(task.op, FillOp):
        engine = target.engines[_kind(task.engine, target.engines)]
        return target.routes[engine.reads[0], to]
    return target.routes[_kind(source.buffer.memory, target.memories), to]


def _padded(values: Sequence[int], rank: int, neutral: int) -> tuple[int, ...]:
    return (neutral,) * (rank - len(values)) + tuple(values)


def _ps(seconds: np.ndarray | float) -> np.ndarray:
    return np.asarray(np.rint(np.asarray(seconds) * PS), np.int64)
