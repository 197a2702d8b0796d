"""examples/kernels: each kernel agrees with its reference, and inside a compiled model with onnxruntime."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import onnx
import pytest

import npuc
from npuc.cli import main
from npurt import load
from tests.support.models import DATA

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"
KERNELS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "models.py")
DEFAULT = Path(npuc.__file__).parent / "data" / "default_model"


def models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_models", EXAMPLES / "models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", KERNELS)
def test_an_example_runs_and_is_short(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "run", str(EXAMPLES / name), "--check"]) == 0, capsys.readouterr()
    assert code_lines(EXAMPLES / name) < 60


def code_lines(path: Path) -> int:
    """Lines of code of the file without its example: no blank ones, comments or docstrings."""
    tree = ast.parse(path.read_text())
    kept: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            kept.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = path.read_text().splitlines()
    return sum(1 for number in kept if lines[number - 1].strip() and not lines[number - 1].strip().startswith("#"))


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize(
    ("model", "binding"),
    [
        ("squared_relu_model", "examples::SquaredRelu=squared_relu.py:squared_relu"),
        ("linear_attention_model", "examples::LinearAttention=linear_attention.py:linear_attention"),
        ("int4_linear_model", "examples::Int4Linear=int4_matmul.py:int4_linear"),
    ],
)
def test_an_operator_of_the_examples_in_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, binding: str, precision: str
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(getattr(models(), model)(), path)
    what, _, kernel = binding.partition("=")
    assert main(["check", str(path), "--precision", precision, "--kernel", f"{what}={EXAMPLES}/{kernel}"]) == 0
    assert capsys.readouterr().out.startswith("agrees with onnxruntime")


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_flash_attention_in_the_default_model(capsys: pytest.CaptureFixture[str], precision: str) -> None:
    binding = f"attention={EXAMPLES}/flash_attention.py:flash_attention"
    sizes = ["--max-prompt-len", "40", "--chunk", "20", "--capacities", "64"]
    assert main(["check", str(DEFAULT), "--precision", precision, "--kernel", binding, *sizes]) == 0
    assert "greedy tokens: 5 of 5 equal" in capsys.readouterr().out


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_sliding_window_attention_in_a_model_with_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], precision: str
) -> None:
    """Two of its three layers have a window of 6; the prompt is longer, and the cache twice as long again."""
    binding = f"attention={EXAMPLES}/sliding_window_attention.py:sliding_window_attention"
    model = str(DATA / "families" / "gemma3-dyn-18.onnx")
    sizes = ["--max-prompt-len", "20", "--chunk", "8", "--capacities", "40", "--prompt-ids", "3 1 4 1 5 9 2 6 5 3 5 8"]
    assert main(["check", model, "--precision", precision, "--kernel", binding, *sizes]) == 0
    assert "greedy tokens: 5 of 5 equal" in capsys.readouterr().out


def test_memory_of_flash_attention_does_not_grow_with_the_keys() -> None:
    from npuc import tile as t
    from npuc.authoring.source import find

    kernel = find(f"{EXAMPLES}/flash_attention.py:flash_attention").kernel
    peaks = []
    for slots in (256, 1024, 4096):
        query, new, past = (t.dense(t.f16, shape) for shape in ((4, 64, 32), (2, 64, 32), (2, slots, 32)))
        peaks.append(kernel.trace([query, new, new, past, past, query], {"scale": 0.2}).plan().bytes)
    assert peaks[0] == peaks[1] == peaks[2]


def test_tiles_that_were_tuned_reach_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, choices = f"{EXAMPLES}/flash_attention.py:flash_attention", tmp_path / "choices.json"
    sizes = ["--max-prompt-len", "40", "--chunk", "20", "--capacities", "64"]
    model = ["--model", str(DEFAULT), "--as", "attention", *sizes]
    assert main(["kernel", "tune", kernel, *model, "--save", str(choices), "--no-cache", "--json"]) == 0
    tunings = json.loads(capsys.readouterr().out)
    won = {json.dumps(each["winner"]["sizes"]) for each in tunings}
    blob = tmp_path / "m.npu"
    options = ["--kernel", f"attention={kernel}", "--choices", str(choices), *sizes]
    assert main(["compile", str(DEFAULT), "-o", str(blob), *options]) == 0
    nodes = load(blob).meta["nodes"]
    used = {json.dumps(node["tile"]) for node in nodes if node["kernel"] == "flash_attention"}
    assert used == won


def test_the_tuned_form_beside_flash_attention_is_of_the_kernel_as_it_is() -> None:
    from npuc.authoring.choices import read_choices
    from npuc.authoring.source import find

    found = find(f"{EXAMPLES}/flash_attention.py:flash_attention")
    choices = read_choices(EXAMPLES / "flash_attention.choices.json")
    assert {choice.digest for choice in choices} == {found.digest}, "npuc kernel tune ... --save"
    given = {"bm": 64, "bk": 128}
    assert any(choice.sizes != given for choice in choices)


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("rotary=flash_attention.py:flash_attention",
         "error: node rotary/Sin~Rotary: kernel flash_attention of flash_attention.py has no parameter for "
         "rotary_dim=32, which the call needs; add it after * in the kernel's signature"),
        ("layernorm=flash_attention.py:flash_attention",
         "error: kernel flash_attention for layernorm: the model has no such call; it has "),
    ],
)  # fmt: skip
def test_a_kernel_that_cannot_take_the_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], binding: str, message: str
) -> None:
    what, _, kernel = binding.partition("=")
    options = ["--kernel", f"{what}={EXAMPLES}/{kernel}", "--max-prompt-len", "40", "--chunk", "20"]
    assert main(["compile", str(DEFAULT), "-o", str(tmp_path / "m.npu"), *options]) in (2, 3)
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
