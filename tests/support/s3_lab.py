"""Labs with an S3 (moto) whose servers have aws_s3, one for each version that is asked for."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock_lab.topology.lab import Lab
from penstock_lab.topology.s3 import BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mypy_boto3_s3 import S3Client

    from penstock_lab.topology.lab import LabStatus
    from support.servers import ServerPool

IMPORT = "SELECT aws_s3.table_import_from_s3(%s, %s, %s, aws_commons.create_s3_uri(%s, %s, %s))"


@dataclass
class S3Lab:
    """A lab, and an empty database on it with aws_s3. `bucket` is empty when a test begins."""

    lab: Lab
    status: LabStatus
    conninfo: str
    client: S3Client
    bucket: str = BUCKET
    region: str = "us-east-1"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that lead a loader to the bucket."""
        assert self.status.s3 is not None
        return {
            **self.status.s3,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def calls(self) -> Path:
        """Return the folder where calls are until they are read."""
        return self.status.folder / "calls"

    @property
    def log(self) -> str:
        """Return the server's log."""
        return (self.status.folder / "primary" / "log" / "server.log").read_text(encoding="utf-8")

    def put(self, key: str, body: bytes, *, encoding: str | None = None) -> None:
        """Store an object, with a Content-Encoding if one is given."""
        if encoding is None:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body)
        else:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentEncoding=encoding)

    def import_into(
        self,
        session: psycopg.Connection,
        key: str = "k.csv",
        *,
        table: str | None = "t",
        columns: str | None = "",
        options: str | None = "(format csv)",
    ) -> str:
        """Import an object by the shortest overload, and return what the function says."""
        row = session.execute(IMPORT, (table, columns, options, self.bucket, key, self.region)).fetchone()
        assert row is not None
        return str(row[0])

    def has_calls(self) -> bool:
        """Return whether a file of a call is there."""
        return any(self.calls.iterdir())

    def empty(self) -> None:
        """Remove all objects."""
        for item in self.client.list_objects_v2(Bucket=self.bucket).get("Contents", []):
            self.client.delete_object(Bucket=self.bucket, Key=item["Key"])


@dataclass
class S3Labs:
    """The labs of one test run. `close` takes them down."""

    pool: ServerPool
    _labs: dict[int, tuple[Lab, LabStatus, S3Client]] = field(default_factory=dict)
    _databases: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    _numbers = itertools.count(1)

    def database(self, major: int) -> S3Lab:
        """Return a new database on the lab of a version, and drop the one before.

        Raises maven.Unavailable if the version cannot be fetched.
        """
        if major not in self._labs:
            lab = Lab.named(f"s3-{major}", self.pool.new_home())
            status = lab.up("single", self.pool.installation(major), parameters="postgres", has_s3=True)
            assert status.s3 is not None
            client = boto3.client(
                "s3",
                region_name=status.s3["AWS_REGION"],
                endpoint_url=status.s3["AWS_ENDPOINT_URL"],
                aws_access_key_id=status.s3["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=status.s3["AWS_SECRET_ACCESS_KEY"],
            )
            self._labs[major] = lab, status, client
        lab, status, client = self._labs[major]
        assert status.conninfo is not None
        name = f"s3_{next(self._numbers)}"
        with psycopg.connect(status.conninfo, autocommit=True) as connection:
            for former in self._databases[major]:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(former)))
            self._databases[major] = [name]
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        conninfo = make_conninfo(status.conninfo, dbname=name)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION aws_s3 CASCADE")
        return S3Lab(lab=lab, status=status, conninfo=conninfo, client=client)

    def close(self) -> None:
        """Take all labs down."""
        for lab, _, client in self._labs.values():
            client.close()
            lab.down()
        self._labs.clear()
