"""No record of a benchmark is made of code that has no commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks.record import UncleanTree, require_commit

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
