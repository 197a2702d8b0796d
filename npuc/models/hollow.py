"""An ONNX folder without weights: the graph of a shape, whose data file is named and not there."""

from __future__ import annotations

import json
from pathlib import Path

from npuc.models.configuration import shape_config
from npuc.models.folder import check_target, staged
from npuc.models.shape import DecoderShape

MODEL, DATA, CONFIG = "model.onnx", "model.onnx_data", "config.json"
FILES = (MODEL, CONFIG)
"""Names of the files of such a folder."""


def write_hollow(shape: DecoderShape, folder: Path, *, force: bool) -> dict[str, int]:
    """Writes the folder, which appears whole or not at all; name and bytes of each file. Equal shapes give equal bytes.

    force: a folder of this kind is replaced. PullError where it cannot be made.
    """
    from npuc.models.decoder import build_decoder

    target = check_target(folder, FILES, force=force)
    model, _ = build_decoder(shape, shape.weights(), DATA)
    contents = {
        MODEL: model.SerializeToString(deterministic=True),
        CONFIG: (json.dumps(shape_config(shape), indent=2) + "\n").encode(),
    }
    with staged(target) as (new, _):
        for name, content in contents.items():
            (new / name).write_bytes(content)
    return {name: len(content) for name, content in contents.items()}
