"""JSON Lines in S3: several objects, compressed or not, by several sessions."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from support.loads import Loads
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from loading.files.remote.conftest import S3


def test_objects_of_s3_are_loaded_with_their_types(s3: S3, database18: str) -> None:
    """A name that only the last object has becomes a column."""
    for number in range(3):
        records = [{"id": number * 20_000 + each, "v": {"k": "x" * 50}} for each in range(20_000)]
        records[-1] |= {f"only{number}": number}
        body = "".join(f"{json.dumps(record)}\n" for record in records).encode()
        s3.put(f"j/{number}.jsonl", gzip.compress(body, 1) if number else body)
    loads = Loads(database18)
    assert loads.run(make_target("s3://landing/j/"), sessions=3).rows == 60_000
    assert types_of(loads) == ["integer", "jsonb", "integer", "integer", "integer"]
    assert loads.execute("SELECT count(DISTINCT id), count(v -> 'k'), sum(only0), sum(only2) FROM t") == [
        (60_000, 60_000, 0, 2)
    ]
