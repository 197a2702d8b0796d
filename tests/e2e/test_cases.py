"""Inputs that other toolchains got wrong, from file to values."""

from __future__ import annotations

import numpy as np
import pytest

import npurt
from npuc.frontend.errors import ModelRefused
from npurt.llm import PromptError, Request, Session
from tests.support.models import compile_to, make_case, run_graph

GRAPHS = (
    "a02_padded_rows", "a04_int4_odd_shapes", "a05_norm_half", "a06_old_softmax", "a07_slice_ends", "a08_tied_vocab",
    "a11_assign_first",
)  # fmt: skip


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_graph_cases(name, precision, tmp_path):
    model, expected = make_case(name, tmp_path)
    blob = compile_to(tmp_path / "m.blob", model, precision=precision)
    got = run_graph(blob, {key[4:]: value for key, value in expected.items() if key.startswith("in__")})
    wanted = {key[5:]: value for key, value in expected.items() if key.startswith("out__")}
    assert set(got) == set(wanted)
    for key, want in wanted.items():
        assert got[key].shape == want.shape
        valid = expected.get(f"valid__{key}", np.ones(want.shape, bool))
        rtol, atol = (float(expected.get(k, 1e-4)) for k in ("rtol", "atol"))
        if precision == "f16":
            if want.dtype.kind in "iu":
                continue  # an argmax may flip between two near logits
            rtol, atol = rtol, max(atol, 3e-2 * float(np.ptp(want[valid])))
        np.testing.assert_allclose(got[key].astype(np.float64)[valid], want[valid], rtol=rtol, atol=atol, err_msg=key)


def test_a_table_used_twice_is_stored_once(tmp_path):
    model, _ = make_case("a08_tied_vocab", tmp_path)
    image = npurt.load(compile_to(tmp_path / "m.blob", model, precision="f32"))
    table = 13 * 8 * 4
    assert table <= image.weights.nbytes < 2 * table


@pytest.mark.parametrize("chunk", [1, 3, 4, 8])
@pytest.mark.parametrize("name", ["a01_prompt_boundary", "a03_partial_rope", "a10_state_decoder"])
def test_decoder_tokens(name, chunk, tmp_path):
    """The tokens of every prompt whatever the chunk, and the refusals."""
    model, expected = make_case(name, tmp_path)
    limit, context = int(expected["max_prompt"]), int(expected["context"])
    blob = compile_to(
        tmp_path / "m.blob", model, precision="f32", chunk=chunk, max_prompt_len=limit, capacities=(context,)
    )
    image = npurt.load(blob)
    session = Session(image, npurt.Device(image))
    count = sum(key.startswith("prompt_") for key in expected)
    assert count > 0
    for i in range(count):
        tokens = expected[f"tokens_{i}"].tolist()
        request = Request(max_new_tokens=len(tokens), collect_logits=True)
        result = session.generate(expected[f"prompt_{i}"].tolist(), request).finish()
        assert result.tokens == tokens
        assert result.prompt_logits is not None
        np.testing.assert_allclose(result.prompt_logits[-1], expected[f"first_logits_{i}"], rtol=1e-3, atol=1e-3)
    for i in range(sum(key.startswith("refused_") for key in expected)):
        with pytest.raises(PromptError, match=str(limit)):
            session.generate(expected[f"refused_{i}"].tolist())


def test_context_end(tmp_path):
    """P prompt tokens in capacity N give exactly N - P + 1 tokens, then context_full."""
    model, _ = make_case("a10_state_decoder", tmp_path)
    blob = compile_to(tmp_path / "m.blob", model, chunk=3, max_prompt_len=8, capacities=(9, 12))
    image = npurt.load(blob)
    for prompt in ([5], [1, 2, 3, 4, 5, 6, 7, 8]):
        result = Session(image, npurt.Device(image)).generate(prompt).finish()
        assert (len(result.tokens), str(result.stop_reason)) == (12 - len(prompt) + 1, "context_full")


def refused_cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    for generator in ("a12_state_refused", "bad_inputs"):
        make_cases(generator, folder)
    return folder


def make_cases(generator, folder):
    with pytest.raises(FileNotFoundError):  # these write one folder for each case, none of the generator's own name
        make_case(generator, folder)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    return refused_cases(tmp_path_factory)


REFUSED = [
    "a12_two_assigns", "a12_other_shape", "a12_other_type", "a12_lone_assign_shape", "a12_lone_assign_type",
    "a12_type_as_text",
    "a12_unknown_type", "a12_no_variable_id", "a12_open_growth", "b01_cut_short", "b02_empty_file", "b03_not_a_model",
    "b04_wrong_type", "b05_open_dimension", "b06_cycle", "b07_unknown_domain", "b08_unknown_op", "b09_missing_value",
    "b10_shape_clash",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_models(name, refused, tmp_path):
    with np.load(refused / name / "expected.npz") as arrays:
        words = arrays["must_mention"].tolist()
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.blob", refused / name / "model.onnx")
    assert [word for word in words if word not in str(error.value)] == []
    assert list(tmp_path.iterdir()) == []
