"""The chat template that travels in the blob: a message becomes the prompt text that the model was trained on.

A template is code from a stranger's file, so it runs in jinja2's sandbox and reaches nothing but its own inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from .errors import TemplateError

TEMPLATE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"


def chat_prompt(assets: Mapping[str, bytes], message: str, system: str | None = None) -> str:
    """The prompt text of one user message, up to where the model's answer begins.

    system: a system message in front of it; None leaves that to the template. Errors: TemplateError where the blob
    carries no template, jinja2 is missing, or the template fails.
    """
    if TEMPLATE not in assets:
        raise TemplateError(f"the blob carries no {TEMPLATE}: give the whole prompt with --prompt and without --chat")
    try:
        from jinja2.exceptions import TemplateError as JinjaError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise TemplateError("--chat needs the package jinja2: pip install 'npuc[chat]'") from error
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": message})
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        template = environment.from_string(bytes(assets[TEMPLATE]).decode("utf-8"))
        return template.render(messages=messages, add_generation_prompt=True, **_special_tokens(assets))
    except (JinjaError, UnicodeDecodeError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise TemplateError(f"{TEMPLATE} of the blob fails: {' '.join(str(error).split())}") from error


def _refuse(message: object) -> NoReturn:
    """What templates call to refuse a conversation."""
    raise ValueError(message)


def _special_tokens(assets: Mapping[str, bytes]) -> dict[str, Any]:
    """bos_token and the like, which templates name; plain texts only."""
    if _CONFIG not in assets:
        return {}
    try:
        config = json.loads(bytes(assets[_CONFIG]))
    except ValueError as error:
        raise TemplateError(f"{_CONFIG} of the blob is not understood: {error}") from error
    found = config.items() if isinstance(config, dict) else ()
    texts = {
        name: value["content"] if isinstance(value, dict) and "content" in value else value for name, value in found
    }
    return {name: value for name, value in texts.items() if name.endswith("_token") and isinstance(value, str)}
