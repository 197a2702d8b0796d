"""The doors between the packages: who may import whom, checked on the source text with `ast`.

`python -m tools.layering` prints one line per import that breaks a rule, with the reason of the rule, and exits with 1.
The rules are data (`RULES`); each one speaks about a package, the names that it may not import, and why.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "npuc", ROOT / "runtime" / "npurt", ROOT / "kernels" / "npukernels")


@dataclass(frozen=True)
class Rule:
    """What a package may import.

    package: dotted name; the rule holds for it and everything below it but for `exempt`. deny: names (and all below)
    that are refused, except those of `allow`. only: where given, every import from outside the standard library and
    the package itself must be one of these. lazy: names that are allowed inside functions alone. why: the reason, for
    the message.
    """

    package: str
    why: str
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    lazy: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


RULES = (
    Rule(
        "npurt",
        only=("numpy",),
        lazy=("tokenizers", "jinja2"),
        why="NumPy alone loads and runs a blob; tokenizers and jinja2 only inside functions of npurt.llm",
    ),
    Rule(
        "npukernels",
        only=("npuc.tile",),
        exempt=("npukernels.forms",),
        why="a kernel of the library has no privilege that a user's kernel lacks",
    ),
    Rule("npukernels.forms", only=("npuc.tile", "npukernels", "numpy"), why="an example is a kernel and its reference"),
    Rule("npuc.check", deny=("npuc.schedule",), why="the checker is independent of the scheduler that it checks"),
    Rule(
        "npuc.bound",
        deny=("npuc",),
        allow=("npuc.bound", "npuc.graph"),
        why="the bound reads the canonical graph and the target alone, so that no tile size can move it",
    ),
    Rule(
        "npuc.tasks",
        deny=("npuc",),
        allow=("npuc.tasks",),
        why="the task records know machines of every kind and no stage of the compiler",
    ),
    Rule(
        "npuc.tile",
        deny=("npuc",),
        allow=("npuc.tile", "npuc.tasks"),
        why="the tile language knows task records, and neither graphs nor the scheduler",
    ),
    Rule(
        "npuc.cli",
        only=("click", "npuc.cli", "npuc.__version__"),
        lazy=("npuc", "npurt", "numpy", "onnx", "onnx_ir", "lief", "rich"),
        why="commands import inside their functions, so that `npuc --help` starts at once",
    ),
    Rule(
        "npuc",
        deny=("onnxruntime", "onnxscript", "torch", "tokenizers", "jinja2"),
        exempt=("npuc.compare",),
        why="the compiler runs without the tools of its tests, of exporters and of sessions",
    ),
    Rule(
        "npuc.compare",
        deny=("onnxscript", "torch", "tokenizers", "jinja2"),
        lazy=("onnxruntime",),
        why="onnxruntime is an extra, which only a comparison may need, when it runs",
    ),
)


@dataclass(frozen=True)
class Import:
    """One imported name: dotted, the line, and whether it stands at the top level of its module."""

    name: str
    line: int
    top: bool


@dataclass
class _Finder(ast.NodeVisitor):
    """Collects the imports of one module; imports for type checkers alone do not count."""

    package: str
    depth: int = 0
    found: list[Import] = field(default_factory=list)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.found.append(Import(alias.name, node.lineno, self.depth == 0))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")
            kept = parents[: len(parents) - node.level + 1]
            base = ".".join([*kept, base] if base else kept)
        for alias in node.names:
            self.found.append(Import(f"{base}.{alias.name}", node.lineno, self.depth == 0))


def imports(source: str, package: str) -> list[Import]:
    """The imports of a module's text; `package` is the package that relative imports start from."""
    finder = _Finder(package)
    finder.visit(ast.parse(source))
    return finder.found


def check(module: str, found: list[Import]) -> Iterator[tuple[Import, Rule, str]]:
    """Every import of `module` (dotted) that breaks a rule, with the rule and what is wrong in words."""
    for rule in RULES:
        if not _within(module, rule.package) or any(_within(module, name) for name in rule.exempt):
            continue
        for item in found:
            words = _fault(rule, item)
            if words:
                yield item, rule, words


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _fault(rule: Rule, item: Import) -> str:
    def hits(names: tuple[str, ...]) -> bool:
        return any(_within(item.name, name) for name in names)

    if hits(rule.deny) and not hits(rule.allow):
        return "may not import"
    if item.name.split(".")[0] in sys.stdlib_module_names or _within(item.name, rule.package) or hits(rule.only or ()):
        return ""
    if hits(rule.lazy):
        return "may import only inside a function" if item.top else ""
    return "" if rule.only is None else "may not import"


def main() -> int:
    """The command line: checks every source file. Exit code 1 where a rule is broken."""
    faults = count = 0
    for folder in SOURCES:
        for path in sorted(folder.rglob("*.py")):
            count += 1
            parts = path.relative_to(folder.parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            package = module if is_package else module.rpartition(".")[0]
            for item, rule, words in check(module, imports(path.read_text(encoding="utf-8"), package)):
                faults += 1
                print(f"{path.relative_to(ROOT)}:{item.line}: {module} {words} {item.name}: {rule.why}")
    print(f"layering: {count} modules, {faults} broken rule{'' if faults == 1 else 's'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
