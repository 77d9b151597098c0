"""A load that would empty a table and has no record for it is refused, whatever its sources are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import DataError, TargetError
from penstock.core.values.job import LoadRules
from support.files import write_to
from support.loads import IMPATIENT, Loads
from support.modes import mode_target

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a table with a row."""
    return Loads(ledger18, setup="CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x')")


def _make_sources(folder: Path, kind: str) -> Any:
    folder.mkdir()
    if kind == "no file":
        return folder
    if kind == "Parquet":
        schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
        pq.write_table(schema.empty_table(), folder / "f.parquet")
        return folder
    texts = {"empty": [""], "header": ["a,b\n"], "headers": ["a,b\n", "", "a,b"], "blank": ["\n"]}[kind]
    return [write_to(folder / f"{number}.csv", text) for number, text in enumerate(texts)]


@pytest.mark.parametrize("mode", ["truncate", "replace"])
@pytest.mark.parametrize("kind", ["no file", "empty", "header", "headers", "blank", "Parquet"])
def test_load_without_a_record_empties_no_table(loads: Loads, tmp_path: Path, mode: str, kind: str) -> None:
    """In a plan, a check and a load alike."""
    job = mode_target(_make_sources(tmp_path / "f", kind), mode=mode)
    for way in (loads.plan, loads.check, loads.run):
        with pytest.raises(TargetError, match="would empty table"):
            way(job)
    assert loads.count() == 1


@pytest.mark.parametrize("mode", ["truncate", "replace"])
@pytest.mark.parametrize("kind", ["empty", "headers", "Parquet"])
def test_emptied_load_says_that_it_is_meant(loads: Loads, tmp_path: Path, mode: str, kind: str) -> None:
    """The hint is followed. An empty table needs no such word."""
    job = mode_target(_make_sources(tmp_path / "f", kind), mode=mode)
    loads.run(job, rules=replace(IMPATIENT, emptied="load"))
    assert loads.count() == 0
    loads.run(job)


@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_one_record_in_any_file_is_enough(loads: Loads, tmp_path: Path, mode: str) -> None:
    """Behind files that have none; also without a header."""
    sources = _make_sources(tmp_path / "f", "headers")
    job = mode_target([*sources, write_to(tmp_path / "f" / "z.csv", "a,b\n2,y\n")], mode=mode)
    loads.run(job)
    assert loads.rows() == [(2, "y")]
    single = write_to(tmp_path / "1.csv", "3,z\n")
    loads.run(mode_target(single, mode=mode, has_header=False), rules=LoadRules(retry_for=0.0))
    assert loads.rows() == [(3, "z")]


@pytest.mark.parametrize("mode", ["replace", "truncate"])
def test_a_load_whose_records_are_all_rejected_empties_no_table(loads: Loads, tmp_path: Path, mode: str) -> None:
    """As a file of another day is rejected by the bounds of a partition. With one good record it does."""
    bad, good = write_to(tmp_path / "bad.csv", "x,y\nz,y\n"), write_to(tmp_path / "good.csv", "2,y\n")
    rules = replace(IMPATIENT, on_error="reject", atomic=mode == "truncate")
    for _ in range(2):
        with pytest.raises(TargetError, match="would empty table") as caught:
            loads.run(mode_target(bad, mode=mode, header=False), rules=rules)
        assert "All records were rejected" in (caught.value.detail or "")
        assert loads.rows() == [(1, "x")]
    loads.run(mode_target([bad, good], mode=mode, header=False), rules=rules)
    assert loads.rows() == [(2, "y")]
    emptying = replace(rules, emptied="load")
    assert loads.run(mode_target(bad, mode=mode, header=False), rules=emptying).rejected == 2
    assert loads.count() == 0


def test_a_load_whose_records_the_table_refused_says_where_to_see_why(loads: Loads, tmp_path: Path) -> None:
    """Their rejects are rolled back with the merge."""
    loads.execute("ALTER TABLE t ADD CHECK (a < 9)")
    job = mode_target(write_to(tmp_path / "f.csv", "a,b\n9,y\n"), mode="truncate")
    rules = replace(IMPATIENT, on_error="reject", atomic=True)
    with pytest.raises(TargetError, match="would empty table") as caught:
        loads.run(job, rules=rules)
    assert "--on-error stop" in (caught.value.hint or "")
    assert loads.execute("SELECT count(*) FROM penstock.rejects") == [(0,)]
    with pytest.raises(DataError, match="t_a_check"):
        loads.run(job, rules=replace(rules, on_error="stop"))
    assert loads.rows() == [(1, "x")]
