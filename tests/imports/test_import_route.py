"""penstock load --via server: the server imports whole objects from S3, each in a transaction of its own."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from penstock.model.load.job import LoadRules, TargetJob
from penstock.model.server.names import parse_table_name
from penstock.model.source.dialect import DialectOptions

if TYPE_CHECKING:
    from files.conftest import S3
    from support.loads import Loads

_SERVER = LoadRules(via="server", retry_for=0.0)


def job(prefix: str = "d/", into: str = "t", **options: Any) -> TargetJob:
    """Return a target that loads a prefix; options are those of the target or of its dialect."""
    dialect = {name: options.pop(name) for name in list(options) if name in DialectOptions.__dataclass_fields__}
    return TargetJob(
        sources=(f"s3://landing/{prefix}",), into=parse_table_name(into), dialect=DialectOptions(**dialect), **options
    )


def put_zipped(s3: S3, key: str, body: bytes) -> None:
    """Store an object compressed, with the metadata that RDS needs."""
    s3.client.put_object(Bucket="landing", Key=key, Body=gzip.compress(body, mtime=0), ContentEncoding="gzip")


def test_prefix_is_imported_once_and_equals_the_clients_route(s3: S3, loads: Loads) -> None:
    """50 objects, plain and gzip, with quotes, nulls and backslashes; a second run finds nothing to do."""
    for number in range(50):
        body = f'a,b\n{number},"x, ""y"""\n{number + 100},\n{number + 200},back\\slash\n{number + 300},""\n'.encode()
        put = put_zipped if number % 2 else S3.put
        put(s3, f"d/part-{number:02}.csv", body)
    outcome = loads.run(job(), rules=_SERVER, sessions=3)
    assert (outcome.rows, len(outcome.files)) == (200, 50)
    assert loads.execute("SELECT unit, count(*) FROM penstock.objects GROUP BY 1") == [("object", 50)]
    assert loads.run(job(), rules=_SERVER).objects_skipped == 50
    loads.execute("CREATE TABLE u (a int, b text)")
    assert loads.run(job(into="u")).rows == 200
    assert loads.rows() == loads.rows("u")
