"""The routes of a load: the loader sends the rows, or the server imports the objects from S3 itself."""

from __future__ import annotations

from typing import Literal

from penstock.frozen import frozen

Route = Literal["client", "server"]
# The routes that the user can request.
Via = Literal["client", "server", "auto"]


@frozen
class RoutePlan:
    """The route of a load, and why it was chosen."""

    via: Route = "client"
    reason: str = "as requested"
    # The AWS region of the buckets; empty if the loader sends the rows.
    region: str = ""

    @property
    def is_import(self) -> bool:
        """Whether the server imports the objects from S3 itself."""
        return self.via == "server"


CLIENT_ROUTE = RoutePlan()


@frozen
class Link:
    """The measured link to a server."""

    # The time of a round trip.
    round_trip_s: float
    # From here to the server.
    bytes_per_s: float


@frozen
class ImportRights:
    """The row of import_rights.sql: whether the role may call aws_s3.table_import_from_s3."""

    role: str
    # Whether the extension can be created.
    is_available: bool
    # Whether the function exists.
    exists: bool
    # Whether the function belongs to the extension or to a superuser.
    is_trusted: bool
    # USAGE on the schema.
    may_use: bool
    # EXECUTE on the function.
    may_execute: bool
