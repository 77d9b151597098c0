"""No record of a benchmark is made of code that has no commit, and records of code that has changed are made anew."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks import records
from benchmarks.options import Options
from benchmarks.record import RECORDS, UncleanTree, require_commit
from benchmarks.records import find_change, make_records, newest_records, without_words

from support.files import write_to
from support.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.part("rest")
def test_a_benchmark_refuses_to_begin_without_a_commit(tmp_path: Path) -> None:
    """Before it measures for an hour what it could not write down."""
    argv = [sys.executable, "-m", "benchmarks", "commits", "--results", str(tmp_path), "--data", str(tmp_path)]
    environment = {**os.environ, "GIT_DIR": str(tmp_path / "missing")}
    refused = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("no record: ")
    assert list(tmp_path.iterdir()) == []


def _commit(tree: Path, path: str, text: str) -> str:
    write_to(tree / path, text.encode())
    for arguments in (("add", "."), ("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "more")):
        subprocess.run(["git", *arguments], cwd=tree, check=True)
    return require_commit(tree)


def test_a_record_is_old_if_its_code_has_changed_and_not_if_words_have(tree: Path) -> None:
    """Of the files that its figures depend on; a commit that the history lacks is named."""
    (tree / "src").mkdir()
    before = _commit(tree, "src/a.py", '"""Old."""\n\nx = 1  # one\n')
    _commit(tree, "src/a.py", '"""New words."""\n\n# Why\nx = 1\n')
    _commit(tree, "src/b.md", "text")
    assert find_change(tree, before, ["src"]) is None
    _commit(tree, "src/a.py", "x = 2\n")
    assert find_change(tree, before, ["src"]) == "src/a.py"
    assert find_change(tree, before, ["code.py"]) is None
    with pytest.raises(ValueError, match="lacks commit 0123456789ab"):
        find_change(tree, "0123456789ab", ["src"])


@pytest.mark.parametrize(
    ("path", "before", "after", "is_same"),
    [
        ("a.rs", "// one\nfn f() {}\n", "fn f() {}\n\n", True),
        ("a.rs", "fn f() {}", "fn g() {}", False),
        ("a.sql", "-- one\nSELECT 1", "SELECT 1", True),
        ("a.toml", "x = 1", "x = 2", False),
        ("a.py", "def f():\n    'A.'\n    g()\n", "def f():\n    g()\n", True),
        ("a.py", "def f(): g('a')", "def f(): g('b')", False),
    ],
)
def test_words_of_code_do_not_count(path: str, before: str, after: str, is_same: bool) -> None:
    """Comments and docstrings; messages do."""
    assert (without_words(path, before) == without_words(path, after)) == is_same


def _options(tmp_path: Path) -> Options:
    fields = {"scale": 1.0, "runs": 1, "data": tmp_path, "results": tmp_path, "tspc": None, "on_busy": True}
    return Options(**fields, given=("--scale", "1.0"))  # type: ignore[arg-type]


def test_records_are_made_until_none_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was made at this commit is not made again; what fails or lacks its option is named, and the rest is made."""
    commit = "0" * 12
    monkeypatch.setattr(records, "require_commit", lambda: commit)
    monkeypatch.setattr(records, "find_change", lambda _, at, __: None if at == commit else "src/a.py")
    ran = list[str]()

    def run(argv: list[str], *, failing: str = "sync") -> int:
        name = argv[3]
        ran.append(" ".join(argv[3:]))
        if name != failing:
            record = {"benchmark": name, "versions": {"commit": commit}}
            write_to(tmp_path / f"2026-01-01-{name}.json", json.dumps(record).encode())
        return int(name == failing)

    names = ["memory", "sync", "pollock"]
    write_to(tmp_path / "2025-01-01-memory.json", b'{"benchmark": "memory", "versions": {"commit": "1"}}')
    assert make_records(names, _options(tmp_path), only_old=False, run=run) == 2
    assert ran == ["memory --runs 3 --scale 1.0", "sync --scale 0.5 --runs 3 --scale 1.0"]
    assert "missing sync (failed), pollock (needs --pollock)" in capsys.readouterr().out
    assert make_records(names[:2], _options(tmp_path), only_old=False, run=lambda argv: run(argv, failing="")) == 0
    assert ran[2:] == ["sync --scale 0.5 --runs 3 --scale 1.0"]
    assert newest_records(tmp_path)["memory"].name == "2026-01-01-memory.json"


def test_figures_name_code_that_exists() -> None:
    """For each benchmark that is listed, and no other."""
    from benchmarks.__main__ import BENCHMARKS

    assert sorted(records.FIGURES) == sorted(BENCHMARKS)
    root = RECORDS.parents[1]
    named = {path for name in BENCHMARKS for path in records.code_of(name)}
    assert [path for path in named if not (root / path).exists()] == []
    assert "benchmarks/commits.py" in records.code_of("commit_latency")
