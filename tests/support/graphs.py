"""Small graphs in ONNX's text form, as files or as onnx-ir models."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir


def parsed(body: str, opset: int = 17, extra: str = "", ir_version: int = 9) -> onnx.ModelProto:
    """A model of `name (inputs) => (outputs) <initializers> { nodes }`. extra: further imports, as `"npuc": 1`."""
    imports = f'"" : {opset}' + (f", {extra}" if extra else "")
    return onnx.parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]>\n{body}")


def graph(body: str, opset: int = 17, extra: str = "") -> ir.Model:
    """The same as an onnx-ir model."""
    return ir.from_proto(parsed(body, opset, extra))


def written(folder: Path, body: str, opset: int = 17, extra: str = "") -> Path:
    """The same as a file model.onnx."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(parsed(body, opset, extra).SerializeToString(deterministic=True))
    return path
