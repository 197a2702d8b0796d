"""The operator table says what the compiler does."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from npuc import onnx_backend
from npuc.cli import main as npuc
from npuc.graph.expand.table import EXPANSIONS
from npuc.graph.quantised.table import READERS, REFUSED
from npuc.lower.errors import LoweringRefused
from npuc.lower.expression import ELEMENTWISE
from npuc.lower.limits import LIMITS, message
from npuc.lower.rules import RULES
from npuc.report.ops import details, operators
from npuc.report.ops_page import DOCUMENT, main, rendered
from tests.support.graphs import parsed

OPS = {(op.domain, op.name): op for op in operators()}
CORPUS = Path(__file__).parents[2] / "data" / "corpus"


def test_the_page_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert rendered(text) == text, "python -m npuc.report.ops_page"
    assert main(["--check"]) == 0


def test_nothing_that_the_compiler_does_is_missing() -> None:
    assert {*RULES, *EXPANSIONS, *(("", name) for name in ELEMENTWISE)} <= set(OPS)
    assert {key for key, reader in READERS.items() if reader not in REFUSED} <= set(OPS)
    for key, op in OPS.items():
        assert op.ways and op.opsets and op.dtypes, key
        assert all(way["what"] for way in op.ways), key
    assert set(LIMITS) <= set(OPS)


def test_every_operator_of_the_corpus_is_in_it() -> None:
    found = set()
    for path in CORPUS.glob("*/model.onnx"):
        model = onnx.load(path, load_external_data=False)
        found |= {("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in model.graph.node}
    assert found and sorted(found - set(OPS)) == []


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ("g (float[2] x) => (float[4] y) <int64[2] p = {1, 1}> { [n] y = Pad <mode = \"edge\"> (x, p) }", ("", "Pad")),
        ("g (float[2] x) => (float8e8m0[2] y) { [n] y = Cast <to = 24> (x) }", ("", "Cast")),
    ],
)  # fmt: skip
def test_a_refusal_has_the_words_of_the_table(body: str, key: tuple[str, str]) -> None:
    with pytest.raises(LoweringRefused) as error:
        onnx_backend.prepare(parsed(body, 25, ir_version=11))
    words = [message(check) for check in LIMITS[key]]
    assert str(error.value).partition("): ")[2] in words
    assert all(word in OPS[key].limits for word in words)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert npuc(["ops", "--json", "--op", "MatMul"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["ways"][0] == {"way": "kernel", "engine": "DPU", "what": row["ways"][0]["what"]}
    assert npuc(["ops", "--op", "Softmax"]) == 0
    assert capsys.readouterr().out == details(OPS["", "Softmax"])
    assert npuc(["ops"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(OPS) + 1
    assert npuc(["ops", "--op", "Reshap"]) == 2
    assert "npuc has no operator 'Reshap'; did you mean 'Reshape'?" in capsys.readouterr().err
