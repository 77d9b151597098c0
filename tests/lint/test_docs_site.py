"""The site of the documentation has every page; `make docs` builds it, and fails for a dead link."""

from __future__ import annotations

import re

from support.repository import DOCS, ROOT, read_document


def test_every_page_is_listed() -> None:
    """A reader of the site finds all of them."""
    listed = set(re.findall(r"^ +- (docs/\S+\.md)$", read_document("mkdocs.yml"), re.MULTILINE))
    assert listed == {str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md")}


def test_every_decision_is_listed_with_its_title() -> None:
    """In docs/decisions/README.md, which a forge shows for the folder."""
    listed = read_document("docs/decisions/README.md").splitlines()
    missing = []
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        number, _, title = path.read_text("utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        line = f"* [{number}]({path.name}): {title}"
        missing += [] if line in listed else [line]
    assert missing == []
