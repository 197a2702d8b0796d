"""Reading models: a file or an exported folder in, a checked graph out, every problem named at once.

Light to import: the ONNX libraries are loaded by the first call.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from npuc.frontend.errors import ModelRefused
from npuc.frontend.model import LoadedModel

if TYPE_CHECKING:
    import onnx

__all__ = ["LoadedModel", "ModelRefused", "check_model", "load", "load_proto"]


def load(path: str | PathLike[str], *, values: bool = True) -> LoadedModel:
    """Reads an ONNX file, or a folder with a model.onnx. No weight is read. Raises ModelRefused.

    values: False lets weights be without data (a file that is missing), for what needs their shapes alone.
    """
    from npuc.frontend.read import load_model

    return load_model(path, values=values)


def load_proto(proto: onnx.ModelProto, name: str = "model") -> LoadedModel:
    """A model that is in memory, its weights inside. name: for messages. Raises ModelRefused."""
    from npuc.frontend import read

    return read.load_proto(proto, name)


def check_model(loaded: LoadedModel) -> None:
    """Raises ModelRefused with everything that is wrong with the graph."""
    from npuc.frontend.check import check_loaded

    check_loaded(loaded)
