"""RDS snapshot exports in S3, where AWS writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import penstock
from penstock.core.errors import UsageError
from penstock.loading.files.streams import SourceReader
from support.exports import make_export
from support.loads import Loads

if TYPE_CHECKING:
    from files.conftest import S3

_SETUP = "CREATE SCHEMA old; CREATE TABLE t (id int, v numeric); CREATE TABLE old.t (id int); CREATE TABLE big (id int)"


def _rows(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int32()), "v": [f"{n}.50" for n in range(count)]})


@pytest.fixture
def loads(s3: S3, database18: str) -> Loads:
    """Provide a database with the tables of an export that lies in the bucket; one of its tables has failed."""
    tables = {"public.t": [_rows(3), _rows(4)], "old.t": _rows(2).select(["id"])}
    entries = [{"target": "shop.public.big", "status": "FAILED", "failureCause": "row over 2 GB"}]
    for name, data in make_export(tables, entries=entries).items():
        s3.put(f"backups/nightly-0700/{name}", data)
    s3.put("backups/other/a.csv", b"id\n1\n")
    return Loads(database18, setup=_SETUP)


def test_export_is_loaded_into_the_tables_of_its_names(loads: Loads) -> None:
    """With a warning for each table that it lacks; again, nothing is loaded."""
    outcome = penstock.load("s3://landing/backups/nightly-0700/", to=loads.conninfo)
    assert (loads.count("t"), loads.count("old.t"), loads.execute("SELECT sum(v) FROM t")[0][0]) == (
        7,
        2,
        12.5,
    )
    assert [(each.code, each.message) for each in outcome.warnings] == [
        ("export", '"shop.public.big" is not in the export: status FAILED: row over 2 GB')
    ]
    assert penstock.load("s3://landing/backups/nightly-0700/", to=loads.conninfo).rows == 0


@pytest.mark.parametrize(("within", "counts"), [("shop", (7, 2)), ("shop/public.t", (7, 0)), ("shop/old.t", (0, 2))])
def test_a_database_or_a_table_of_an_export_is_loaded(loads: Loads, within: str, counts: tuple[int, int]) -> None:
    """The export above the folder says whether it is whole."""
    penstock.load(f"s3://landing/backups/nightly-0700/{within}/", to=loads.conninfo)
    assert (loads.count("t"), loads.count("old.t")) == counts


def test_warning_of_an_export_is_an_error_for_scripts(loads: Loads) -> None:
    """Before the first row."""
    with pytest.raises(UsageError, match="row over 2 GB"):
        penstock.load("s3://landing/backups/nightly-0700/", to=loads.conninfo, warnings="error")
    assert loads.count("t") == 0


@pytest.mark.parametrize(
    "source",
    ["s3://landing/", "s3://landing/backups/", "s3://landing/backups/other/missing/", "s3://landing/a", "https://h/a/"],
)
def test_other_source_needs_a_table(loads: Loads, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is listed: it may have millions of objects."""
    monkeypatch.setattr(SourceReader, "list_names", lambda *_: pytest.fail("listed"))
    with pytest.raises(UsageError, match="no table to load into"):
        penstock.load(source, to=loads.conninfo)
