"""What npuc knows of its machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuc import host

MEGABYTE = 1 << 20


def test_the_peak_holds_what_was_given_back() -> None:
    if host.peak_rss_bytes() is None:
        pytest.skip("this system does not say")
    code = "held = b'1' * (200 << 20); del held\nfrom npuc.host import peak_rss_bytes\nprint(peak_rss_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 200 * MEGABYTE < int(done.stdout) < 400 * MEGABYTE


def test_a_childs_peak_is_not_its_parents() -> None:
    held = np.ones(300 * MEGABYTE, np.uint8)
    code = "from npuc.host import peak_rss_bytes\nprint(peak_rss_bytes() or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert held.nbytes > int(done.stdout)


def test_memory_is_what_the_system_says() -> None:
    total, free = host.memory_bytes(), host.free_memory_bytes()
    if total is not None and free is not None:
        assert 0 < free <= total
    assert host.cores() >= 1


def test_a_system_that_says_nothing_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_MEMINFO", tmp_path / "none")
    assert host.free_memory_bytes() is None
    (tmp_path / "none").write_text("MemTotal:       100 kB\nMemAvailable:     12 kB\n")
    assert host.free_memory_bytes() == 12 * 1024
