"""sysbench's tables as files: their shape, and that a seed decides their bytes."""

from __future__ import annotations

import gzip
import re
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import UsageError
from penstock_lab.datasets.datafiles import TABLES, write_sysbench

if TYPE_CHECKING:
    from pathlib import Path

ROW = re.compile(r"(\d+)\t(\d+)\t(\d{11}(?:-\d{11}){9})\t(\d{11}(?:-\d{11}){4})")


def read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_rows_are_numbered_and_shaped_as_sysbench_makes_them(tmp_path: Path) -> None:
    files = write_sysbench(tmp_path, rows=5_000)
    assert [file.table for file in files] == list(TABLES)
    for file in files:
        header, *lines = read(file.path)
        assert header == "id\tk\tc\tpad"
        rows = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
        assert [int(row[0]) for row in rows] == list(range(1, 5_001))
        assert all(1 <= int(row[1]) <= 5_000 for row in rows)
        assert len({row[3] for row in rows}) == 5_000
        assert file.rows == 5_000
        assert file.plain_bytes == len("\n".join([header, *lines])) + 1


@pytest.mark.part("rest")
def test_k_has_the_distribution_special_of_sysbench(tmp_path: Path) -> None:
    """Three quarters in the upper part of the middle hundredth; the rest around it, with the spread of twelve draws."""
    rows = 100_000
    keys = [int(line.split("\t")[1]) for line in read(write_sysbench(tmp_path, rows=rows)[0].path)[1:]]
    first, last = 1 + (rows - 1) * 0.4975, 1 + (rows - 1) * 0.505 + 1
    middle = sum(first <= key <= last for key in keys)
    # A quarter of the values is spread about the middle, which has 3.6 % of these too.
    assert abs(middle / rows - (0.75 + 0.25 * 0.036)) < 0.01
    rest = [key for key in keys if not first <= key <= last]
    assert abs(fmean(rest) / rows - 0.5) < 0.01
    assert abs(pstdev(rest) / rows - 1 / 12) < 0.005


@pytest.mark.parametrize("rows", [1, 2, 3, 99])
def test_few_rows_have_keys_among_them(tmp_path: Path, rows: int) -> None:
    """As sysbench draws them: from 1 to the number of rows."""
    keys = {int(line.split("\t")[1]) for file in write_sysbench(tmp_path, rows=rows) for line in read(file.path)[1:]}
    assert keys <= set(range(1, rows + 1))


def test_tables_differ_and_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [file.path.read_bytes() for file in write_sysbench(tmp_path / "a", rows=100, seed=7)]
    again = [file.path.read_bytes() for file in write_sysbench(tmp_path / "b", rows=100, seed=7)]
    other = [file.path.read_bytes() for file in write_sysbench(tmp_path / "c", rows=100, seed=8)]
    assert first == again
    assert len({*first, *other}) == 6


def test_more_rows_than_an_integer_numbers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows must be from 1"):
        write_sysbench(tmp_path / "new", rows=2_147_483_648)
    assert not (tmp_path / "new").exists()
