"""Reads a target file (TOML) into a `Target`; every mistake is a TargetError that names file and line."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from npurt.errors import TargetError
from npurt.target.model import (
    OP_CLASSES,
    Barriers,
    Engine,
    MatrixRules,
    Memory,
    Operands,
    Pool,
    Route,
    SyncCosts,
    Target,
)
from npurt.target.schema import GROUPS, SINGLE, TOP
from npurt.target.source import Source

_FREE = ("sources",)  # a table of texts under free names


def parse_target(path: str, text: str) -> Target:
    """The target of a file's text. path: for messages."""
    source = Source(path, text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{path}: {error}") from None
    named = {*GROUPS, *SINGLE, *_FREE}
    top = source.table("", {key: value for key, value in document.items() if key not in named}, TOP)
    rows = {name: _group(source, document, name) for name in GROUPS}
    single = {name: source.table(name, document.get(name), schema) for name, schema in SINGLE.items()}
    memories = {
        name: Memory(name, int(row["size"].value), int(row["align"].value), row["per"], row["on_chip"], row["banks"],
                     row["bank_groups"], int(row["bank_row"].value), row["bank_rate"].value)
        for name, row in rows["memories"].items()
    }  # fmt: skip
    engines = {name: _engine(source, name, row, memories) for name, row in rows["engines"].items()}
    pools = {name: _pool(name, row, top["tiles"]) for name, row in rows["pools"].items()}
    routes = _routes(source, rows["routes"], memories, engines, pools)
    _check_engines(source, engines, routes)
    operands = {name: _operands(source, name, row, memories, engines) for name, row in rows["operands"].items()}
    sync, barriers = single["sync"], Barriers(**single["barriers"])
    if barriers.per_tile > barriers.total:
        raise source.error("barriers", "per_tile", f"{barriers.per_tile} of {barriers.total} barriers in all")
    costs = SyncCosts(sync["issue"].at(sync["clock"].value), sync["latency"].at(sync["clock"].value))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Target(
        top["name"], top["description"], top["tiles"], memories, engines, routes, pools, operands, costs, barriers,
        MatrixRules(**single["matrix"]), _letters(source, document), source.figures, digest,
    )  # fmt: skip


def _group(source: Source, document: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """A table of tables, in the order of the file; pools may be missing."""
    given = document.get(name, {} if name == "pools" else None)
    if not isinstance(given, dict) or (not given and name != "pools"):
        raise source.error("", None, f"no [{name}.*] table")
    return {key: source.table(f"{name}.{key}", value, GROUPS[name]) for key, value in given.items()}


def _letters(source: Source, document: dict[str, Any]) -> dict[str, str]:
    given = document.get("sources", {})
    if not isinstance(given, dict):
        raise source.error("sources", None, "a table is due")
    for letter, text in given.items():
        if not isinstance(text, str) or not text:
            raise source.error("sources", letter, f"{text!r} is no text")
    return dict(given)


def _known(source: Source, table: str, key: str | None, names: tuple[str, ...], known: Mapping[str, Any],
           what: str) -> None:  # fmt: skip
    for name in names:
        if name not in known:
            raise source.error(table, key, f"{what} {name!r} is not defined; there are {', '.join(known) or 'none'}")


def _engine(source: Source, name: str, row: dict[str, Any], memories: Mapping[str, Memory]) -> Engine:
    for key in ("reads", "writes"):
        _known(source, f"engines.{name}", key, row[key], memories, "memory")
    clock = row["clock"].value
    return Engine(
        name, row["queue"], row["kind"], row["count"], row["gang"], clock, row["reads"], row["writes"],
        row["launch"].at(clock), row["macs_per_cycle"], row["operand_rate"].at(clock), row["codes"],
        row["bytes_per_cycle"], row["cycles"], row["instruction_latency"].at(clock), row["destinations"],
        int(row["max_transfer"].value), row["outstanding"], row["gather_rows"],
        row["fill_rate"].at(clock), int(row["code"].value), int(row["function_code"].value),
    )  # fmt: skip


def _pool(name: str, row: dict[str, Any], tiles: int) -> Pool:
    rate = row["rate"].value
    return Pool(name, rate, row["per"], rate / tiles if row["per"] == "device" else rate)


def _routes(source: Source, rows: dict[str, dict[str, Any]], memories: Mapping[str, Memory],
            engines: Mapping[str, Engine], pools: Mapping[str, Pool]) -> dict[tuple[str, str], Route]:  # fmt: skip
    routes = {}
    for name, row in rows.items():
        table, ends = f"routes.{name}", tuple(name.split("->"))
        if len(ends) != 2:
            raise source.error(table, None, 'a route is named "source->destination"')
        _known(source, table, None, ends, memories, "memory")
        _known(source, table, "engine", (row["engine"],), engines, "engine")
        if row["pool"]:
            _known(source, table, "pool", (row["pool"],), pools, "pool")
        engine = engines[row["engine"]]
        if ends[0] not in engine.reads or ends[1] not in engine.writes:
            raise source.error(table, "engine", f"{engine.name} does not read {ends[0]} and write {ends[1]}")
        routes[ends[0], ends[1]] = Route(
            *ends, engine.name, row["rate"].at(engine.clock), row["latency"].at(engine.clock),
            int(row["granule"].value), row["pool"], row["layouts"],
        )  # fmt: skip
    return routes


def _check_engines(source: Source, engines: Mapping[str, Engine], routes: Mapping[tuple[str, str], Route]) -> None:
    """Each engine has the numbers that its kind needs, and each way that a DMA engine offers has its route."""
    for name, engine in engines.items():
        table = f"engines.{name}"
        if engine.kind == "dma":
            for ends in ((a, b) for a in engine.reads for b in engine.writes):
                if ends not in routes or routes[ends].engine != name:
                    way = "->".join(ends)
                    raise source.error(table, None, f'the route [routes."{way}"] with engine = "{name}" is missing')
        if engine.kind == "matrix" and not engine.macs_per_cycle:
            raise source.error(table, None, "the key 'macs_per_cycle' is missing")
        if engine.kind == "vector":
            if not engine.bytes_per_cycle:
                raise source.error(table, None, "the key 'bytes_per_cycle' is missing")
            for part in OP_CLASSES:
                if part not in engine.cycles:
                    raise source.error(table, None, f"the key 'cycles.{part}' is missing")
    for kind in ("matrix", "vector"):
        if sum(engine.kind == kind for engine in engines.values()) != 1:
            raise source.error("", None, f'one engine of kind = "{kind}" is due')


def _operands(source: Source, name: str, row: dict[str, Any], memories: Mapping[str, Memory],
              engines: Mapping[str, Engine]) -> Operands:  # fmt: skip
    table = f"operands.{name}"
    _known(source, table, "engine", (row["engine"],), engines, "engine")
    _known(source, table, "homes", tuple(memory for memory, _ in row["homes"].values()), memories, "memory")
    if bool(row["accumulator"]) != bool(row["accumulates"]):
        raise source.error(table, None, "'accumulator' and 'accumulates' go together")
    if row["accumulator"]:
        _known(source, table, "accumulator", (row["accumulator"],), memories, "memory")
    return Operands(row["engine"], row["homes"], row["accumulator"], row["accumulates"])


def target_names() -> list[str]:
    """Names of the targets that come with npurt."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in files(__package__).iterdir() if entry.name.endswith(".toml")
    )


def load_target(name: str | Path = "npu40xx") -> Target:
    """The target of that name, or of a file where `name` is a path (ends in .toml). Errors: TargetError."""
    if str(name).endswith(".toml"):
        try:
            return parse_target(str(name), Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise TargetError(f"{name}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TargetError(f"{name}: no UTF-8 text: {error.reason} at byte {error.start}") from None
    if name not in target_names():
        raise TargetError(
            f"no target {name!r}: there are {', '.join(target_names())}; or give the path of a .toml file"
        )
    file = f"{name}.toml"
    return parse_target(file, files(__package__).joinpath(file).read_text(encoding="utf-8"))
