"""What the machine is that npuc itself runs on: memory and cores."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_STATUS, _MEMINFO = Path("/proc/self/status"), Path("/proc/meminfo")


def peak_rss_bytes() -> int | None:
    """Most memory that this process has held at once; None where the system does not say.

    Linux says it in /proc: its `ru_maxrss` also counts the parent's memory before the program was started.
    """
    peak = _kilobytes(_STATUS, "VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_bytes() -> int | None:
    """The machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def free_memory_bytes() -> int | None:
    """Memory that a new process can have without others being swapped out; None where the system does not say."""
    return _kilobytes(_MEMINFO, "MemAvailable")


def cores() -> int:
    """Processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call outside Linux
        return os.cpu_count() or 1


def _kilobytes(path: Path, name: str) -> int | None:
    """A line `name:  123 kB` of one of /proc's files, in bytes."""
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
