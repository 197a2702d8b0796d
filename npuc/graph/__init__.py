"""The graph level: ONNX in, static fused entries out. `build` is the one door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuc.graph.options import BuildOptions, OptionError

if TYPE_CHECKING:
    from npuc.graph.pipeline import build

__all__ = ["BuildOptions", "OptionError", "build"]


def __getattr__(name: str) -> Any:
    """Loads the pipeline, and the ONNX libraries with it, when it is first asked for."""
    if name == "build":
        from npuc.graph.pipeline import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
