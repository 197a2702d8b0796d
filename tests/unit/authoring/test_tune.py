"""Costs, tuning, its cache and the choice files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuc.answers import AnswerCache, type_text
from npuc.authoring.bindings import bindings, library_of
from npuc.authoring.choices import read_choices, write_choices
from npuc.authoring.cost import cost_of
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.source import find
from npuc.authoring.tune import Tuning, tune
from npuc.tile import dense, f16
from npurt.target import load_target
from tests.unit.authoring.kernel_files import SOFTMAX, write

TARGET = load_target("npu40xx")


def tuned(folder: Path, cache: AnswerCache | None = None, text: str = SOFTMAX) -> Tuning:
    found = find(str(write(folder, text)))
    return tune(found, found.example(), TARGET, cache, lambda step, share: None)


def test_cost_of_one_block_by_hand(tmp_path: Path) -> None:
    found = find(str(write(tmp_path)))
    cost = cost_of(found.kernel, found.example(), TARGET, {"bm": 20})
    queues = {queue.name: queue for queue in cost.queues}
    assert {name: queue.tasks for name, queue in queues.items()} == {"dma.in": 1, "shave": 1, "dma.out": 1}
    assert cost.ddr_bytes == 2 * 20 * 16 * 2
    # one after the other: nothing can overlap with a single block
    assert cost.seconds >= sum(queue.seconds for queue in cost.queues) > TARGET.engine_of("vector").launch
    assert all(queue.cycles == pytest.approx(queue.seconds * TARGET.engines[
        {"shave": "shave"}.get(name, name)].clock) for name, queue in queues.items())  # fmt: skip


def test_the_winner_is_the_fastest_and_equal_candidates_are_tried_once(tmp_path: Path) -> None:
    made = tuned(tmp_path)
    assert [each.sizes["bm"] for each in made.tried] == [8, 20, 16]
    times = {each.sizes["bm"]: each.seconds for each in made.tried}
    assert made.winner.sizes == {"bm": 20}
    assert times[20] == min(times.values())
    assert made.given is not None and made.given.sizes == {"bm": 8}
    assert made.reason == f"{times[8] / times[20]:.2f} x as fast as the example's sizes, 3 tasks instead of 9"


def test_what_does_not_fit_is_pruned_with_the_reason(tmp_path: Path) -> None:
    text = (
        SOFTMAX.replace("(20, 16)", "(20, 65536)")
        .replace("in (8, 20, 20, 16)", "in (4, 20)")
        .replace('"bm": 8', '"bm": 4')
    )
    made = tuned(tmp_path, text=text)
    assert made.winner.sizes == {"bm": 4}
    (refused,) = [each for each in made.tried if each.seconds is None]
    assert refused.sizes == {"bm": 20}
    assert "cmx" in refused.why


def test_the_cache_answers_the_second_time_and_not_for_a_changed_kernel(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "cache")
    first, second = tuned(tmp_path, cache), tuned(tmp_path, cache)
    assert not any(each.cached for each in first.tried)
    assert all(each.cached for each in second.tried)
    assert [each.seconds for each in first.tried] == [each.seconds for each in second.tried]
    changed = tuned(tmp_path, cache, SOFTMAX + "\n# changed\n")
    assert not any(each.cached for each in changed.tried)


def test_a_damaged_cache_is_as_good_as_none(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "cache")
    tuned(tmp_path, cache)
    for path in (tmp_path / "cache").iterdir():
        path.write_text("{")
    assert not any(each.cached for each in tuned(tmp_path, cache).tried)


def test_a_choice_file_comes_back_and_is_taken_for_equal_calls_alone(tmp_path: Path) -> None:
    choice = tuned(tmp_path).choice()
    path = tmp_path / "choices.json"
    write_choices(path, [choice])
    write_choices(path, [choice])
    assert read_choices(path) == [choice]
    library = library_of(*bindings([f"softmax={tmp_path / 'my.py'}"]), path, TARGET)
    array = dense(f16, (20, 16))
    assert library.sizes("scaled", [array, array], {"scale": 2.0}) == {"bm": 20}
    assert library.sizes("scaled", [array, array], {"scale": 1.0}) is None
    assert library.sizes("scaled", [array, dense(f16, (20, 16), "cmx")], {"scale": 2.0}) is None
    write(tmp_path, SOFTMAX + "\n# changed\n")
    changed = library_of(*bindings([f"softmax={tmp_path / 'my.py'}"]), path, TARGET)
    assert changed.sizes("scaled", [array, array], {"scale": 2.0}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no choice file: it is not JSON "
         "(Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ("[]", "is no choice file of format 1; `npuc kernel tune --save` writes them"),
        (json.dumps({"format": 1, "choices": [{"kernel": 3}]}), ", choice 0: 'kernel' must be a str"),
    ],
)  # fmt: skip
def test_what_is_no_choice_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(KernelSourceError) as caught:
        read_choices(path)
    assert str(caught.value).replace(f"{path} ", "").replace(str(path), "") == message


def test_types_in_words() -> None:
    assert type_text(dense(f16, (2, 3), "cmx")) == "f16[2, 3] cmx"
    assert type_text(None) == "none"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("softmax", "'softmax' is not of the form WHAT=FILE.py:NAME, such as attention=my.py:flash"),
        ("sofmax=softmax", "'sofmax' is no kernel of the library (did you mean 'softmax'?) and no operator, such as "
         "Gelu or my.domain::Op"),
    ],
)  # fmt: skip
def test_bindings_that_say_nothing(words: str, message: str) -> None:
    with pytest.raises(KernelSourceError) as caught:
        bindings([words])
    assert str(caught.value) == message


def test_a_kernel_is_bound_once() -> None:
    with pytest.raises(KernelSourceError) as caught:
        bindings(["softmax=copy", "softmax=map"])
    assert str(caught.value) == "softmax is bound twice, to copy and to map"


TOO_BIG = """
import numpy as np
from npuc import tile as t


@t.kernel
def big(x, out, *, bm=32):
    (i,) = t.programs(t.cdiv(x.shape[0], bm))
    rows = t.load(x, (i * bm, 0), (bm, x.shape[1]))
    t.store(out, (i * bm, 0), t.exp(rows))


def example():
    array = t.dense(t.f16, (64, 32768))
    return t.Example((array, array), {"bm": 32}, np.exp)
"""


@pytest.mark.parametrize("command", ["run", "cost"])
def test_an_overflow_lists_the_buffers_and_the_smallest_change_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    from npuc.cli import main

    assert main(["kernel", command, str(write(tmp_path, TOO_BIG, "big.py"))]) == 2
    assert capsys.readouterr().err.splitlines()[:5] == [
        "error: kernel big: cmx overflows: 2 buffers live at task 1 need 4194304 B, there are 1473536 B",
        "     2097152 B  big[0].x0 (big.py:9)",
        "     2097152 B  big[0].tile1 (big.py:10)",
        "it fits if the 2 largest together shrink by 2720768 B, 65 % of their 4194304 B: smaller tiles",
        "it fits with bm=11 instead of 32",
    ]


def test_a_bound_kernel_that_does_not_fit_a_model_lists_its_buffers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx

    from npuc.cli import main

    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[64, 32768] x) => (float[64, 32768] y) { y = Gelu (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    kernel = write(tmp_path, TOO_BIG.replace("*, bm=32", '*, approximate="none", bm=32'), "big.py")
    code = main(["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.npu"), "--kernel", f"Gelu={kernel}"])
    assert code == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: node ") and "does not fit into 1439 KiB of cmx" in lines[0]
    assert [line.split("B  ")[1] for line in lines[1:3]] == [
        "tile1 f32[32, 32768] (big.py:10)", "x0 f16[32, 32768] (big.py:9)",
    ]  # fmt: skip
