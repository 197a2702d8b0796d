"""The estimate for people: a few lines about the model, then the targets side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

NAMES = {
    "ddr": "DDR bytes", "matrix": "MACs", "vector": "vector work", "launches": "launches", "cut": "cut nodes",
}  # fmt: skip
Row = Mapping[str, Any]
_ASSUMED = "*"


def estimate_text(found: Row) -> str:
    """found: as `estimate` gives it. Lines ended by a newline; figures that rest on assumed numbers end in a star."""
    lines = [*_model(found), "", *_table(found)]
    for row in found["targets"]:
        lines += [f"{row['target']}: {_unfit(limit)}" for limit in row["limits"] if not limit["fits"]]
    lines += [f"note: {note}" for note in _notes(found)]
    lines += ["", *_assumptions(found["targets"])]
    return "".join(f"{line}\n" for line in lines)


def _model(found: Row) -> Iterator[str]:
    model, weights, states = found["model"], found["weights_bytes"], found["states"]
    active = "" if found["experts"] is None else f", {_count(model['active_parameters'])} active for a token"
    yield f"{model['name']}: {model['kind']}, {_count(model['parameters'])} parameters{active}"
    if found["sizes"] is not None:
        sizes = found["sizes"]
        yield (
            f"prompt {sizes['prompt']}, then {sizes['tokens']} new tokens; chunks of {sizes['chunk']}, capacity "
            f"{sizes['capacity']}; weights {found['precision']}"
        )
    yield "weights: " + ", ".join(f"{name} {_bytes(count)}" for name, count in weights.items())
    if states["bytes_per_token"]:
        token, whole = _bytes(states["bytes_per_token"]), _bytes(states["bytes"])
        yield f"KV cache: {token} a token, {whole} for {states['rows']} rows"
    elif states["count"]:
        yield f"states: {states['count']}, {_bytes(states['bytes'])}"
    if found["experts"] is not None:
        experts = found["experts"]
        yield (
            f"experts: {experts['chosen']} of {experts['experts']} a token; {experts['rows']} tokens need "
            f"{experts['needed']:.0f} different ones (assumed: equally likely and independent)"
        )


def _table(found: Row) -> Iterator[str]:
    targets = found["targets"]
    rows: list[tuple[str, Callable[[Row], str]]] = [
        ("", lambda t: t["target"]),
        ("computed on", lambda t: f"1 of {t['tiles']} {t['tile']}s"),
        ("fits", lambda t: "yes" if t["fits"] else "no"),
        ("device memory", lambda t: f"{_bytes(_limit(t)['needed'])} of {_bytes(_limit(t)['available'])}"),
    ]
    if found["sizes"] is None:
        rows += _run_rows("run", "a run")
    else:
        rows += [
            ("first token", lambda t: _seconds(t["first_token_s"]) + _star(t)),
            ("  bound", lambda t: _seconds(t["first_token_bound_s"]) + _star(t)),
            ("tokens a second", lambda t: _rate(t["tokens_per_s"]) + _star(t)),
            ("  bound", lambda t: _rate(t["tokens_per_s_bound"]) + _star(t)),
            *_run_rows("token", f"a token, {targets[0]['token']['n_past']} before it"),
            *_run_rows("chunk", f"the last chunk, {found['sizes']['chunk']} tokens"),
        ]
        for at, form in enumerate(targets[0]["formats"][1:], 1):
            rows.append((f"with {form['precision']}: first token", _of_format(at, "first_token_s", _seconds)))
            rows.append(("  tokens a second", _of_format(at, "tokens_per_s", _rate)))
    cells = [[label, *(show(target) for target in targets)] for label, show in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(
            [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()


def _run_rows(key: str, label: str) -> list[tuple[str, Callable[[Row], str]]]:
    return [
        (label, lambda t: _seconds(t[key]["us"] * 1e-6) + _star(t)),
        ("  bound", lambda t: _seconds(t[key]["bound_us"] * 1e-6) + _star(t)),
        ("  DDR read", lambda t: _bytes(t[key]["ddr_read"])),
        ("  MACs", lambda t: _count(t[key]["macs"])),
        ("  cycles", lambda t: _count(t[key]["cycles"]["all"]) + _star(t)),
        ("  limited by", lambda t: NAMES[t[key]["limited_by"]]),
        ("  bound by", lambda t: NAMES[t[key]["bound_by"]]),
    ]


def _of_format(at: int, key: str, show: Callable[[float], str]) -> Callable[[Row], str]:
    return lambda t: show(t["formats"][at][key]) + _star(t)


def _limit(target: Row) -> Row:
    first: Row = target["limits"][0]
    return first


def _star(target: Row) -> str:
    return _ASSUMED if target["assumed"]["time"] else ""


def _unfit(limit: Row) -> str:
    show = _bytes if limit["unit"] == "B" else _count
    return (
        f"{limit['what']}: {show(limit['needed'])} {'are' if limit['unit'] == 'B' else limit['unit']} needed, "
        f"{show(limit['available'])} there ({limit['where']})"
    )


def _notes(found: Row) -> Iterator[str]:
    yield from found["notes"]
    if found["model"]["weights_without_data"]:
        yield f"{found['model']['weights_without_data']} weights have no data; only their shapes count"
    absent = [row["target"] for row in found["targets"] if not row["programs"]]
    if absent:
        yield f"npuc compile makes no program for {', '.join(absent)} yet: these estimates met no simulated one"
    formats = found["targets"][0].get("formats", ())
    later = [form["precision"] for form in formats if not form["compiled"]]
    if later:
        yield f"{', '.join(later)}: what a model with such weights in its file gives; npuc compile quantises none"


def _assumptions(targets: Sequence[Row]) -> Iterator[str]:
    for row in targets:
        keys = list(dict.fromkeys((*row["assumed"]["memory"], *row["assumed"]["time"])))
        if keys:
            yield f"{_ASSUMED} {row['target']} rests on assumed numbers: {', '.join(keys)}"


def _bytes(count: float) -> str:
    return _scaled(count, ((" GB", 1e9), (" MB", 1e6), (" kB", 1e3), (" B", 1.0)))


def _count(number: float) -> str:
    return _scaled(number, (("e9", 1e9), ("e6", 1e6), ("e3", 1e3), ("", 1.0)))


def _seconds(value: float) -> str:
    return _scaled(value, ((" s", 1.0), (" ms", 1e-3), (" us", 1e-6)))


def _rate(value: float) -> str:
    return _scaled(value, (("", 1.0),))


def _scaled(value: float, units: Sequence[tuple[str, float]]) -> str:
    """Three figures, whole ones where there is no unit below."""
    unit, size = next((pair for pair in units if value >= pair[1]), units[-1])
    number = value / size
    if size == 1.0 and number == int(number):
        return f"{int(number)}{unit}"
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}{unit}"
