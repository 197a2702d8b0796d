"""The rules between the packages: the project keeps them, and each kind of breach is found."""

import pytest

from tools import layering


def faults(module: str, source: str, package: str = "") -> list[str]:
    found = layering.imports(source, package or module.rpartition(".")[0])
    return [f"{item.line}: {words} {item.name}" for item, _, words in layering.check(module, found)]


def test_the_project_keeps_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    code = layering.main()
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("npurt.loader", "import npuc", ["1: may not import npuc"]),
        ("npurt.loader", "import json\nimport onnx", ["2: may not import onnx"]),
        ("npurt.loader", "from npukernels import matmul", ["1: may not import npukernels.matmul"]),
        ("npurt.loader", "import numpy as np\nfrom numpy.typing import NDArray", []),
        ("npurt.loader", "from . import abi\nfrom ..npuc import x", ["2: may not import npuc.x"]),
        ("npurt.llm.tokenizer", "from tokenizers import Tokenizer", [
            "1: may import only inside a function tokenizers.Tokenizer",
        ]),
        ("npurt.llm.tokenizer", "def f():\n    from tokenizers import Tokenizer", []),
        ("npukernels.matmul", "from npuc import tile as t", []),
        ("npukernels.matmul", "from npuc.tasks import Task", ["1: may not import npuc.tasks.Task"]),
        ("npukernels.matmul", "import numpy", ["1: may not import numpy"]),
        ("npuc.check.overlap", "from npuc.schedule import place", ["1: may not import npuc.schedule.place"]),
        ("npuc.check.overlap", "from npuc import schedule", ["1: may not import npuc.schedule"]),
        ("npuc.check.overlap", "from ..schedule.place import fit", ["1: may not import npuc.schedule.place.fit"]),
        ("npuc.tile.trace", "from npuc.tasks.graph import Task", []),
        ("npuc.tile.trace", "def f():\n    from npuc.graph import build", ["2: may not import npuc.graph.build"]),
        ("npuc.cli.run", "import numpy", ["1: may import only inside a function numpy"]),
        ("npuc.cli.run", "def f():\n    import numpy", []),
        ("npuc.cli.run", "from npuc import __version__", []),
        ("npuc.graph.build", "def f():\n    import onnxruntime", ["2: may not import onnxruntime"]),
        ("npuc.graph.build", "if TYPE_CHECKING:\n    import onnxruntime\nimport onnx", []),
        ("npuc.compare.oracle", "def f():\n    import onnxruntime", []),
        ("npuc.compare.oracle", "import onnxruntime", ["1: may import only inside a function onnxruntime"]),
        ("npuc.compare.oracle", "def f():\n    import tokenizers", ["2: may not import tokenizers"]),
        ("elsewhere.module", "import npuc, onnxruntime", []),
    ],
)  # fmt: skip
def test_breaches_are_found(module: str, source: str, expected: list[str]) -> None:
    assert faults(module, source) == expected


def test_relative_imports_of_a_package_start_from_itself() -> None:
    assert [item.name for item in layering.imports("from .a import b\nfrom .. import c", "npuc.check")] == [
        "npuc.check.a.b",
        "npuc.c",
    ]
