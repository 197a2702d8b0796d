"""Which error is whose fault: exit codes by error class, without importing what a command did not need."""

from __future__ import annotations

import sys

OK, DIFFERENT, WRONG_USE, MODEL_REFUSED, BLOB_REFUSED, INTERRUPTED = 0, 1, 2, 3, 4, 130

# (module, class, exit code). A class whose module was never imported cannot have been raised.
_CODES = (
    ("npuc.frontend.errors", "ModelRefused", MODEL_REFUSED),
    ("npuc.lower.errors", "LoweringRefused", MODEL_REFUSED),
    ("npuc.schedule.errors", "ScheduleRefused", MODEL_REFUSED),
    ("npuc.tile.errors", "KernelError", MODEL_REFUSED),
    ("npuc.authoring.errors", "KernelSourceError", WRONG_USE),
    ("npuc.lower.library", "BindingError", WRONG_USE),
    ("npuc.emit.errors", "WriteError", WRONG_USE),
    ("npuc.emit.errors", "EmitError", MODEL_REFUSED),
    ("npuc.graph.options", "OptionError", WRONG_USE),
    ("npuc.compare.errors", "CompareError", WRONG_USE),
    ("npuc.compare.errors", "OracleRefused", MODEL_REFUSED),
    ("npuc.models.errors", "PullError", WRONG_USE),
    ("npurt.errors", "BlobError", BLOB_REFUSED),
    ("npuc.report.thresholds", "ThresholdError", WRONG_USE),
    ("npurt.errors", "NpurtError", WRONG_USE),  # what the runtime refuses besides blobs: prompts, options, targets
    ("builtins", "OSError", WRONG_USE),
    ("builtins", "MemoryError", WRONG_USE),  # arrays of the user's own sizes
)


def exit_code_of(error: Exception) -> int | None:
    """The exit code of a user's error; None for an error that only a fault of npuc can cause."""
    for module, name, code in _CODES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            return code
    return None


def message_of(error: Exception) -> str:
    """The error's text; for errors of the system, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"not enough memory on this host: {error}" if str(error) else "not enough memory on this host"
    return str(error)
