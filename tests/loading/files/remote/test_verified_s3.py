"""Loads from S3 are verified against the objects as they are now."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import SourceError
from support.loads import Loads
from support.modes import mode_target
from support.proofs import load, said, verify

if TYPE_CHECKING:
    from loading.files.remote.conftest import S3
    from penstock.core.values.job import TargetJob

_TEXT = b"a,b\n" + b"".join(b"%d,v%d\n" % (number, number % 7) for number in range(200))


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads into a database with table t."""
    return Loads(database18, setup="CREATE TABLE t (a int, b text)")


def job(source: str = "s3://landing/d/", mode: str = "truncate") -> TargetJob:
    """Return a target that S3 fills."""
    return replace(mode_target(Path("x"), mode), sources=(source,))


def parquet() -> bytes:
    """Return a columnar file of two rows."""
    file = io.BytesIO()
    pq.write_table(pa.table({"a": [300, 301], "b": ["x", "y"]}), file)
    return file.getvalue()


@pytest.mark.part("rest")
@pytest.mark.parametrize("values", [False, True])
def test_objects_of_a_prefix_are_verified(s3: S3, loads: Loads, values: bool) -> None:
    """Text and gzip; a row that is missing is named by its object's URL and line."""
    s3.put("d/one.csv", _TEXT)
    s3.put("d/two.csv.gz", gzip.compress(b"a,b\n300,x\n301,y\n"))
    load_id = load(loads, job())
    outcome = verify(loads, load_id, values=values)
    assert (outcome.problems, outcome.tables[0].rows) == ((), 202)
    assert outcome.tables[0].compared == (202 if values else None)
    loads.execute("DELETE FROM t WHERE a = 301")
    problems = [(each.uri, each.line) for each in verify(loads, load_id, values=values).problems]
    assert problems == [("public.t", None), *([("s3://landing/d/two.csv.gz", 3)] if values else [])]


@pytest.mark.part("rest")
def test_columnar_object_is_verified(s3: S3, loads: Loads) -> None:
    """Its rows are read by ranges again."""
    s3.put("d/rows.parquet", parquet())
    load_id = load(loads, job())
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE t SET b = 'z' WHERE a = 301")
    assert said(verify(loads, load_id))[0] == ("is not in the table", 2)


@pytest.mark.part("rest")
def test_object_that_was_replaced_or_deleted_is_named(s3: S3, loads: Loads) -> None:
    """By its ETag: the same content is the same object; of a prefix the others are still held against the ledger."""
    s3.put("d/one.csv", _TEXT)
    s3.put("d/two.csv", b"a,b\n300,x\n")
    load_id = load(loads, job(mode="append"))
    s3.put("d/one.csv", _TEXT)
    s3.put("d/three.csv", b"c\n1\n")
    assert verify(loads, load_id).problems == ()
    s3.put("d/one.csv", _TEXT.replace(b"40,", b"49,"))
    s3.client.delete_object(Bucket="landing", Key="d/two.csv")
    found = {(each.uri, each.message) for each in verify(loads, load_id).problems}
    assert found == {
        ("s3://landing/d/one.csv", "has changed since it was loaded"),
        ("s3://landing/d/two.csv", "is not among the load's sources any more"),
    }


def test_named_object_that_is_gone_is_an_error(s3: S3, loads: Loads) -> None:
    """The error names it."""
    s3.put("d/one.csv", _TEXT)
    load_id = load(loads, job("s3://landing/d/one.csv"))
    s3.client.delete_object(Bucket="landing", Key="d/one.csv")
    with pytest.raises(SourceError, match=r'"s3://landing/d/one.csv" does not exist'):
        verify(loads, load_id)
