"""The whole answer for one model: each target with what fits, how fast it is and what bounds it, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from npuc.bound import PARTS as BOUND_PARTS
from npuc.bound import Bound
from npuc.bound.traffic import fastest_route
from npuc.estimate.analytic import PARTS, Analytic, deciding, run
from npuc.estimate.floor import Floor
from npuc.estimate.formats import FORMATS, WeightFormat
from npuc.estimate.limits import limits_of, memory_of
from npuc.estimate.speed import Speed, speed_of
from npuc.estimate.subject import Subject, state_bytes
from npurt.target import Target
from npurt.timing.entry import QUEUE_NAMES

US = 1e6
COMPARED = ("f16", "int8", "int4")
"""Formats whose weights and speed are always told."""


def estimate(subject: Subject, targets: Sequence[Target], precision: str, *, held: bool = True) -> dict[str, Any]:
    """What `npuc estimate --json` prints; docs/estimate.md has the keys. precision: a name of `FORMATS`.

    TargetError where a target does not multiply the format's floats.
    """
    form, llm, weights = FORMATS[precision], subject.graphs.llm, subject.weights
    floors = {label: Floor(plan) for label, plan in subject.plans.items()}
    sizes = None
    if llm is not None:
        sizes = {"prompt": subject.prompt, "tokens": subject.tokens, "chunk": llm.chunk, "capacity": llm.capacities[-1]}
    return {
        "model": {
            "name": subject.name,
            "kind": "graph" if llm is None else "decoder",
            "parameters": weights.parameters,
            "active_parameters": weights.active,
            "tied": weights.tied,
            "weights_without_data": subject.absent,
        },
        "sizes": sizes,
        "precision": precision,
        "dma_latency": "held" if held else "overlapped",
        "weights_bytes": {name: weights.bytes(found) for name, found in FORMATS.items()},
        "states": _states(subject, form),
        "experts": next(_experts(subject), None),
        "notes": list(subject.notes),
        "targets": [_target(subject, floors, target, form, held) for target in targets],
    }


def _states(subject: Subject, form: WeightFormat) -> dict[str, int]:
    """bytes: of all states with all their rows. bytes_per_token: of those that gain a row a token."""
    item = form.floats.nbytes
    caches = [(state, state.shape[state.row_axis]) for state in subject.caches if state.row_axis is not None]
    return {
        "count": len(subject.graphs.states),
        "bytes": sum(state_bytes(state, item) for state in subject.graphs.states),
        "bytes_per_token": sum(state_bytes(state, item) // rows for state, rows in caches if rows),
        "rows": max((rows for _, rows in caches), default=0),
    }


def _experts(subject: Subject) -> Iterator[dict[str, Any]]:
    """Of the entry with most rows: experts of a layer, chosen by a row, and different ones that all its rows need."""
    choices = [choice for plan in subject.plans.values() for choice in plan.experts.values()]
    for choice in sorted(choices, key=lambda choice: -choice.rows)[:1]:
        yield {
            "experts": choice.experts,
            "chosen": choice.chosen,
            "rows": choice.rows,
            "needed": round(choice.needed, 2),
        }


def _target(
    subject: Subject, floors: Mapping[str, Floor], target: Target, form: WeightFormat, held: bool
) -> dict[str, Any]:
    if subject.graphs.llm is None:
        found = run(subject.plans["main"], target, form, subject.plans["main"].graph.capacity, held)
        bound = floors["main"].bound(target, form, found.n_past, held)
        times: dict[str, Any] = {"run": _run([found], [bound], target, found.seconds, bound.seconds)}
        work = found.macs
    else:
        speed = _speed(subject, target, form, held)
        bounds = speed_of(subject, lambda name, past: floors[subject.label(name)].bound(target, form, past, held))
        work = speed.prefill.macs
        times = {
            "first_token_s": speed.first_token,
            "first_token_bound_s": bounds.first_token,
            "tokens_per_s": 1 / speed.token,
            "tokens_per_s_bound": 1 / bounds.token,
            "token": _run(
                [speed.generate, speed.head], [bounds.generate, bounds.head], target, speed.token, bounds.token
            ),
            "chunk": _run([speed.prefill], [bounds.prefill], target, speed.prefill.seconds, bounds.prefill.seconds),
            "formats": [
                _format(subject, target, form, speed),
                *(_format(subject, target, other, _speed(subject, target, other, held)) for other in _others(form)),
            ],
        }
    limits = limits_of(subject, target, form, work)
    queues = {engine.queue for engine in target.engines.values()}
    return {
        "target": target.name,
        "tiles": target.tiles,
        "tile": target.memories[fastest_route(target, loads=True).destination].per,
        "programs": queues >= set(QUEUE_NAMES.values()),
        "fits": all(limit.fits for limit in limits),
        "limits": [{**asdict(limit), "fits": limit.fits} for limit in limits],
        "memory_bytes": asdict(memory_of(subject, target, form)),
        **times,
        "assumed": {
            "memory": list(target.assumed(_memory_figures(target))),
            "time": list(target.assumed(_time_figures(target, form))),
        },
    }


def _others(form: WeightFormat) -> list[WeightFormat]:
    return [FORMATS[name] for name in COMPARED if name != form.name]


def _speed(subject: Subject, target: Target, form: WeightFormat, held: bool) -> Speed[Analytic]:
    return speed_of(subject, lambda name, past: run(subject.plan(name), target, form, past, held))


def _format(subject: Subject, target: Target, form: WeightFormat, speed: Speed[Analytic]) -> dict[str, Any]:
    """The weights and the speed in one format, and whether it is a `--precision` of `npuc compile`."""
    limits = limits_of(subject, target, form, speed.prefill.macs)
    return {
        "precision": form.name,
        "weights_bytes": subject.weights.bytes(form),
        "fits": all(limit.fits for limit in limits),
        "first_token_s": speed.first_token,
        "tokens_per_s": 1 / speed.token,
        "compiled": form.compiled,
    }


def _run(
    estimates: Sequence[Analytic], bounds: Sequence[Bound], target: Target, seconds: float, floor: float
) -> dict[str, Any]:
    """One run, or several in a row. seconds, floor: of the estimate and the bound; parts and bytes are of the entries
    at their own step."""
    parts = {name: sum(found.parts[name] for found in estimates) for name in PARTS}
    floors = {name: sum(bound.parts[name] for bound in bounds) for name in BOUND_PARTS}
    largest = max(bounds, key=lambda bound: bound.seconds)
    matrix, vector = target.engine_of("matrix"), target.engine_of("vector")
    return {
        "us": seconds * US,
        "bound_us": floor * US,
        "n_past": estimates[0].n_past,
        "ddr_read": sum(found.loaded for found in estimates),
        "ddr_written": sum(found.stored for found in estimates),
        "macs": sum(found.macs for found in estimates),
        "cycles": {
            "all": round(seconds * matrix.clock),
            "matrix": round(sum(cost.matrix for found in estimates for cost in found.costs) * matrix.clock),
            "vector": round(parts["vector"] * vector.clock),
        },
        "parts_us": {name: value * US for name, value in parts.items()},
        "bound_parts_us": {name: value * US for name, value in floors.items()},
        "limited_by": deciding(parts),
        "bound_by": max(BOUND_PARTS, key=lambda name: largest.parts[name]),
    }


def _memory_figures(target: Target) -> list[str]:
    return ["memories.ddr.size", f"memories.{fastest_route(target, loads=True).destination}.size"]


def _time_figures(target: Target, form: WeightFormat) -> list[str]:
    """Keys of the target's numbers that the times rest on."""
    routes = [fastest_route(target, loads=loads) for loads in (True, False)]
    matrix, vector = target.engine_of("matrix").name, target.engine_of("vector").name
    fields = ("clock", "launch", "operand_rate", f"macs_per_cycle.{form.floats.label}")
    return [
        *(f"routes.{route.source}->{route.destination}" for route in routes),
        *(f"pools.{route.pool}" for route in routes if route.pool),
        *(f"engines.{matrix}.{field}" for field in fields),
        *(f"engines.{vector}.{field}" for field in ("count", "clock", "launch", "bytes_per_cycle", "cycles")),
        *_memory_figures(target)[1:],
        "sync",
        "matrix.row_multiple",
    ]
