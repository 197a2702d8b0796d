"""What is wrong with the examples and candidates of a file is said in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.authoring.errors import KernelSourceError
from npuc.authoring.source import find
from npuc.cli.errors import WRONG_USE, exit_code_of, message_of
from tests.unit.authoring.kernel_files import SOFTMAX, write

HEAD = SOFTMAX.partition("def example")[0]
A = "t.dense(t.f16, (4, 4))"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("5", " gives int, not a tile.Example"),
        ("{}['boo']", " fails: KeyError: 'boo'"),
        ("__import__('sys').exit(0)", " fails: SystemExit: 0"),
        ("t.dense(t.f16, (2,) * 5)",
         " fails: ValueError: array of shape (2, 2, 2, 2, 2) has rank 5; the device moves rank <= 4"),
        ("t.Example(('a',), {}, reference)",
         ": array 0 is str; give a NumPy array, a type such as t.dense(t.f16, (8, 64)), or None where an optional "
         "array is absent"),
        (f"t.Example({A}, {{}}, reference)", ": its arrays are ArrayType, not a tuple of arrays"),
        (f"t.Example(({A},), 3, reference)", ": its params and its step must be dicts"),
        (f"t.Example(({A},), {{}}, 3)", ": its reference is int, not a function"),
        ("t.Example((np.zeros((1,) * 5, np.float16),), {}, reference)",
         ": array 0 has 5 dimensions; a kernel's arrays have 1 to 4"),
        ("t.Example((np.zeros((), np.float16),), {}, reference)",
         ": array 0 has no dimension; a kernel's arrays have 1 to 4"),
        ("t.Example((np.zeros(4),), {}, reference)",
         ": no device type for a NumPy array of float64; known: float32, float16, uint16, int32, int8, uint8, bool, "
         "int64"),
        ("t.Example((t.dense(t.f16, (2**40, 2**20)),), {}, reference)",
         ": array 0, f16[1099511627776, 1048576], has more than 2^40 bytes"),
    ],
)  # fmt: skip
def test_examples(tmp_path: Path, made: str, message: str) -> None:
    found = find(str(write(tmp_path, f"{HEAD}def example():\n    return {made}\n")))
    with pytest.raises(KernelSourceError) as caught:
        list(found.examples())
    said = str(caught.value)
    if " fails: " in said:
        said, _, place = said.rpartition(" (")  # of a file and its line
        assert place.endswith(")")
    assert said == f"kernel scaled: example() of my.py{message}"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("[{'bm': 8}, 5]", " yields 5, not a dict of tile sizes such as {'bm': 64}"),
        ("[{8: 8}]", " yields {8: 8}, not a dict of tile sizes such as {'bm': 64}"),
        ("5", " fails: TypeError: 'int' object is not iterable"),
        ("{}['boo']", " fails: KeyError: 'boo'"),
    ],
)
def test_candidates(tmp_path: Path, made: str, message: str) -> None:
    found = find(str(write(tmp_path, f"{HEAD}def candidates(types, params):\n    return {made}\n")))
    assert found.candidates is not None
    with pytest.raises(KernelSourceError) as caught:
        found.candidates([], {})
    said = str(caught.value)
    assert said.startswith(f"kernel scaled: candidates(types, params) of my.py{message}")


def test_a_file_that_ends_python(tmp_path: Path) -> None:
    path = write(tmp_path, "raise SystemExit(0)\n")
    with pytest.raises(KernelSourceError) as caught:
        find(str(path))
    assert str(caught.value) == f"{path} fails when it is run: SystemExit: 0 (my.py:1)"


def test_arrays_larger_than_the_host() -> None:
    error = MemoryError("Unable to allocate 29.8 GiB")
    assert exit_code_of(error) == WRONG_USE
    assert message_of(error) == "not enough memory on this host: Unable to allocate 29.8 GiB"
