"""The site of the documentation has every page; `make docs` builds it, and fails for a dead link."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_listed() -> None:
    """A reader of the site finds all of them."""
    listed = set(re.findall(r"^ +- (docs/\S+\.md)$", (_ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert listed == {str(path.relative_to(_ROOT)) for path in (_ROOT / "docs").rglob("*.md")}


def test_every_decision_is_listed_with_its_title() -> None:
    """In docs/decisions/README.md, which a forge shows for the folder."""
    folder = _ROOT / "docs" / "decisions"
    for path in sorted(folder.glob("0*.md")):
        number, _, title = path.read_text("utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        assert f"* [{number}]({path.name}): {title}" in (folder / "README.md").read_text("utf-8").splitlines()
