"""Golden texts are for people: one changed tile size is a diff that fits on a screen."""

from __future__ import annotations

import difflib
from pathlib import Path

import npuc
import npuc.lower.entry
from npuc.lower.fit import Choice, array_type, choose
from npuc.report import diff, disasm
from npukernels import registry
from tests.support.models import compile_to

MODEL = Path(npuc.__file__).parent / "data" / "default_model"
NODE = "layers.2/attn/MatMul"


def halved(call, cache, free_bytes, library):
    """The compiler's choice, but for one node, whose column blocks become half as wide."""
    choice = choose(call, cache, free_bytes, library)
    if choice is None or call.node != NODE:
        return choice
    sizes = {**choice.params, "bn": choice.params["bn"] // 2}
    types = [None if region is None else array_type(region) for region in call.arrays]
    trace = registry.get(call.kernel).kernel.trace(types, {**call.params, **sizes}, cache=cache)
    return Choice(sizes, trace, choice.kernel, choice.arrays)


def test_one_tile_size_is_a_short_diff(tmp_path, monkeypatch):
    before = compile_to(tmp_path / "before.npu", MODEL)
    monkeypatch.setattr(npuc.lower.entry, "choose", halved)
    after = compile_to(tmp_path / "after.npu", MODEL)
    texts = [disasm(path).splitlines() for path in (before, after)]
    changed = [line for line in difflib.unified_diff(*texts, n=0, lineterm="") if not line.startswith(("---", "+++"))]
    assert 0 < len(changed) < 40, "\n".join(changed)
    told = diff(before, after)
    assert told.different
    assert NODE in told.text
    assert "  tasks as in entry generate.128" in told.text.splitlines()
    assert len(told.text.splitlines()) < 40, told.text
