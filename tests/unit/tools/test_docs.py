"""Links between the documents lead to files that exist, and every decision stands in the list."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in folder.glob("0*.md"))


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[^\w.-]", wanted)[0] for group in groups for wanted in group} - {"npuc"}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"[\w.-]+", " ".join(line for line in page.splitlines() if line.startswith("| "))))
    assert names - rows == set()
