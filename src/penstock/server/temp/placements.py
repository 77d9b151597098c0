"""Where a place for temporary work is written down: a table in one database of the cluster, beside the leases."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.errors import TargetError
from penstock.model.temp.placement import TABLESPACE, Placement, Scope
from penstock.server.connect.errors import translate_errors
from penstock.server.leases import LEASE_DATABASE, LeaseLocks, refuse_publications, writing_durably

if TYPE_CHECKING:
    from typing import Any

_COMMENT = "penstock placements of temporary work, version 1"
_RECORDING = "recording a place for temporary work"

_CREATE = """
    CREATE TABLE penstock.placements (
        tablespace name PRIMARY KEY,
        placement jsonb NOT NULL,
        owner name NOT NULL DEFAULT CURRENT_USER,
        began_at timestamptz NOT NULL DEFAULT pg_catalog.now()
    )
"""

_WRITE = """
    INSERT INTO penstock.placements (tablespace, placement)
    VALUES (%s, %s)
        ON CONFLICT (tablespace) DO UPDATE SET placement = excluded.placement
"""


class PlacementStore(LeaseLocks):
    """The placement of a cluster, by a session in LEASE_DATABASE. Methods raise ServerError, TargetError."""

    def _exists(self) -> bool:
        """Whether there is a table of placements; refuse one that cannot be trusted: what it says will be run."""
        found = self.find_relations(["placements"], what="looking for a place for temporary work")
        comments = [relation.comment for relation in found if relation.name is not None]
        if comments and comments != [_COMMENT]:
            raise TargetError(
                f"table penstock.placements of database {LEASE_DATABASE} was created by another version of penstock",
                hint="Use that version.",
            )
        return bool(comments)

    def read(self) -> Placement | None:
        """Return what is written down, None if nothing is."""
        if not self._exists():
            return None
        try:
            with translate_errors("reading the place for temporary work"):
                row = self.connection.execute("SELECT placement, owner::text FROM ONLY penstock.placements").fetchone()
        except TargetError as error:
            error.hint = "Connect as a superuser, or take such a role with --role."
            raise
        return None if row is None else _to_placement(*row)

    def write(self, placement: Placement) -> None:
        """Write a placement down, in place of what was."""
        is_there = self._exists()
        if not is_there:
            refuse_publications(self.connection, "a place for temporary work", hint="Drop it while this runs.")
        with writing_durably(self.connection, _RECORDING):
            if not is_there:
                self.create_schema(["placements"])
                self.connection.execute(_CREATE)
                comment = sql.SQL("COMMENT ON TABLE penstock.placements IS {}").format(sql.Literal(_COMMENT))
                self.connection.execute(comment)
                # Owned by whom SET ROLE has made the current role.
                self._exists()
            self.connection.execute(_WRITE, [TABLESPACE, Jsonb(asdict(placement))])

    def forget(self) -> None:
        """Remove what is written down."""
        with writing_durably(self.connection, _RECORDING):
            self.connection.execute("DELETE FROM ONLY penstock.placements")


def _to_placement(found: dict[str, Any], owner: str) -> Placement:
    prior = found["prior"]
    return Placement(
        location=found["location"],
        scope=Scope(**found["scope"]),
        granted=tuple(found["granted"]),
        prior=None if prior is None else tuple(prior),
        owner=owner,
        stage=found["stage"],
        shares_disk=found.get("shares_disk", False),
    )
