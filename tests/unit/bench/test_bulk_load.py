"""What the comparison makes of its runs."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from penstock.bench.bulk_load import BulkLoadResult, WayResult, check_rows
from penstock.errors import LabError
from penstock.host import machine, read_machine
from penstock.lab.datasets.datafiles import DataFile

FILE = DataFile(table="title.ratings", path=Path("title.ratings.tsv.gz"), rows=3, plain_bytes=60, size_bytes=40)


def way(name: str, *runs_s: float, published_s: int | None = None) -> WayResult:
    """Return a way that took these seconds."""
    return WayResult(name=name, description="", runs_s=runs_s, published_s=published_s)


def result(*ways: WayResult) -> BulkLoadResult:
    """Return a comparison of ways."""
    return BulkLoadResult(
        ways=ways,
        schema="staging",
        tables=("title_ratings",),
        rows=3,
        plain_bytes=60,
        size_bytes=40,
        machine=read_machine(),
        postgresql="18.0",
    )


def test_one_slow_run_does_not_move_the_median() -> None:
    """A disturbed run is not what a way takes."""
    assert way("a", 1.0, 60.0, 2.0).median_s == 2.0


def test_ways_are_compared_with_the_first() -> None:
    """Twice as fast is half the seconds."""
    first, second = way("in turn", 4.0), way("in parallel", 2.0)
    compared = result(first, second)
    assert compared.times_as_fast(first) == 1.0
    assert compared.times_as_fast(second) == 2.0


def test_missing_rows_are_an_error_that_names_the_file() -> None:
    """A way that loses rows has no time worth showing."""
    with pytest.raises(LabError, match=r'"psql" did not load every row of title\.ratings'):
        check_rows("psql", {"title_ratings": 2}, [FILE])


def test_all_rows_pass() -> None:
    """What was written is what is there."""
    check_rows("psql", {"title_ratings": 3}, [FILE])


def test_cpu_model_is_read_as_documented() -> None:
    """The example in the docstring holds, and a text without the line has no model."""
    assert doctest.testmod(machine).failed == 0
    assert machine.parse_cpu_model("processor : 0\n") is None
