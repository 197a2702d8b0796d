"""The errors of the runtime. Each message is one line that says what, where, and what would work."""

from __future__ import annotations


class NpurtError(Exception):
    """Base of every error that the runtime raises on purpose."""


class TargetError(NpurtError):
    """A target file is missing, malformed, or says something impossible."""


class BlobError(NpurtError):
    """A blob is damaged, hostile, or of another version."""


class BytecodeError(BlobError):
    """A SHAVE program that the verifier refuses."""


class DeviceError(NpurtError):
    """A wrong request to a device: an unknown entry or state, a missing input, a wrong shape or step value."""


class DeadlockError(BlobError):
    """An entry that cannot complete: no queue can go on. The message names the head of each and what it waits for."""
