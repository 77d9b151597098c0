"""Columnar files in S3: read by ranges of the version that was listed, and only as far as they are needed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.errors import SourceError
from penstock.loading.files.columnar.reader import SentColumn
from penstock.loading.files.streams import SourceReader
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loading.files.remote.conftest import S3

_ROWS = 20_000
_ID = SentColumn("id", "bigint", "bigint")


def _parquet(first: int = 0) -> bytes:
    out = io.BytesIO()
    values = [f"{n:0400d}" for n in range(first, first + _ROWS)]
    table = pa.table({"id": pa.array(range(first, first + _ROWS), pa.int64()), "v": values})
    pq.write_table(table, out, row_group_size=5_000, compression="none", use_dictionary=False)
    return out.getvalue()


@pytest.fixture
def reader() -> Iterator[SourceReader]:
    """Provide a reader that uses the environment's AWS configuration."""
    with SourceReader(credentials=AwsCredentials(), jitter=lambda: 0.0) as opened:
        yield opened


@pytest.mark.part("rest")
def test_objects_of_a_prefix_are_loaded(s3: S3, database18: str) -> None:
    """Each by its own ranges, by two sessions."""
    for number in range(3):
        s3.put(f"orders/{number}.parquet", _parquet(number * _ROWS))
    loads = Loads(database18)
    assert loads.run(target("s3://landing/orders/", create=True)).rows == 3 * _ROWS  # type: ignore[arg-type]
    assert loads.execute("SELECT count(DISTINCT id), min(v), max(id) FROM t") == [(3 * _ROWS, "0" * 400, 3 * _ROWS - 1)]


def test_only_the_columns_that_are_needed_are_fetched(s3: S3, reader: SourceReader) -> None:
    """A column of 160 kB out of an object of 8 MB."""
    data = _parquet()
    s3.put("a.parquet", data)
    (source,) = reader.list(["s3://landing/a.parquet"])
    file, opened = reader.open_columnar(source, "parquet")
    with file:
        found = opened.read([_ID], [(0, _ROWS)], is_binary=True, rejects=False)
        assert sum(rows.end - rows.start for rows in found) == _ROWS
    assert file.bytes_read < 500_000 < len(data)


@pytest.mark.part("rest")
def test_object_that_is_replaced_while_it_is_read_is_an_error(s3: S3, reader: SourceReader) -> None:
    """Its ETag pins it."""
    s3.put("a.parquet", _parquet())
    (source,) = reader.list(["s3://landing/a.parquet"])
    file, opened = reader.open_columnar(source, "parquet")
    with file, pytest.raises(SourceError):
        for _ in opened.read([_ID], [(0, _ROWS)], is_binary=True, rejects=False):
            s3.put("a.parquet", _parquet(7))


@pytest.mark.part("rest")
def test_names_of_folders_in_keys_are_columns(s3: S3, database18: str) -> None:
    """As Hive writes them, percent-encoded; the key itself is used as it is."""
    s3.put("sales/year=2026/city=S%C3%A3o%20Paulo/a.parquet", _parquet())
    loads = Loads(database18, setup="CREATE TABLE t (id bigint, v text, year int, city text)")
    loads.run(target("s3://landing/sales/"))  # type: ignore[arg-type]
    assert loads.execute("SELECT year, city, count(*) FROM t GROUP BY 1, 2") == [(2026, "São Paulo", _ROWS)]
