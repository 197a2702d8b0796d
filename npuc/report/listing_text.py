"""The listing as text, and back. One line per group of tasks; equal nodes of different layers are written once.

entry prefill  rows 4  capacity 16
  tasks 25: dma.in 13, dma.out 4, dpu 6, shave 3
  barriers 24
  memory: cmx_peak 3840, scratch 128
  ddr: read 5120, written 512
  node /layers.0/proj  const#0:768B:3f2a9c1b04de
    dma.in matmul load.w [0,0..2]: copy const#0 at 256*c1 f16[8,16] -> cmx f16[8,16]
  node /layers.1/proj  const#0:768B:11d0c2a7e5b8  = /layers.0/proj
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from npuc.report.listing import Entry, Group, Listing, Node
from npuc.report.rows import QUEUE_NAMES
from npurt.errors import BlobError

_TOKEN = r'("(?:[^"\\]|\\.)*"|\S+)'
_ENTRY = re.compile(rf"entry {_TOKEN}  rows (\d+)  capacity (\d+)")
_NODE = re.compile(rf"  node {_TOKEN}((?:  (?:const|state)#\S+)*)(?:  = {_TOKEN})?")
_GROUP = re.compile(rf"    (\S+) {_TOKEN} {_TOKEN} (\[[^:]*\][^:]*): (.*)")
_NUMBER = re.compile(r"([\w.]+) (\d+)")
_BLANK = ""
FULL = ", every record"  # ends the first line of the full form


def listing_lines(listing: Listing) -> Iterator[str]:
    """The text, line by line."""
    yield from listing.header
    for entry in listing.entries:
        yield _BLANK
        yield f"entry {token(entry.name)}  rows {entry.rows}  capacity {entry.capacity}"
        yield from _total_lines(entry.totals)
        first: dict[tuple[str, tuple[Group, ...]], str] = {}
        for node in entry.nodes:
            known = first.setdefault((_role(node.name), node.groups), node.name)
            same = f"  = {token(known)}" if known != node.name else ""
            yield f"  node {token(node.name)}" + "".join(f"  {word}" for word in node.bindings) + same
            if not same:
                for g in node.groups:
                    yield f"    {g.queue} {token(g.kernel)} {token(g.stage)} {g.coords}: {g.body}"
    if listing.programs:
        yield _BLANK
        yield from listing.programs


def parse_listing(text: str, name: str) -> Listing:
    """The listing of a text that `listing_lines` gave. name: of the file, for the BlobError where it is none."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("npuc blob "):
        raise BlobError(f"{name}: neither a blob nor the text of `npuc disasm`")
    if lines[0].endswith(FULL):
        raise BlobError(f"{name}: the text of `npuc disasm --full` cannot be compared, leave out --full")
    blocks = _blocks(lines)
    header = tuple(next(blocks))
    entries: list[Entry] = []
    programs: tuple[str, ...] = ()
    for block in blocks:
        if block[0].startswith("entry "):
            entries.append(_entry(block, name))
        else:
            programs = tuple(block)
    return Listing(header, tuple(entries), programs)


def token(text: str) -> str:
    """A name as one word: as it is, or as a JSON string where it is empty or has blanks."""
    return text if text and not re.search(r'[\s"]', text) else json.dumps(text, ensure_ascii=False)


def _role(name: str) -> str:
    """What nodes of different layers share: the name without its first number. A node refers to one of its own role, so
    that a change of one role's tasks leaves the lines of all others as they are."""
    return re.sub(r"\d+", "#", name, count=1)


def _untoken(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _total_lines(totals: dict[str, int]) -> Iterator[str]:
    queues = ", ".join(f"{queue} {totals[queue]}" for queue in QUEUE_NAMES.values())
    yield f"  tasks {totals['tasks']}: {queues}"
    yield f"  barriers {totals['barriers']}"
    yield f"  memory: cmx_peak {totals['cmx_peak']}, scratch {totals['scratch']}"
    yield f"  ddr: ddr_read {totals['ddr_read']}, ddr_written {totals['ddr_written']}"


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*lines, _BLANK]:
        if line != _BLANK:
            block.append(line)
        elif block:
            yield block
            block = []


def _entry(block: list[str], file: str) -> Entry:
    head = _ENTRY.fullmatch(block[0])
    if head is None:
        raise BlobError(f"{file}: not a line of a listing: {block[0]!r}")
    totals: dict[str, int] = {}
    nodes: dict[str, Node] = {}
    name, open_node = "", False
    bindings: tuple[str, ...] = ()
    groups: list[Group] = []

    def close() -> None:
        if open_node:
            nodes[name] = Node(name, bindings, tuple(groups))

    for line in block[1:]:
        if (group := _GROUP.fullmatch(line)) and open_node:
            queue, kernel, stage, coords, body = group.groups()
            groups.append(Group(queue, _untoken(kernel), _untoken(stage), coords, body))
        elif node := _NODE.fullmatch(line):
            close()
            name, bindings, open_node = _untoken(node[1]), tuple(node[2].split()), True
            same = _untoken(node[3]) if node[3] else name
            if same != name and same not in nodes:
                raise BlobError(f"{file}: node {token(name)} is equal to {token(same)}, which does not come before it")
            groups = list(nodes[same].groups) if same != name else []
        elif not open_node:
            totals |= {key: int(value) for key, value in _NUMBER.findall(line)}
        else:
            raise BlobError(f"{file}: not a line of a listing: {line!r}")
    close()
    return Entry(_untoken(head[1]), int(head[2]), int(head[3]), totals, tuple(nodes.values()))
