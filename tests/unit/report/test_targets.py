"""`npuc targets`: the list, one machine's numbers with their sources, and a user's file."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from npuc.cli import main

TEXT = files("npurt.target").joinpath("npu40xx.toml").read_text()


def test_list(capsys: pytest.CaptureFixture[str]):
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ascend950", "npu37xx", "npu40xx", "npu50xx"]
    assert main(["targets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(0 < row["assumed"] < row["numbers"] for row in rows)


def test_show(capsys: pytest.CaptureFixture[str]):
    assert main(["targets", "ascend950"]) == 0
    text = capsys.readouterr().out
    assert "matmul on cube: a in l0a (zz), b in l0b (zn), c in l0c (nz); sums f32 in l0c\n" in text
    assert "ddr -> l1 by mte2, layouts nd->nd, nd->nz\n" in text
    assert main(["targets", "npu40xx", "--json"]) == 0
    numbers = {row["key"]: row for row in json.loads(capsys.readouterr().out)["numbers"]}
    launch = numbers["engines.shave.launch"]
    assert (launch["value"], launch["assumed"]) == ("2.5 us", False)
    assert launch["source"].startswith("V:")
    assert numbers["sync.latency"]["assumed"]


def test_a_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace('rate = ["68 GB/s", "V: as for loads"]', 'rate = "50 GB/s"'))
    assert main(["targets", str(path)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("routes.cmx->ddr.rate"))
    assert row.split() == ["routes.cmx->ddr.rate", "50", "GB/s", "assumed:", "no", "source", "is", "given"]
    path.write_text(TEXT.replace('rate = ["68 GB/s", "V: as for loads"]', 'rate = "-50 GB/s"'))
    assert main(["targets", str(path)]) == 2
    message = capsys.readouterr().err
    line = TEXT[: TEXT.index('"V: as for loads"')].count("\n") + 1
    assert message == f"error: {path}:{line}: [routes.cmx->ddr] rate: '-50 GB/s' is negative\n"
