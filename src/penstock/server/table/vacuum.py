"""VACUUM, ANALYZE and CHECKPOINT for loaded tables. Package loading decides when they are due.

VACUUM cannot run in a transaction block, so sessions are in autocommit mode.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import sql

from penstock.model.load.upkeep import Relation, VacuumStep
from penstock.server.connect.connection import Connection, is_usable
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

_log = logging.getLogger(__name__)


def read_relations(connection: Connection, oids: Sequence[int]) -> list[Relation]:
    """Return tables with their partitions as VACUUM would process them. Waits for locks on them. Raises ServerError.

    Views and foreign tables are not returned.
    """
    with translate_errors("reading the tables to vacuum"):
        return fetch_rows(connection, "upkeep_relations", Relation, oids=list(oids))


@contextmanager
def limited_lock_wait(connection: Connection, timeout_s: float) -> Iterator[None]:
    """Limit the session's lock_timeout to `timeout_s`, or to less if the user has set less."""
    limit_ms = round(timeout_s * 1000)
    query = """
        SELECT pg_catalog.set_config('lock_timeout', %(limit)s::int::text, false)
          FROM pg_catalog.pg_settings AS s
         WHERE s.name = 'lock_timeout'
           AND s.setting::int NOT BETWEEN 1 AND %(limit)s
    """
    with translate_errors("limiting the wait for locks"):
        connection.execute(query, {"limit": limit_ms})
    try:
        yield
    finally:
        if is_usable(connection):
            with translate_errors("restoring lock_timeout"):
                connection.execute("RESET lock_timeout")


def run_vacuum(connection: Connection, step: VacuumStep) -> None:
    """Run VACUUM, ANALYZE or both. Needs the table's owner, the database's, or MAINTAIN (17+). Raises ServerError."""
    if step.vacuums:
        command = sql.SQL("VACUUM (ANALYZE) {}") if step.analyzes else sql.SQL("VACUUM {}")
    else:
        command = sql.SQL("ANALYZE ONLY {}") if step.is_only else sql.SQL("ANALYZE {}")
    relation = step.relation
    with translate_errors(f"vacuuming table {relation}"):
        connection.execute(command.format(sql.Identifier(relation.schema, relation.name)))
    _log.info("vacuumed %s", relation)


def run_checkpoint(connection: Connection) -> None:
    """Make the server write all dirty pages now. Needs superuser, or pg_checkpoint on PostgreSQL 15 and later.

    Raises TargetError if the role may not, and ServerError.
    """
    with translate_errors("writing a checkpoint"):
        connection.execute("CHECKPOINT")
    _log.info("wrote a checkpoint")
