"""docs/credibility.md says what its commands say today; where not: python -m benchmarks.credibility"""

from __future__ import annotations

from pathlib import Path

import pytest

import npurt
from benchmarks import credibility, sensitivity
from benchmarks.sparse_attention.__main__ import table
from benchmarks.sparse_attention.cases import STEADY, cases, measure
from npuc.report.vendor import DECODE_US, FORECAST_US
from npurt.target import load_target
from tests.support.models import compile_to

TEXT = credibility.PAGE.read_text(encoding="utf-8")
TABLES = credibility.tables_of(TEXT)
NEAR = 0.1  # of a time; a change of a program that moves it by more is worth a new page


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_to(tmp_path_factory.mktemp("credibility") / "model.npu", credibility.EMBEDDED)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_table_of_the_page_is_filled():
    names = [f"{model}-{kind}" for model in ("smollm2", "embedded") for kind in ("times", "sensitivity")]
    assert sorted(TABLES) == sorted(["sparse-attention", "smollm2-vendor", *names])
    assert all(len(lines) > 4 for lines in TABLES.values())
    assert credibility.written(TEXT, TABLES) == TEXT
    new = credibility.written(TEXT, {"smollm2-times": ["| a |"]})
    assert credibility.tables_of(new) == TABLES | {"smollm2-times": ["| a |"]}


def test_the_sparse_attention_is_that_of_today():
    """The cases of one task list, which is simulated at once; `make sweep` holds all of them to what is known."""
    chosen = [case for case in cases() if case.problem == STEADY and case.rescale == 0]
    lines = list(table(measure(load_target("ascend950"), chosen)))
    assert len(lines) > 10 and set(lines) <= set(TABLES["sparse-attention"])
    named = {f"{case.group}: {case.name}" for case in cases()}
    assert {cells(line)[0] for line in TABLES["sparse-attention"][2:]} == named


def test_the_vendors_figures_and_the_ratios_to_them():
    for line in TABLES["smollm2-vendor"][2:]:
        _, reading, here, *rest = cells(line)
        figures = [DECODE_US["f16"][reading], DECODE_US["int4"][reading], FORECAST_US["f16"]]
        assert [float(rest[at]) for at in (0, 2, 4)] == figures
        for figure, ratio in zip(figures, rest[1::2], strict=True):
            assert float(ratio) == pytest.approx(float(here) / figure, abs=0.006)


def test_the_embedded_models_times_are_those_of_today(embedded: Path):
    today, page = (lines[2:] for lines in (credibility.times(embedded), TABLES["embedded-times"]))
    assert [cells(line)[:2] for line in today] == [cells(line)[:2] for line in page]
    for new, old in zip(today, page, strict=True):
        for at in (2, 3, 5):
            assert float(cells(new)[at]) == pytest.approx(float(cells(old)[at]), rel=NEAR, abs=1.0)


def test_the_embedded_models_sensitivity_is_that_of_today(embedded: Path):
    image = npurt.load(embedded)
    page = {cells(line)[0].strip("`"): cells(line) for line in TABLES["embedded-sensitivity"][2:]}
    rows = sensitivity.measure(image, load_target(), held=True)
    for row in rows:
        if row.most < 1:
            continue
        _, _, token, prefill, source = page[row.key]
        assert [float(value) for value in token.split(",")] == pytest.approx(row.token, abs=3)
        assert [float(value) for value in prefill.split(",")] == pytest.approx(row.prefill, abs=3)
        assert source == ("assumed" if row.assumed else "given")
    assert rows == sorted(rows, key=lambda row: (-row.most, row.key)) and len(rows) > 10
    # a rate and the time of its instructions are two sides of one thing
    by_key = {row.key: row for row in rows}
    assert by_key["engines.shave.clock"].prefill == pytest.approx(
        by_key["engines.shave.bytes_per_cycle"].prefill, abs=1
    )
