"""`npuc diff`: what changed between two programs, by the names of tasks and not by their place in a file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from npuc.report.listing import Entry, Listing, Node, build_listing
from npuc.report.listing_text import parse_listing, token
from npuc.report.reader import reading
from npuc.report.series import boxes_text, parse_boxes
from npuc.report.thresholds import METRICS, Threshold, change, parse_thresholds, total
from npurt.errors import BlobError

# offsets, strides and program digests: what may change where the sizes stay
_NOT_SIZES = re.compile(r" at (?:\{[^}]*\}|\S+)| stride \S+|\([^)]*\)|@[0-9a-f]{8}")


@dataclass(frozen=True)
class DiffResult:
    """lines: the report. exceeded: one line per threshold that was passed. checked: whether thresholds were given."""

    lines: tuple[str, ...]
    exceeded: tuple[str, ...]
    checked: bool

    @property
    def different(self) -> bool:
        return bool(self.lines)

    @property
    def exit_code(self) -> int:
        """1 for a difference, or with thresholds for one that was passed; else 0."""
        return int(bool(self.exceeded) if self.checked else self.different)

    @property
    def text(self) -> str:
        lines = [*(self.lines or ("no difference",)), *(f"FAIL {line}" for line in self.exceeded)]
        return "".join(f"{line}\n" for line in lines)


def diff(a: str | Path, b: str | Path, fail_on: Sequence[str] = ()) -> DiffResult:
    """Compares two programs, each a blob or the text of `npuc disasm`.

    fail_on: thresholds such as ``tasks>1%``; they look at growth from a to b, entry by entry. BlobError where a file is
    neither, ThresholdError where a threshold cannot be read.
    """
    thresholds = parse_thresholds(fail_on)
    return diff_listings(load_listing(a), load_listing(b), thresholds)


def load_listing(path: str | Path) -> Listing:
    """The listing of a blob or of its text. Errors: BlobError, OSError."""
    with Path(path).open("rb") as file:
        is_blob = file.read(4) == b"\x7fELF"
    if is_blob:
        with reading(path) as image:
            return build_listing(image)
    try:
        return parse_listing(Path(path).read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise BlobError(f"{path}: neither a blob nor the text of `npuc disasm`") from error


def diff_listings(a: Listing, b: Listing, thresholds: Sequence[Threshold] = ()) -> DiffResult:
    """The same of two listings."""
    lines = [*_changed_lines(a.header, b.header)]
    exceeded: list[str] = []
    ours, theirs = {e.name: e for e in a.entries}, {e.name: e for e in b.entries}
    told: dict[tuple[str, ...], str] = {}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        was, now = ours.get(name), theirs.get(name)
        if was is None or now is None:
            side = "added" if was is None else "removed"
            lines.append(f"{side} entry {token(name)}")
            if thresholds:
                exceeded.append(f"entry {token(name)} was {side}")
            continue
        tasks, totals = tuple(_tasks_of_entry(was, now)), [*_totals(was, now)]
        first = told.setdefault(tasks, name)
        if tasks and first != name:  # entries of other capacities change alike: once is enough
            tasks = (f"tasks as in entry {token(first)}",)
        if tasks or totals:
            lines += [f"entry {token(name)}", *(f"  {line}" for line in (*tasks, *totals))]
        for threshold in thresholds:
            before, after = total(was.totals, threshold.metric), total(now.totals, threshold.metric)
            if threshold.exceeded(before, after):
                what = f"{threshold.metric} {change(before, after)} exceeds {threshold.text}"
                exceeded.append(f"entry {token(name)}: {what}")
    lines += _changed_lines(a.programs, b.programs)
    return DiffResult(tuple(lines), tuple(exceeded), bool(thresholds))


def _changed_lines(a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    for tag, a_first, a_last, b_first, b_last in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from (f"- {line}" for line in a[a_first:a_last])
            yield from (f"+ {line}" for line in b[b_first:b_last])


def _tasks_of_entry(was: Entry, now: Entry) -> Iterator[str]:
    if (was.rows, was.capacity) != (now.rows, now.capacity):
        yield f"rows {was.rows} -> {now.rows}, capacity {was.capacity} -> {now.capacity}"
    ours, theirs = {n.name: n for n in was.nodes}, {n.name: n for n in now.nodes}
    changes: dict[_Change, list[str]] = {}
    nothing = Node("", (), ())
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        for found in _node(ours.get(name, nothing), theirs.get(name, nothing)):
            changes.setdefault(found, []).append(name)
    for found, names in changes.items():
        yield from found.lines(names)


def _totals(was: Entry, now: Entry) -> Iterator[str]:
    for metric in METRICS:
        before, after = total(was.totals, metric), total(now.totals, metric)
        if before != after:
            yield f"{metric} {change(before, after)}"


@dataclass(frozen=True)
class _Change:
    """One change, the same in all nodes it is found in. was, now: queue and form of the tasks, "" for none."""

    kind: str
    kernel: str
    stage: str
    coords: str
    was: str
    now: str

    def lines(self, nodes: list[str]) -> Iterator[str]:
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        what = f" {token(self.kernel)} {token(self.stage)} {self.coords}" if self.coords else ""
        yield f"{self.kind} {token(nodes[0])}{more}{what}"
        if self.was:
            yield f"  - {self.was}"
        if self.now:
            yield f"  + {self.now}"


def _node(was: Node, now: Node) -> Iterator[_Change]:
    if was.groups and now.groups and was.bindings != now.bindings:
        yield _Change("rebound", "", "", "", " ".join(was.bindings), " ".join(now.bindings))
    if was.groups == now.groups:
        return
    ours, theirs = _tasks(was), _tasks(now)
    found: dict[tuple[str, str, str, str, str], list[tuple[int, ...]]] = {}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        before, after = ours.get(key, ""), theirs.get(key, "")
        if before != after:
            kernel, stage, coord = key
            found.setdefault((_kind(before, after), kernel, stage, before, after), []).append(coord)
    for (kind, kernel, stage, before, after), coords in found.items():
        yield _Change(kind, kernel, stage, boxes_text(coords), before, after)


def _tasks(node: Node) -> dict[tuple[str, str, tuple[int, ...]], str]:
    """(kernel, stage, coordinate) -> queue and form."""
    return {
        (group.kernel, group.stage, coord): f"{group.queue} {group.body}"
        for group in node.groups
        for coord in parse_boxes(group.coords)
    }


def _kind(was: str, now: str) -> str:
    if not was:
        return "added"
    if not now:
        return "removed"
    return "changed" if _NOT_SIZES.sub("", was) == _NOT_SIZES.sub("", now) else "resized"
