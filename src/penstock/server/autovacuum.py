"""Where autovacuum is at work on tables that a load fills, as any role may see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.errors import translate_errors
from penstock.server.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The row of autovacuum.sql: a table or leaf partition of a target where autovacuum is, or has been, at work.

    At its TOAST table counts too. `prevents_wraparound`: autovacuum comes there whatever the table's parameter says.
    """

    target_oid: int
    relation_oid: int
    schema: str
    relation: str
    is_at_work: bool
    prevents_wraparound: bool

    @property
    def name(self) -> str:
        """Return the table's name with its schema."""
        return f"{self.schema}.{self.relation}"


def find_visits(
    connection: Connection, *, pids: Sequence[int], target_oids: Sequence[int], since_s: float
) -> list[Visit]:
    """Return autovacuum's visits, within `since_s`, to tables that backends write rows of the targets to.

    Raises ServerError.
    """
    with translate_errors("looking for autovacuum at the tables that are loaded"):
        return fetch_rows(
            connection, "autovacuum", Visit, pids=list(pids), oids=list(target_oids), since_s=round(since_s, 3)
        )
