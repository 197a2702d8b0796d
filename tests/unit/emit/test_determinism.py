"""The same program gives the same bytes: for any hash seed, folder, file name, time and thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from npuc.emit import write_blob
from tests.unit.emit.programs import model

ROOT = Path(__file__).resolve().parents[3]
_SCRIPT = """
import sys, time
time.time = lambda: float(sys.argv[2])
time.time_ns = lambda: int(sys.argv[2]) * 10**9
from npuc.emit import write_blob
from tests.unit.emit.programs import model
write_blob(*model().arguments(), sys.argv[1])
"""


def written(path: Path) -> bytes:
    write_blob(*model().arguments(), path)
    return path.read_bytes()


def test_hash_seed_folder_name_and_clock_leave_no_trace(tmp_path: Path) -> None:
    expected = written(tmp_path / "here.blob")
    for seed, name, clock in (("1", "other.bin", "0"), ("4242", "third", "2000000000")):
        folder = tmp_path / f"folder{seed}"
        folder.mkdir()
        env = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "runtime", "kernels")),
            "USER": f"user{seed}",
        }
        subprocess.run([sys.executable, "-c", _SCRIPT, str(folder / name), clock], cwd=folder, env=env, check=True)
        assert (folder / name).read_bytes() == expected
    for secret in (str(tmp_path).encode(), b"here.blob"):
        assert secret not in expected


def test_threads_that_write_at_once_do_not_meet(tmp_path: Path) -> None:
    expected = written(tmp_path / "one.blob")
    target = tmp_path / "shared.blob"
    threads = [threading.Thread(target=written, args=(target,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.blob", "shared.blob"]
