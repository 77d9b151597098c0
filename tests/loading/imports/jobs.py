"""Jobs of the server's route, and objects that it can import."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.names import parse_table_name

if TYPE_CHECKING:
    from support.s3_lab import S3Lab

SERVER = LoadRules(via="server", retry_for=0.0)


def job(source: str = "s3://lab/d/", into: str = "t", **options: Any) -> TargetJob:
    """Return a target that loads a prefix; options are those of the target or of its dialect."""
    dialect = {name: options.pop(name) for name in list(options) if name in DialectOptions.__dataclass_fields__}
    return TargetJob(sources=(source,), into=parse_table_name(into), dialect=DialectOptions(**dialect), **options)


def put_zipped(s3: S3Lab, key: str, body: bytes) -> None:
    """Store an object compressed, with the metadata that RDS needs."""
    s3.put(key, gzip.compress(body, mtime=0), encoding="gzip")
