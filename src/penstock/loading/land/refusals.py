"""Refuses tables on which a merge would fail, or not do what it says: rules, no replica identity, no right to delete.

The server finds some of this itself when it plans the statement. It is looked up here, so that a plan refuses what the
load would refuse. A plan does not let the server plan the statement, because that may run functions of the table's
owner.
"""

from __future__ import annotations

from collections.abc import Collection

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows, table_identifier
from penstock.core.values.job import TargetJob
from penstock.core.values.mode import TriggerEvent
from penstock.core.values.table import TableFacts


@slotted
class RuleRow:
    """The row of firing_rules.sql: a rule that rewrites an INSERT, UPDATE or DELETE of this session."""

    name: str
    event: TriggerEvent


@slotted
class UnidentifiedRow:
    """The row of unidentified.sql: a table without a replica identity, and which commands on it are published."""

    name: str
    publishes_updates: bool
    publishes_deletes: bool


def check_statements(connection: Connection, target: TableFacts, job: TargetJob) -> None:
    """Raise TargetError if the commands that a merge runs on a table would fail, or would be rewritten by a rule.

    They fail if the table lacks a replica identity that a publication needs, or if the role lacks DELETE for a sync.
    Raises ServerError.
    """
    events = _find_events(job)
    # The server refuses ON CONFLICT for a table with rules on UPDATE, even if no row is updated.
    rewritten = events | ({"UPDATE"} if job.landing.is_keyed else set())
    with translate_errors(f"looking up rules and publications of {target.name}"):
        rules = fetch_rows(connection, "loading/firing_rules", RuleRow, oid=target.oid)
        changes = events - {"INSERT"}
        found = fetch_rows(connection, "loading/unidentified", UnidentifiedRow, oid=target.oid) if changes else []
        may_delete = "DELETE" not in events or fetch_one(
            connection, "SELECT pg_catalog.has_table_privilege(%s::oid, 'DELETE')", [target.oid]
        ) == (True,)
    if rule := next((rule for rule in rules if rule.event in rewritten), None):
        raise TargetError(
            f'cannot load into table "{target.name}" in this mode: it has a rule on {rule.event}, "{rule.name}"',
            detail="The rule would change what the statement does with the records of the files. COPY ignores rules.",
            hint="Drop or disable the rule."
            + (
                ""
                if job.landing.is_keyed
                else " Or load without --atomic, if that is given: COPY then fills the table."
            ),
        )
    if not may_delete:
        grant = sql.SQL("GRANT DELETE ON {} TO ...;").format(table_identifier(target.name)).as_string(None)
        raise TargetError(
            f'permission denied for table "{target.name}"',
            detail="The role lacks DELETE, with which --mode sync deletes the rows that the files do not have.",
            hint=f"Have the owner run {grant} Or use --mode upsert, which deletes nothing.",
            sqlstate="42501",
        )
    for row in found:
        for verb, event, is_published in (
            ("update", "UPDATE", row.publishes_updates),
            ("delete from", "DELETE", row.publishes_deletes),
        ):
            if event in events and is_published:
                raise TargetError(
                    f'cannot {verb} table "{row.name}": it does not have a replica identity, and a publication '
                    f"publishes {event.lower()}s",
                    hint="Have the owner set one: ALTER TABLE ... REPLICA IDENTITY USING INDEX, with a unique index on "
                    "columns that are NOT NULL, or REPLICA IDENTITY FULL.",
                )


def check_types(connection: Connection, target: TableFacts, columns: Collection[str]) -> None:
    """Raise TargetError if the role lacks USAGE on the type of a column, so that no staging table can have the column.

    Raises ServerError.
    """
    oids = {
        column.type_oid: column.type_name for column in target.columns if column.name in columns and column.type_oid
    }
    query = "SELECT t.oid FROM pg_catalog.unnest(%s::oid[]) AS t (oid) WHERE NOT has_type_privilege(t.oid, 'USAGE')"
    with translate_errors(f"looking up the types of {target.name}"):
        denied = [oids[oid] for (oid,) in connection.execute(query, [sorted(oids)]).fetchall()]
    if denied:
        raise TargetError(
            f"permission denied for type {denied[0]}",
            detail=f'Records for table "{target.name}" are staged in a table with its types.',
            hint=f"Have the owner run GRANT USAGE ON TYPE {denied[0]} TO ...;",
            sqlstate="42501",
        )


def _find_events(job: TargetJob) -> set[TriggerEvent]:
    """Return the kinds of the statements that store a target's records, and that delete missing rows."""
    events: set[TriggerEvent] = {"INSERT"}
    if job.landing.updates:
        events.add("UPDATE")
    if job.landing.deletes:
        events.add("DELETE")
    return events
