"""Changelog fragments have the names that a release looks for."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "changelog.d"
KINDS = {"added", "changed", "fixed", "removed"}


def test_fragments_are_named_by_the_rule() -> None:
    fragments = [path for path in FOLDER.iterdir() if path.name != "README.md"]
    for path in fragments:
        name, kind, suffix = path.name.split(".")
        assert name and kind in KINDS and suffix == "md", f"{path.name} is not NAME.KIND.md"
        assert path.read_text(encoding="utf-8").strip()
