"""sysbench's tables as files: their shape, and that a seed decides their bytes."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from penstock.errors import UsageError
from penstock.lab.datasets.sysbench import TABLES, write_sysbench

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
