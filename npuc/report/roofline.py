"""`npuc roofline`: sparse attention of one token over selected rows of a cache, multiplications against memory.

The keys are whole rows and the values their first channels, so a row crosses once. All heads share the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npurt.abi.dtypes import DType
from npurt.errors import TargetError
from npurt.target import Route, Target, load_target


def roofline(name: str, heads: Sequence[int], topk: Sequence[int], dim: int, dtype: str) -> dict[str, Any]:
    """Cycles of the matrix engine's clock for one token on one tile or core.

    heads, topk: query heads, selected rows. dim: channels of a row and of its value. dtype: a `DType` label.
    rows: heads, topk, matrix (2 * heads * topk * dim MACs at the full rate), memory (rows, queries and results once,
    unrounded), bound. machine: macs_per_cycle, bytes_per_cycle, balance (MACs per byte where both bind), and the keys
    of the assumed numbers among these. TargetError for an unknown target or a type that it does not multiply.
    """
    target = load_target(name)
    engine = target.engine_of("matrix")
    if dtype not in engine.macs_per_cycle or dtype.upper() not in DType.__members__:
        raise TargetError(f"{target.name} multiplies no {dtype}; it takes {', '.join(engine.macs_per_cycle)}")
    item, macs = DType[dtype.upper()].nbytes, engine.macs_per_cycle[dtype]
    route = _load_route(target)
    rate, figures = _memory_rate(target, route)
    per_cycle = rate / engine.clock
    rows = []
    for count in heads:
        for selected in topk:
            matrix = 2 * count * selected * dim / macs
            memory = (selected * dim + 2 * count * dim) * item / per_cycle
            bound = "matrix" if matrix >= memory else "memory"
            rows.append({"heads": count, "topk": selected, "matrix": matrix, "memory": memory, "bound": bound})
    used = [f"engines.{engine.name}.clock", f"engines.{engine.name}.macs_per_cycle.{dtype}", *figures]
    return {
        "target": target.name,
        "type": dtype,
        "dim": dim,
        "machine": {
            "clock_mhz": engine.clock / 1e6,
            "macs_per_cycle": macs,
            "bytes_per_cycle": per_cycle,
            "balance": macs / per_cycle,
        },
        "rows": rows,
        "assumed": list(target.assumed(used)),
    }


def roofline_text(found: Mapping[str, Any]) -> str:
    """The table for people; cycles rounded to whole ones."""
    machine = found["machine"]
    lines = [
        f"{found['target']}, {found['type']}, {found['dim']} channels: {machine['macs_per_cycle']:g} MACs and "
        f"{machine['bytes_per_cycle']:.1f} bytes a cycle of {machine['clock_mhz']:g} MHz, "
        f"even at {machine['balance']:.1f} MACs a byte",
        "",
        f"{'heads':>6}{'topk':>7}{'matrix':>10}{'memory':>10}  bound by",
    ]
    for row in found["rows"]:
        lines.append(
            f"{row['heads']:>6}{row['topk']:>7}{round(row['matrix']):>10}{round(row['memory']):>10}  {row['bound']}"
        )
    lines += ["", _assumed(found["assumed"])]
    return "".join(f"{line}\n" for line in lines)


def _assumed(keys: Sequence[str]) -> str:
    return f"rests on assumed numbers: {', '.join(keys)}" if keys else "rests on no assumed number"


def _load_route(target: Target) -> Route:
    """The fastest way from device memory to a memory that holds operands."""
    routes = [route for (source, sink), route in target.routes.items() if source == "ddr" and sink in target.on_chip]
    return max(routes, key=lambda route: route.rate)


def _memory_rate(target: Target, route: Route) -> tuple[float, list[str]]:
    """Bytes per second of one tile or core with all of them at work: the route, or its share of the pool."""
    key = f"routes.{route.source}->{route.destination}.rate"
    if not route.pool or target.pools[route.pool].rate >= route.rate:
        return route.rate, [key]
    return target.pools[route.pool].rate, [f"pools.{route.pool}.rate"]
