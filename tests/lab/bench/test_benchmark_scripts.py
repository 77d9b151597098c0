"""The benchmark scripts' own parts: what is compared must be the same rows."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.data import copy_text, split_as_copy_text, split_unequally
from benchmarks.pollock import mean_score, read_published
from benchmarks.processes import ProcessFailed, run_measured

from support.files import write_to

ROOT = Path(__file__).parents[3]
LINES = [b"tt%07d\t\\N\ta\\b \\N\n" % number for number in range(1000)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide a gzip file with a header and LINES."""
    return write_to(tmp_path / "file.tsv.gz", gzip.compress(b"a\tb\tc\n" + b"".join(LINES)))


def test_copy_text_doubles_backslashes_but_for_nulls() -> None:
    """A field that is no null, but has one's spelling in it, is data."""
    assert copy_text(b"\\N\ta\\b\t\\N\n\\Nx\t\\N\n") == b"\\N\ta\\\\b\t\\N\n\\\\Nx\t\\N\n"


def test_parts_hold_every_row_once(file: Path) -> None:
    """Joined they are the file, without its header."""
    parts = split_as_copy_text(file, 4)
    assert b"".join(part.read_bytes() for part in parts) == b"".join(map(copy_text, LINES))
    assert all(part.read_bytes().endswith(b"\n") for part in parts)


def test_unequal_files_hold_every_row_once(file: Path) -> None:
    """Each has the header."""
    rows = [row for part in split_unequally(file, [0.7, 0.2, 0.1]) for row in part.read_bytes().splitlines(True)[1:]]
    assert rows == LINES


def test_cost_is_the_process_own(file: Path) -> None:
    """Its memory is its own, not this interpreter's, which started it."""
    cost = run_measured(
        [sys.executable, "-I", "-S", "-c", "import sys; x = bytearray(40_000_000); sys.stdin.read()"], gunzip=file
    )
    assert cost.peak_rss_bytes is not None
    assert 40_000_000 < cost.peak_rss_bytes < 80_000_000


def test_failed_process_is_told() -> None:
    """With what it said."""
    with pytest.raises(ProcessFailed, match="no such thing"):
        run_measured([sys.executable, "-I", "-S", "-c", "raise SystemExit('no such thing')"])


def test_process_may_end_as_it_should() -> None:
    """With the status that is expected, and no other."""
    argv = [sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"]
    assert run_measured(argv, status=3).seconds > 0
    with pytest.raises(ProcessFailed):
        run_measured(argv, status=4)


@pytest.mark.part("rest")
def test_benchmarks_are_listed() -> None:
    """A line for each, as in the table of their page."""
    argv = [sys.executable, "-m", "benchmarks", "list"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert sorted(line.split(":")[0] for line in listed.splitlines()) == sorted(
        re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    )


def test_scores_of_polluted_files_are_means_of_ten_measures() -> None:
    """The weighted one by how often a pollution was seen; the published ones are those of Pollock's README."""
    scores = {"a.csv": [1.0] * 10, "b.csv": [1.0] * 5 + [0.0] * 5}
    assert (mean_score(scores), mean_score(scores, {"a.csv": 1, "b.csv": 4})) == (7.5, 6.0)
    readme = "| DuckDB 1.2 (Auto)        | **9.075**               | **8.439**                 |\n"
    assert list(read_published(readme)) == [("DuckDB 1.2 (Auto)", (9.075, 8.439))]
