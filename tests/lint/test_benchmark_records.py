"""Records of benchmarks: each says by which commit and command it was made, and figures that are shown have one."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.record import RECORDS

from support.repository import DOCS, ROOT, read_document

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]


def _made(path: Path) -> Iterator[dict[str, str]]:
    """Return by which commit and command a record was made, and its figures computed again."""
    record = json.loads(path.read_text(encoding="utf-8"))
    yield record | {"commit": record["versions"]["commit"]}
    if record.get("computed_again") is not None:
        yield record["computed_again"]


def test_records_name_the_commit_and_the_command_that_made_them(subtests: pytest.Subtests) -> None:
    """The commit whole, without changes that nobody has; the command as it can be typed again."""
    paths = sorted(RECORDS.glob("*.json"))
    assert len(paths) > 20
    for path in paths:
        with subtests.test(path.stem):
            for made in _made(path):
                assert re.fullmatch(r"[0-9a-f]{12}", made["commit"])
                assert made["command"].startswith("python -m benchmarks ")


def _commits_of(path: Path) -> set[str]:
    """Return the commits that a record names; the fault campaign's has a line, with a commit, for each seed."""
    if path.suffix == ".jsonl":
        return {json.loads(line)["commit"] for line in path.read_text(encoding="utf-8").splitlines()}
    return {made["commit"] for made in _made(path)}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_records_are_of_a_commit_of_this_history() -> None:
    """Its code can be checked out and run again: the commit is HEAD or an ancestor of it."""
    try:
        is_shallow = _git("rev-parse", "--is-shallow-repository").strip() != "false"
    except (OSError, subprocess.CalledProcessError):
        is_shallow = True
    if is_shallow:
        pytest.skip("needs git and the whole history, not an archive or a shallow clone (git fetch --unshallow)")
    history = {commit[:12] for commit in _git("rev-list", "HEAD").split()}
    unknown = {path.name: _commits_of(path) - history for path in RECORDS.glob("*.json*")}
    assert {name: commits for name, commits in unknown.items() if commits} == {}


def test_records_that_documents_name_exist() -> None:
    """A figure whose record is gone has none."""
    named = [
        (document, name)
        for document in _DOCUMENTS
        for name in re.findall(r"\]\(([^)#]*results/[^)]+)\)", document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 20
    assert [
        (str(document.relative_to(ROOT)), name) for document, name in named if not (document.parent / name).exists()
    ] == []


def test_figures_of_readme_are_those_of_their_records(subtests: pytest.Subtests) -> None:
    """Each with its lowest and highest, in a row that ends with the date of its record."""
    rows = re.findall(r"^\|(.*)\| \[(.*)\]\((benchmarks/results/.*)\) \|$", read_document("README.md"), re.MULTILINE)
    assert len(rows) == 5
    for row, date, name in rows:
        with subtests.test(name):
            assert Path(name).name.startswith(f"{date}-")
            figures = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", row)
            assert len(figures) == 2
            assert [each for each in figures if f"| {' | '.join(each)} |" not in read_document(name)] == []
