"""Runs the node tests of the onnx package through npuc.onnx_backend and counts them.

`python -m tools.onnx_node_tests` prints passed, refused (by reason) and wrong. Those that pass are listed in
tests/e2e/onnx_node_tests.txt, so that their number cannot fall; `--update` writes that file.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

MAX_REASONS = 40
FLOOR = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "onnx_node_tests.txt"


class Verdict(Enum):
    PASSED = "passed"
    REFUSED = "refused"
    WRONG = "wrong"


@dataclass(frozen=True)
class Outcome:
    """What came of one test. reason: why it was refused, or what differs."""

    name: str
    ops: frozenset[tuple[str, str]]
    verdict: Verdict
    reason: str = ""


def cases() -> list[Any]:
    """The node tests of the installed onnx package, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are made by NumPy on purpose with overflow and division by zero
        return sorted(load_model_tests(kind="node"), key=lambda case: str(case.name))


def operators(case: Any) -> frozenset[tuple[str, str]]:
    """(domain, name) of every node of a test's model, those of functions and subgraphs included."""
    functions = {(function.domain, function.name) for function in case.model.functions}
    graphs = [case.model.graph, *case.model.functions]
    found = set()
    while graphs:
        for node in graphs.pop().node:
            found.add(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return frozenset(found - functions)


def run_case(case: Any) -> Outcome:
    """One test: all its data sets, within its own tolerances."""
    from npuc.cli.errors import exit_code_of, message_of
    from npuc.onnx_backend import NpucBackend

    ops = operators(case)
    try:
        prepared = NpucBackend.prepare(case.model)
        for inputs, expected in case.data_sets:
            results = prepared.run([_array(value) for value in inputs])
            fault = compare(results, [_array(value) for value in expected], case.rtol, case.atol)
            if fault:
                return Outcome(case.name, ops, Verdict.WRONG, fault)
    except Exception as error:  # a refusal has an exit code; whatever else is raised is a fault of npuc
        if exit_code_of(error) is None:
            return Outcome(case.name, ops, Verdict.WRONG, f"{type(error).__name__}: {error}")
        return Outcome(case.name, ops, Verdict.REFUSED, message_of(error))
    return Outcome(case.name, ops, Verdict.PASSED)


def _array(value: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compare(results: Sequence[np.ndarray], expected: Sequence[Any], rtol: float, atol: float) -> str:
    """What differs, by the rules of onnx.backend.test, or nothing."""
    from onnx.backend.test.runner import Runner

    try:
        Runner.assert_similar_outputs(expected, results, rtol, atol)
    except (AssertionError, TypeError) as error:
        return " ".join(str(error).split())
    return ""


@dataclass(frozen=True)
class Floor:
    """The tests that must pass. version: of the onnx package whose tests they are."""

    version: str
    names: tuple[str, ...]

    @property
    def is_of_this_onnx(self) -> bool:
        import onnx

        return bool(onnx.__version__ == self.version)


def read_floor(path: Path = FLOOR) -> Floor:
    """The file that keeps the count: the version of onnx, then a name a line."""
    version, *names = path.read_text(encoding="utf-8").split()
    return Floor(version, tuple(names))


def reasons(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[str]]]:
    """Refusals without what differs from test to test, and the names of the tests; the most frequent first."""
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[_general(outcome.reason)].append(outcome.name)
    yield from sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _general(reason: str) -> str:
    reason = re.sub(r"^(model: )?", "", reason.splitlines()[0] if reason else "")
    reason = re.sub(r"nodes? '?[^ (]+'? \(([\w:.]+)[^)]*\)", r"\1", reason)
    return re.sub(r"\[[-\d, ]*\]", "[..]", re.sub(r"'[^']*'", "'..'", reason))[:160]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 1 where a test is wrong, or no longer passes."""
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_node_tests", description=__doc__)
    parser.add_argument("--list", action="store_true", help="one line a test")
    parser.add_argument("--only", metavar="TEXT", help="tests whose name holds this text")
    parser.add_argument("--update", action="store_true", help=f"write {FLOOR.name}: the tests that pass now")
    options = parser.parse_args(arguments)
    if options.update and options.only:
        parser.error("--update takes all tests")
    chosen = [case for case in cases() if not options.only or options.only in case.name]
    outcomes = [run_case(case) for case in chosen]
    show(outcomes, options.list)
    print(share(outcomes))
    passed = sorted(outcome.name for outcome in outcomes if outcome.verdict is Verdict.PASSED)
    if options.update:
        import onnx

        FLOOR.write_text("\n".join([onnx.__version__, *passed, ""]), encoding="utf-8")
        return 0
    floor = read_floor()
    fallen = sorted(({case.name for case in chosen} & set(floor.names)) - set(passed)) if floor.is_of_this_onnx else []
    for name in fallen:
        print(f"no longer passes: {name}")
    return 1 if fallen or any(outcome.verdict is Verdict.WRONG for outcome in outcomes) else 0


def share(outcomes: Sequence[Outcome]) -> str:
    """How many pass of the tests whose operators are all in `npuc ops`, those that need --host-ops left out."""
    from npuc.report.ops import operators as table

    had = {(op.domain, op.name) for op in table() if any(way["way"] != "on request" for way in op.ways)}
    chosen = [outcome for outcome in outcomes if outcome.ops <= had]
    passed = sum(outcome.verdict is Verdict.PASSED for outcome in chosen)
    percent = 100 * passed / max(len(chosen), 1)
    return f"{passed} of the {len(chosen)} tests whose operators are all in `npuc ops` pass: {percent:.1f} %"


def show(outcomes: Sequence[Outcome], each: bool) -> None:
    """Prints the counts, and for what has not passed the reasons, or each test."""
    for verdict in Verdict:
        some = [outcome for outcome in outcomes if outcome.verdict is verdict]
        print(f"{verdict.value:8} {len(some)}")
        if each:
            for outcome in some:
                print(f"  {outcome.name}  {' '.join(outcome.reason.split())[:400]}")
        elif verdict is not Verdict.PASSED:
            for reason, names in list(reasons(some))[:MAX_REASONS]:
                print(f"  {len(names):4}  {reason}  ({names[0]}{', ...' if len(names) > 1 else ''})")


if __name__ == "__main__":
    sys.exit(main())
