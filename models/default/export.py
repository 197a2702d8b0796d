"""Writes the model folder: model.onnx, tokenizer.json, config.json, generation_config.json.

Run as a program it rebuilds one of the two forms from a finished folder:
`python -m models.default.export FOLDER --form pairs --out pairs.onnx`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from .decoder import build_decoder
from .shape import BOS, EOS, Shape, shape_of

LIMIT = 3_000_000
"""Most bytes of the whole folder."""

GENERATION = {"bos_token_id": BOS, "do_sample": True, "eos_token_id": EOS, "temperature": 0.8, "top_k": 40}


def write_folder(out: Path, shape: Shape, weights: Mapping[str, NDArray[np.float16]], tokenizer: Path) -> int:
    """Writes the stateful form; gives back the bytes of the folder's files. Equal inputs give equal bytes."""
    out.mkdir(parents=True, exist_ok=True)
    model = build_decoder(shape, weights, "stateful")
    (out / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    _write_json(out / "config.json", shape.config())
    _write_json(out / "generation_config.json", GENERATION)
    shutil.copyfile(tokenizer, out / "tokenizer.json")
    sizes = {p.name: p.stat().st_size for p in sorted(out.iterdir()) if p.is_file()}
    print("  ".join(f"{name} {size:,} B" for name, size in sizes.items()), f" together {sum(sizes.values()):,} B")
    if sum(sizes.values()) > LIMIT:
        raise ValueError(f"the folder has {sum(sizes.values()):,} bytes, more than {LIMIT:,}")
    return sum(sizes.values())


def read_folder(folder: Path) -> tuple[Shape, dict[str, NDArray[np.float16]]]:
    """Shape and f16 weights of a folder that `write_folder` made."""
    shape = shape_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    stored = {t.name: t for t in onnx.load(folder / "model.onnx").graph.initializer}
    return shape, {name: numpy_helper.to_array(stored[f"{name}.weight"]) for name in shape.weight_shapes()}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m models.default.export", description=__doc__)
    parser.add_argument("folder", type=Path, help="a finished model folder")
    parser.add_argument("--form", choices=["stateful", "pairs"], default="pairs")
    parser.add_argument("--out", type=Path, required=True, help="the ONNX file to write")
    options = parser.parse_args()
    model = build_decoder(*read_folder(options.folder), options.form)
    options.out.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
