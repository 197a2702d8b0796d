"""The tables of docs/credibility.md, computed anew.

    python -m benchmarks.credibility [--blob BLOB] [--embedded]

Writes them into the page. BLOB is SmolLM2-135M, compiled for npu40xx in f16 with the default limits; without it the
tables of that model stay as they are. --embedded: those of the embedded model alone, which takes seconds and is part of
`make golden-update`; the others take two minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import npurt
from benchmarks import sensitivity
from npurt.target import load_target

PAGE = Path(__file__).parents[1] / "docs" / "credibility.md"
EMBEDDED = Path(__file__).parents[1] / "npuc" / "data" / "default_model"
READINGS = ("held", "overlapped")
_TABLE = re.compile(r"(?<=<!-- table: )(?P<name>[\w-]+) -->\n\n(?P<body>(?:\|.*\n)*)")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.credibility", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--blob", type=Path, metavar="BLOB", help="SmolLM2-135M as a blob")
    parser.add_argument("--embedded", action="store_true", help="only what the embedded model takes")
    options = parser.parse_args(words)
    tables = {} if options.embedded else {"sparse-attention": sparse_attention()}
    with tempfile.TemporaryDirectory(prefix="npuc-credibility-") as folder:
        embedded = compiled(Path(folder) / "embedded.npu")
        tables |= {"embedded-times": times(embedded), "embedded-sensitivity": shares(embedded)}
    if options.blob is not None:
        tables |= {
            "smollm2-vendor": vendor(options.blob), "smollm2-times": times(options.blob),
            "smollm2-sensitivity": shares(options.blob),
        }  # fmt: skip
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


def tables_of(text: str) -> dict[str, list[str]]:
    """The lines of the page's named tables."""
    return {match["name"]: match["body"].splitlines() for match in _TABLE.finditer(text)}


def written(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The page with these tables in their places."""

    def one(match: re.Match[str]) -> str:
        lines = tables.get(match["name"])
        return match[0] if lines is None else f"{match['name']} -->\n\n" + "".join(f"{line}\n" for line in lines)

    return _TABLE.sub(one, text)


def compiled(path: Path) -> Path:
    """The embedded model as a blob."""
    from npuc.cli import main as npuc

    if npuc(["compile", str(EMBEDDED), "-o", str(path)]) != 0:
        raise RuntimeError("the embedded model does not compile")
    return path


def sparse_attention() -> list[str]:
    from benchmarks.sparse_attention.__main__ import table
    from benchmarks.sparse_attention.cases import cases, measure

    return list(table(measure(load_target("ascend950"), list(cases()))))


def shares(blob: Path) -> list[str]:
    image = npurt.load(blob)
    return list(sensitivity.table(sensitivity.measure(image, load_target(image.metadata.target), held=True)))


def profiles(blob: Path) -> dict[str, dict[str, Any]]:
    """By reading, what `npuc profile --json` says."""
    from npuc.report.profile import profile, profile_json

    return {reading: profile_json(profile(blob, reading=reading)) for reading in READINGS}


def times(blob: Path) -> list[str]:
    """Every entry in both readings: simulated, estimated and least possible time."""
    return list(_times(profiles(blob)))


def _times(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    from npuc.report.profile_text import FAR, furthest_part

    yield "| entry | latency | simulated, us | estimated, us | difference | bound, us | ratio | why |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for reading, result in found.items():
        for entry in result["entries"]:
            difference = entry["estimate_us"] / entry["makespan_us"] - 1
            why = furthest_part(entry) if abs(difference) > FAR else ""
            yield (
                f"| {entry['name']} | {reading} | {entry['makespan_us']:.0f} | {entry['estimate_us']:.0f} | "
                f"{round(100 * difference)} % | {entry['bound_us']:.0f} | {entry['bound_ratio']:.2f} | {why} |"
            )


def vendor(blob: Path) -> list[str]:
    """A token beside the vendor's schedules and its own forecasts."""
    return list(_vendor(profiles(blob)))


def _vendor(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    from npuc.report.vendor import DECODE_US, FORECAST_US

    yield "| token with | latency | here, f16, us | its f16 | ratio | its int4 | ratio | its f16 forecast | ratio |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for reading, result in found.items():
        for row in result["tokens"]:
            cells = [
                f"{figure:.0f} | {row['token_us'] / figure:.2f}"
                for figure in (DECODE_US["f16"][reading], DECODE_US["int4"][reading], FORECAST_US["f16"])
            ]
            yield f"| {row['entry']} | {reading} | {row['token_us']:.0f} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
