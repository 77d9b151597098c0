"""The schema of a benchmark: created, marked as penstock's, dropped in every case; one benchmark at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import ServerError, TargetError
from penstock.model.finding import refuse
from penstock.model.server.checks import check_standby
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.facts.facts import read_server_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.connect.connection import Connection, ConnectionFactory

SCHEMA = "penstock_bench"

# The comment that marks the schema as penstock's.
_MARK = "made by penstock bench, which drops it"

# "commi" in ASCII. Allows one experiment at a time in a database.
_LOCK = 0x636F6D6D69


@contextmanager
def own_schema(factory: ConnectionFactory, *, purpose: str, setup: str) -> Iterator[Connection]:
    """Create SCHEMA, run the statements of `setup` in it, and provide a session in its database.

    `purpose` is what is measured, as in "measure commits". The schema of a run that was killed is replaced. Needs
    CREATE on the database. Raises TargetError if the schema exists and is not penstock's, and ServerError for a pooler,
    a standby, or if another benchmark runs.
    """
    with factory.connect(label="bench") as control:
        factory.refuse_unwritable(purpose)
        refuse(check_standby(read_server_facts(control).is_in_recovery, purpose), ServerError)
        _create(control, setup)
        try:
            yield control
        finally:
            with translate_errors(f"dropping schema {SCHEMA}"):
                control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())


def _create(control: Connection, setup: str) -> None:
    with in_transaction(control, f"creating schema {SCHEMA}"):
        row = control.execute(
            "SELECT pg_catalog.pg_try_advisory_lock(%s), pg_catalog.to_regnamespace(%s)::oid,"
            " pg_catalog.obj_description(pg_catalog.to_regnamespace(%s)::oid, 'pg_namespace')",
            [_LOCK, SCHEMA, SCHEMA],
        ).fetchone()
        assert row is not None
        is_alone, oid, comment = row
        if not is_alone:
            raise ServerError("another penstock bench runs in this database", hint="Wait until it ends.")
        if oid is not None and comment != _MARK:
            raise TargetError(
                f'schema "{SCHEMA}" already exists and was not created by penstock',
                detail="It lacks the comment of penstock bench.",
                hint="Name another database in --to, or rename the schema.",
            )
        if oid is not None:
            control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        control.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        control.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{_MARK}'".encode())
        control.execute(f"SET LOCAL search_path = {SCHEMA}; {setup}".encode())
