"""Values that names of folders state as Hive writes them (year=2026/month=07) become columns of the rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.functions import retry
from penstock.core.errors import DataError, TargetError, UsageError
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.formats.probe.columnar import read_folder_values
from support.command import run_process
from support.loads import Loads

if TYPE_CHECKING:
    from pathlib import Path

_SETUP = "CREATE TABLE t (id int, year int, month text, city text DEFAULT 'none')"


def _write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": [1]}), path)
    return path


def _job(*sources: Path | str, **options: Any) -> TargetJob:
    return TargetJob(sources=tuple(map(str, sources)), into=parse_table_name("t"), **options)


@pytest.mark.parametrize(
    ("uri", "values"),
    [
        ("a.parquet", {}),
        ("year=2026/a.parquet", {"year": "2026"}),
        ("/data/year=2025/year=2026/k=a=b/k2=/=x/a=1.parquet", {"year": "2026", "k": "a=b", "k2": ""}),
        ("gs://b/a%3Db=x%2Fy%20z/day=__HIVE_DEFAULT_PARTITION__/a", {"a=b": "x/y z", "day": None}),
        ("gs://b/a=100%/b=%zz/c=%E9/a", {"a": "100%", "b": "%zz", "c": "%E9"}),
        ("https://h/dt%3D2026-07-01%2012%253A00/a.parquet", {"dt": "2026-07-01 12:00"}),
    ],
)
def test_names_of_folders_are_read_as_hive_writes_them(uri: str, values: dict[str, str | None]) -> None:
    """Of a name that is given twice the inner folder counts; the file's own name states nothing."""
    assert read_folder_values(uri) == values


def test_each_file_gets_the_values_of_its_own_folders(database18: str, tmp_path: Path) -> None:
    """Columns that no folder names keep their default; names that the table lacks are ignored; null is null."""
    loads = Loads(database18, setup=_SETUP)
    _write(tmp_path / "year=2026" / "month=07" / "x=1" / "a.parquet", id=[1, 2])
    _write(tmp_path / "year=2026" / "month=a%2Fb" / "a.parquet", id=[3])
    _write(tmp_path / "year=2025" / "month=__HIVE_DEFAULT_PARTITION__" / "a.parquet", id=[4])
    assert loads.run(_job(tmp_path / "**")).rows == 4
    assert loads.execute("SELECT * FROM t ORDER BY id") == [
        (1, 2026, "07", "none"),
        (2, 2026, "07", "none"),
        (3, 2026, "a/b", "none"),
        (4, 2025, None, "none"),
    ]


def test_the_files_own_column_and_set_come_before_the_folders(database18: str, tmp_path: Path) -> None:
    """A column is filled from one place: --set, else the file, else a folder; --skip skips both."""
    loads = Loads(database18, setup=_SETUP)
    path = _write(tmp_path / "year=2026" / "month=07" / "city=Rome" / "a.parquet", id=[1], Year=[1999])
    loads.run(_job(path, set={"month": "{null}"}, skip=("city",)))
    assert loads.execute("SELECT * FROM t") == [(1, 1999, None, "none")]


def test_created_tables_have_text_columns_for_all_folders(database18: str, tmp_path: Path) -> None:
    """The names in any of the paths are columns; a file whose folders lack one is an error."""
    loads = Loads(database18)
    _write(tmp_path / "a.parquet", id=[1])
    _write(tmp_path / "Year=2026" / "b.parquet", id=[2])
    with pytest.raises(TargetError, match='column "year" of table "t" is not in the file'):
        loads.run(_job(tmp_path / "**", create=True))
    loads.run(_job(tmp_path / "**", create=True, missing="default"))
    assert loads.execute("SELECT * FROM t ORDER BY id") == [(1, None), (2, "2026")]
    assert loads.execute(
        "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
    ) == [
        ("bigint",),
        ("text",),
    ]


def test_merged_loads_take_values_of_folders(database18: str, tmp_path: Path) -> None:
    """Staged records have them, so they can be the key of an upsert."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, year int, v text, PRIMARY KEY (id, year))")
    for version in ("old", "new"):
        for year in (2025, 2026):
            _write(tmp_path / version / f"year={year}" / "a.parquet", id=[1], v=[f"{version} {year}"])
        loads.run(_job(tmp_path / version / "**", mode="upsert", key=("id", "year")))
    assert loads.execute("SELECT year, v FROM t ORDER BY year") == [(2025, "new 2025"), (2026, "new 2026")]


def test_value_that_does_not_fit_is_refused_or_rejected(database18: str, tmp_path: Path) -> None:
    """The error names the file and the column; rejected rows keep the value, and a retry stores it."""
    loads = Loads(database18, setup=_SETUP)
    job = _job(_write(tmp_path / "year=new" / "month=1" / "a.parquet", id=[1, 2]))
    with pytest.raises(DataError) as caught:
        loads.run(job)
    assert re.search(r'year=new/month=1/a.parquet .*row 1, column "year": "new"', str(caught.value.detail))
    outcome = loads.run(job, rules=LoadRules(retry_for=0.0, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (0, 2)
    loads.execute("ALTER TABLE t ALTER year TYPE text")
    assert outcome.load_id is not None
    assert retry(outcome.load_id, to=loads.conninfo).rows == 2
    assert loads.execute("SELECT * FROM t") == [(1, "new", "1", "none"), (2, "new", "1", "none")]


@pytest.mark.part("rest")
def test_plan_shows_which_columns_folders_fill(loads: Loads, tmp_path: Path) -> None:
    """As text with the first file's value, and as JSON."""
    loads.execute(_SETUP)
    path = _write(tmp_path / "year=2026" / "month=1" / "a.parquet", id=[1])
    argv = ["load", str(path), "--into", "t", "--to", loads.conninfo, "--plan"]
    assert re.search("year +<- +folder +2026 .first file.\n", run_process(*argv).out)
    assert run_process(*argv, "--json").object["targets"][0]["folder_columns"] == {"year": "2026", "month": "1"}


def _types(loads: Loads) -> dict[str, str]:
    query = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return dict(loads.execute(query))


def test_types_infer_gives_columns_of_folders_the_types_of_all_their_values(database18: str, tmp_path: Path) -> None:
    """The file's own columns keep the file's types; a value with a leading zero keeps it; null decides nothing."""
    loads = Loads(database18)
    for day, code, city in (("2026-01-31", "7", "a"), ("2026-02-01", "007", "__HIVE_DEFAULT_PARTITION__")):
        _write(
            tmp_path / f"day={day}" / "year=2026" / f"code={code}" / f"city={city}" / "a.parquet", id=[1], year=["x"]
        )
    assert loads.run(_job(tmp_path / "**", create=True, types="infer")).rows == 2
    assert _types(loads) == {"id": "bigint", "year": "text", "day": "date", "code": "text", "city": "text"}
    assert loads.execute("SELECT day::text, code FROM t ORDER BY day") == [("2026-01-31", "7"), ("2026-02-01", "007")]


def test_types_widen_alters_a_column_for_the_values_of_later_folders(database18: str, tmp_path: Path) -> None:
    """As it does for values of files of text."""
    loads = Loads(database18)
    _write(tmp_path / "year=2026" / "day=2026-01-31" / "a.parquet")
    loads.run(_job(tmp_path / "**", create=True, types="widen"))
    assert _types(loads) == {"id": "bigint", "year": "integer", "day": "date"}
    _write(tmp_path / "year=3000000000" / "day=2026-01-31 12:00" / "b.parquet")
    loads.run(_job(tmp_path / "**", create=True, types="widen"))
    assert _types(loads) == {"id": "bigint", "year": "bigint", "day": "timestamp without time zone"}
    assert loads.count() == 2


def test_column_that_is_added_has_the_files_type_also_if_folders_are_looked_at(database18: str, tmp_path: Path) -> None:
    """Its values are not looked at, so nothing else could be chosen."""
    loads = Loads(database18, setup="CREATE TABLE t (id int, year int)")
    amounts = pa.array(["1.50", "2.25"]).cast(pa.decimal128(10, 2))
    _write(tmp_path / "year=2026" / "a.parquet", id=[1, 2], amount=amounts, at=pa.array([1.5, 2.5]))
    assert loads.run(_job(tmp_path / "**", types="widen", add_columns=True)).rows == 2
    found = loads.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass"
        " AND attnum > 2 ORDER BY 1"
    )
    assert found == [("amount", "numeric(10,2)"), ("at", "double precision")]


def test_types_of_files_without_folders_are_refused(database18: str, tmp_path: Path) -> None:
    """The option would do nothing."""
    with pytest.raises(UsageError):
        Loads(database18).run(_job(_write(tmp_path / "a.parquet"), create=True, types="infer"))
