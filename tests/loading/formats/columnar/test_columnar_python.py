"""penstock.load takes tables in memory of whatever library has the Arrow C stream interface."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.loads import Loads

_ROWS = [(n, f"text {n % 3}", dt.date(2020, 1, 1 + n % 28)) for n in range(200_000)]
_TABLE = pa.table({"id": [row[0] for row in _ROWS], "t": [row[1] for row in _ROWS], "d": [row[2] for row in _ROWS]})


def _of_polars() -> Any:
    polars = pytest.importorskip("polars")
    return polars.from_arrow(_TABLE).with_columns(polars.col("t").cast(polars.Categorical))


def _of_duckdb() -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(_TABLE)


def _of_pandas() -> Any:
    pytest.importorskip("pandas")
    return _TABLE.to_pandas(date_as_object=True)


def _with_dictionaries() -> Any:
    # Each batch has its own dictionary.
    parts = [_TABLE.slice(start, 50_000).to_batches()[0] for start in range(0, 200_000, 50_000)]
    encoded = [part.set_column(1, "t", part.column("t").dictionary_encode()) for part in parts]
    return pa.RecordBatchReader.from_batches(encoded[0].schema, encoded)


@pytest.mark.parametrize(
    "make", [lambda: _TABLE, _TABLE.to_reader, _with_dictionaries, _of_polars, _of_duckdb, _of_pandas]
)
def test_tables_in_memory_are_loaded(loads: Loads, make: Callable[[], Any]) -> None:
    """Into a table of their types; each call loads them."""
    outcome = penstock.load(make(), "t", to=loads.conninfo, create=True, no_record=True)
    assert outcome.rows == len(_ROWS)
    assert loads.execute("SELECT * FROM t ORDER BY id") == _ROWS
    types = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
    assert loads.execute(types) == [("bigint",), ("text",), ("date",)]


def test_files_and_tables_are_loaded_without_pyarrow(
    loads: Loads, write_parquet: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of polars, which needs it no more than penstock does."""
    polars = pytest.importorskip("polars")
    frame, path = polars.DataFrame({"id": [1, 2], "t": ["a", None]}), write_parquet({"id": [3], "t": ["c"]})
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert penstock.load(frame, "t", to=loads.conninfo, create=True).rows == 2
    assert penstock.load(path, "t", to=loads.conninfo).rows == 1
    assert loads.execute("SELECT * FROM t ORDER BY id") == [(1, "a"), (2, None), (3, "c")]


def test_stream_that_fails_leaves_nothing(loads: Loads) -> None:
    """The error is of the source; the table is not created."""

    def batches() -> Any:
        yield _TABLE.to_batches()[0]
        raise ValueError("the end of it")

    reader = pa.RecordBatchReader.from_batches(_TABLE.schema, batches())
    with pytest.raises(penstock.SourceError, match="RecordBatchReader"):
        penstock.load(reader, "t", to=loads.conninfo, create=True)
    assert not loads.has_table("t")


@pytest.mark.parametrize("keys", [["id"], ["id", "t"], ["t"]])
def test_index_of_pandas_with_a_name_is_data(loads: Loads, keys: list[str]) -> None:
    """Also one whose values 1, 2, 3 pandas keeps as a range, and does not stream."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2, 3], "t": ["a", "b", "c"], "n": [7, 8, 9]})
    penstock.load(frame.set_index(keys), "t", to=loads.conninfo, create=True, no_record=True)
    assert loads.execute("SELECT id, t, n FROM t ORDER BY id") == [(1, "a", 7), (2, "b", 8), (3, "c", 9)]
