"""The chat template of a blob: what it is given, what it may do, how it fails."""

from __future__ import annotations

import json

import pytest

from npurt.llm import TemplateError
from npurt.llm.chat import chat_prompt

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)
CONFIG = json.dumps({"bos_token": {"content": "<s>"}, "model_max_length": 512, "eos_token": "</s>"}).encode()


def assets(template: str, config: bytes = CONFIG) -> dict[str, bytes]:
    return {"chat_template.jinja": template.encode(), "tokenizer_config.json": config}


def test_a_message_with_and_without_a_system_message() -> None:
    assert chat_prompt(assets(TEMPLATE), "Hi") == "<s><user>Hi\n<model>"
    assert chat_prompt(assets(TEMPLATE), "Hi", "Be brief") == "<s><system>Be brief\n<user>Hi\n<model>"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {},
            "the blob carries no chat_template.jinja: give the whole prompt with --prompt and without --chat",
        ),
        (
            assets("{% if %}"),
            "chat_template.jinja of the blob fails: Expected an expression, got 'end of statement block'",
        ),
        (assets("{{ raise_exception('no such role') }}"), "chat_template.jinja of the blob fails: no such role"),
        (
            assets("{{ ''.__class__.__mro__ }}"),
            "chat_template.jinja of the blob fails: access to attribute '__class__' of 'str' object is unsafe.",
        ),
        (
            assets("{{ 1 / 0 }}"),
            "chat_template.jinja of the blob fails: division by zero",
        ),
        (
            assets(TEMPLATE, b"{"),
            "tokenizer_config.json of the blob is not understood: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
    ],
)
def test_faults_have_one_line(given: dict[str, bytes], message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        chat_prompt(given, "Hi")
    assert str(caught.value) == message
