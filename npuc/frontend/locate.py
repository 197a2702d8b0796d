"""Finds the model file and the assets of an exported folder."""

from __future__ import annotations

import json
from pathlib import Path

from npuc.frontend.errors import ModelRefused
from npuc.frontend.model import Asset

# Files that are carried along as they are, in the order of the blob.
ASSET_FILES = (
    "config.json",
    "generation_config.json",
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
_TEMPLATE = "chat_template.jinja"
# Older exporters keep the template as a text inside one of these.
_TEMPLATE_HOLDERS = ("chat_template.json", "tokenizer_config.json")
_MAX_ASSET_BYTES = 256 << 20  # the largest public tokenizer.json files have 35 MB
_MODEL_NAMES = ("model.onnx", "onnx/model.onnx")  # the second as in model repositories


def find_model(path: Path) -> Path:
    """The model file of a path. Raises ModelRefused if there is none, or more than one."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise ModelRefused(["neither a file nor a folder" if path.exists() else "no such file or folder"], str(path))
    for name in _MODEL_NAMES:
        if (path / name).is_file():
            return path / name
    others = sorted(p.name for p in path.glob("*.onnx"))
    if len(others) == 1:
        return path / others[0]
    if others:
        raise ModelRefused([f"several models ({', '.join(others)}) and no model.onnx: name the file"], path.name)
    raise ModelRefused(["no model.onnx in this folder"], path.name)


def find_assets(path: Path, model_file: Path) -> dict[str, Asset]:
    """Assets beside the model, or in the folder that was named. Raises ModelRefused for one that is too large."""
    folder = path if path.is_dir() else model_file.parent
    assets: dict[str, Asset] = {}
    for name in ASSET_FILES:
        file = folder / name
        if file.is_file():
            if file.stat().st_size > _MAX_ASSET_BYTES:
                raise ModelRefused([f"larger than {_MAX_ASSET_BYTES >> 20} MiB, the limit for an asset"], name)
            assets[name] = file
    template = None if _TEMPLATE in assets else _inner_template(folder)
    if template is not None:
        assets[_TEMPLATE] = template
    return assets


def _inner_template(folder: Path) -> bytes | None:
    """The chat template that a JSON file of the tokenizer holds; of several named ones the default."""
    for name in _TEMPLATE_HOLDERS:
        file = folder / name
        if not file.is_file() or file.stat().st_size > _MAX_ASSET_BYTES:
            continue
        try:
            content = json.loads(file.read_bytes())
        except (ValueError, RecursionError):
            continue  # the tokenizer that reads this file says what is wrong with it
        template = content.get("chat_template") if isinstance(content, dict) else None
        if isinstance(template, list):
            named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
            template = named[0].get("template") if named else None
        if isinstance(template, str):
            return template.encode()
    return None
