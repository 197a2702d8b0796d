"""`npuc targets`: the machines, and the numbers of one with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npurt.target import Target, load_target, target_names


def list_targets() -> list[dict[str, Any]]:
    """name, description, tiles, numbers, assumed (how many of the numbers) of each target that comes along."""
    rows = []
    for name in target_names():
        target = load_target(name)
        rows.append(
            {
                "name": name,
                "description": target.description,
                "tiles": target.tiles,
                "numbers": len(target.figures),
                "assumed": sum(figure.assumed for figure in target.figures.values()),
            }
        )
    return rows


def list_text(rows: Sequence[Mapping[str, Any]]) -> str:
    width = max(len(row["name"]) for row in rows)
    return "".join(
        f"{row['name']:{width}}  {row['description']} ({row['assumed']} of {row['numbers']} numbers assumed)\n"
        for row in rows
    )


def show_target(name: str) -> dict[str, Any]:
    """One target, a name or the path of a .toml file: numbers as written with their sources, homes and layouts.

    numbers: key, value, source, assumed; operands: class, engine, homes, accumulator, accumulates; routes: from, to,
    engine, layouts; sources: what the letters mean. TargetError where the file is wrong.
    """
    target = load_target(name)
    return {
        "name": target.name,
        "description": target.description,
        "digest": target.digest,
        "numbers": [
            {"key": figure.key, "value": figure.text.strip('"'), "source": figure.source, "assumed": figure.assumed}
            for figure in target.figures.values()
        ],
        "operands": _operands(target),
        "routes": [
            {"from": route.source, "to": route.destination, "engine": route.engine, "layouts": list(route.layouts)}
            for route in target.routes.values()
        ],
        "sources": dict(target.sources),
    }


def show_text(found: Mapping[str, Any]) -> str:
    numbers = [("number", "value", "source")]
    numbers += [(row["key"], row["value"], row["source"] or "assumed: no source is given") for row in found["numbers"]]
    widths = [max(len(row[at]) for row in numbers) for at in range(2)]
    lines = [f"{found['name']}: {found['description']}", ""]
    lines += [f"{key:{widths[0]}}  {value:{widths[1]}}  {source}" for key, value, source in numbers]
    lines += ["", *(f"source {letter}: {text}" for letter, text in found["sources"].items()), ""]
    for row in found["operands"]:
        homes = ", ".join(f"{name} in {home}" for name, home in row["homes"].items())
        rule = f"; sums {row['accumulates']} in {row['accumulator']}" if row["accumulator"] else ""
        lines.append(f"{row['class']} on {row['engine']}: {homes}{rule}")
    for row in found["routes"]:
        layouts = f", layouts {', '.join(row['layouts'])}" if row["layouts"] else ""
        lines.append(f"{row['from']} -> {row['to']} by {row['engine']}{layouts}")
    return "".join(f"{line}\n" for line in lines)


def _operands(target: Target) -> list[dict[str, Any]]:
    return [
        {
            "class": name,
            "engine": rule.engine,
            "homes": {operand: f"{memory} ({layout})" for operand, (memory, layout) in rule.homes.items()},
            "accumulator": rule.accumulator,
            "accumulates": rule.accumulates,
        }
        for name, rule in target.operands.items()
    ]
