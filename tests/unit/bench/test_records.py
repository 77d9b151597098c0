"""Records of benchmarks: each says by which commit and command it was made, and figures that are shown have one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.record import RECORDS, UncleanTree, require_commit

from support.files import write_to

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]

# Made before records named their command. One that is made again leaves this list, and none joins it.
FORMER: frozenset[str] = frozenset()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Provide a working tree with one commit."""
    write_to(tmp_path / "code.py", b"pass\n")
    for arguments in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "one"),
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def test_a_clean_tree_has_a_commit(tree: Path) -> None:
    """Also beside records that other benchmarks have just written."""
    (tree / "benchmarks" / "results").mkdir(parents=True)
    (tree / "benchmarks" / "results" / "new.json").touch()
    assert re.fullmatch(r"[0-9a-f]{12}", require_commit(tree))


@pytest.mark.parametrize("name", ["code.py", "new.py"])
def test_a_tree_that_differs_from_its_commit_gets_no_record(tree: Path, name: str) -> None:
    """By a file that was changed, or by one that git does not know."""
    write_to(tree / name, b"raise SystemExit\n")
    with pytest.raises(UncleanTree, match=name):
        require_commit(tree)


def test_code_without_a_commit_gets_no_record(tmp_path: Path) -> None:
    """As in an unpacked archive."""
    with pytest.raises(UncleanTree):
        require_commit(tmp_path)


def test_a_benchmark_refuses_to_begin_without_a_commit(tmp_path: Path) -> None:
    """Before it measures for an hour what it could not write down."""
    argv = [sys.executable, "-m", "benchmarks", "commits", "--results", str(tmp_path), "--data", str(tmp_path)]
    environment = {**os.environ, "GIT_DIR": str(tmp_path / "missing")}
    refused = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("no record: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_records_name_the_commit_and_the_command_that_made_them(path: Path) -> None:
    """The commit whole, without changes that nobody has; the command as it can be typed again."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if path.stem in FORMER:
        assert "command" not in record, f"{path.stem} was made again: remove it from FORMER"
        return
    for made in (record | {"commit": record["versions"]["commit"]}, record.get("computed_again")):
        if made is not None:
            assert re.fullmatch(r"[0-9a-f]{12}", made["commit"])
            assert made["command"].startswith("python -m benchmarks ")


def test_records_that_are_gone_leave_the_list() -> None:
    """So that it ends empty."""
    assert {path.stem for path in RECORDS.glob("*.json")} >= FORMER


def _commits_of(path: Path) -> set[str]:
    """Return the commits that a record names; the fault campaign's has a line, with a commit, for each seed."""
    lines = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.suffix == ".jsonl" else []
    )
    if lines:
        return {line["commit"] for line in lines}
    record = json.loads(path.read_text(encoding="utf-8"))
    return {made["commit"] for made in (record["versions"], record.get("computed_again")) if made is not None}


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json*")), ids=lambda path: path.stem)
def test_records_are_of_a_commit_of_this_history(path: Path) -> None:
    """Its code can be checked out and run again: the commit is HEAD or an ancestor of it."""
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs git and the whole history, not an archive or a shallow clone (git fetch --unshallow)")
    commits = _commits_of(path)
    unknown = [each for each in commits if _git("merge-base", "--is-ancestor", each, "HEAD").returncode]
    assert unknown == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_records_that_documents_name_exist(document: Path) -> None:
    """A figure whose record is gone has none."""
    named = re.findall(r"\]\(([^)#]*results/[^)]+)\)", document.read_text(encoding="utf-8"))
    assert [name for name in named if not (document.parent / name).exists()] == []


def test_figures_of_readme_are_those_of_their_records() -> None:
    """Each with its lowest and highest, in a row that ends with the date of its record."""
    rows = re.findall(
        r"^\|(.*)\| \[(.*)\]\((benchmarks/results/.*)\) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 3
    for row, date, name in rows:
        assert Path(name).name.startswith(f"{date}-")
        known = (ROOT / name).read_text(encoding="utf-8")
        figures = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", row)
        assert len(figures) == 2
        assert [each for each in figures if f"| {' | '.join(each)} |" not in known] == []
