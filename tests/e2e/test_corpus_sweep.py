"""Every model of a corpus in every form, however its prompt is cut: `pytest -m slow tests/e2e/test_corpus_sweep.py`.

NPUC_CORPUS names another folder than tests/data/corpus, see tests.support.corpus.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.corpus import CorpusModel, Reference, models, reference
from tests.support.models import Answer, answer, compile_to, cosine, stateful_form

pytestmark = pytest.mark.slow

CHUNKS = (9, 5, 4, 3)  # a prompt of 9 tokens at once, as 5 + 4, in pieces of 4 and of 3
SIZES = {"max_prompt_len": 12, "min_response_len": 8, "capacities": (11, 20)}  # the answer goes on in the larger one


def run(model: CorpusModel, wanted: Reference, folder: Path, form: str, chunk: int, precision: str) -> Answer:
    path = model.path if form == "pairs" else stateful_form(model.path, folder / "stateful", model.dims)
    blob = compile_to(folder / "m.blob", path, precision=precision, chunk=chunk, **SIZES)
    return answer(blob, wanted.prompt_ids, wanted.generated)


def check_tokens(got: Answer, wanted: Reference) -> None:
    """The greedy choice wherever its lead is larger than the error of the logits."""
    rows = zip([wanted.prompt[-1], *wanted.steps], [got.prompt[-1], *got.step], strict=True)
    errors = [float(np.abs(want - have).max()) for want, have in rows]
    for place, (token, gap) in enumerate(zip(wanted.generated, wanted.gaps, strict=True)):
        assert gap <= 2 * errors[place] or got.tokens[place] == token


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("form", ["pairs", "stateful"])
@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_f32_agrees_with_the_reference(model: CorpusModel, form: str, chunk: int, tmp_path: Path) -> None:
    wanted = reference(model)
    got = run(model, wanted, tmp_path, form, chunk, "f32")
    rows = got.prompt[-len(wanted.prompt) :]
    if model.chunked:
        assert min(cosine(rows, wanted.prompt).min(), cosine(got.step, wanted.steps).min()) >= 0.998
    else:
        np.testing.assert_allclose(rows, wanted.prompt, model.rtol, model.atol)
        np.testing.assert_allclose(got.step, wanted.steps, model.rtol, model.atol)
    check_tokens(got, wanted)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("form", ["pairs", "stateful"])
@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_f16_keeps_the_direction_of_every_row(model: CorpusModel, form: str, chunk: int, tmp_path: Path) -> None:
    wanted = reference(model)
    got = run(model, wanted, tmp_path, form, chunk, "f16")
    least = 0.998 if model.chunked else 0.99 if model.rounds else 0.999
    assert cosine(got.prompt[-len(wanted.prompt) :], wanted.prompt).min() >= least
    assert cosine(got.step, wanted.steps).min() >= least
    check_tokens(got, wanted)
