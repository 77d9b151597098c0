"""The routes of a load: the loader sends the rows, or the server imports the objects from S3 itself."""

from __future__ import annotations

from typing import Literal

from penstock.frozen import frozen

Route = Literal["client", "server"]
# What the user asks for.
Via = Literal["client", "server", "auto"]


@frozen
class RoutePlan:
    """The route of a load, and why. `region` is the AWS region of the buckets, empty on the client's route."""

    via: Route = "client"
    reason: str = "as requested"
    region: str = ""

    @property
    def is_import(self) -> bool:
        """Whether the server imports the objects from S3 itself."""
        return self.via == "server"


CLIENT_ROUTE = RoutePlan()


@frozen
class Link:
    """The measured link to a server: seconds of a round trip, and bytes per second from here to there."""

    round_trip_s: float
    bytes_per_s: float


@frozen
class ImportRights:
    """The row of import_rights.sql: whether the role may call aws_s3.table_import_from_s3.

    `is_available`: the extension can be created. `exists`: the function exists. `is_trusted`: it belongs to the
    extension or to a superuser. `may_use` is USAGE on the schema, `may_execute` EXECUTE on the function.
    """

    role: str
    is_available: bool
    exists: bool
    is_trusted: bool
    may_use: bool
    may_execute: bool
