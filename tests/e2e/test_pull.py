"""The real model, fetched from the package index: what it answers in onnxruntime, and its tokenizer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

QUESTION = "What is an NPU?"
PROMPT = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 1780, 314, 354, 30017, 69, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
# llama.cpp (F32) and transformers begin their greedy answer with this text, too
ANSWER = (
    "A Polynomial Unite Factorization Unit (PNU) is a mathematical concept that helps simplify complex expressions by "
    "breaking them down into simpler ones."
)
TEXTS = ("1,234 x 56", "naïve café 北京 🙂", "  two  spaces\n\n\ttab", "don't <|im_end|> it's", "x" * 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("pull") / "smollm2"
    command = [sys.executable, "-m", "npuc.cli", "models", "pull", "smollm2-135m", "-o", str(made), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "pip cannot fetch" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(done.stdout)["files"].values()) < 541_000_000
    return made


@pytest.fixture(scope="module")
def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_the_chat_template_gives_the_known_ids(folder, tokenizer):
    from jinja2.sandbox import SandboxedEnvironment

    template = SandboxedEnvironment().from_string((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    text = template.render(messages=[{"role": "user", "content": QUESTION}], add_generation_prompt=True)
    assert tokenizer.encode(text).ids == PROMPT


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_digits_stand_alone(tokenizer):
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"]


def test_onnxruntime_gives_the_known_answer(folder, tokenizer):
    import onnx
    import onnxruntime

    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs() if value.name.startswith("past_key_values.")]
    assert len(names) == 60
    past = [np.zeros((1, 3, 0, 64), np.float32)] * len(names)
    ids, total, answer = PROMPT, 0, []
    while len(answer) < 32:
        positions = np.arange(total, total + len(ids))[None]
        total += len(ids)
        feeds = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": positions,
        }
        logits, *past = session.run(None, feeds | dict(zip(names, past, strict=True)))
        ids = [int(logits[0, -1].argmax())]
        answer += ids
    assert tokenizer.decode(answer).startswith(ANSWER)
