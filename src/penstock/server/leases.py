"""The tables of leases on a server's settings, in one database of the cluster, and the locks of who holds one.

Settings are cluster-wide, so their leases are in one place whichever database is loaded. Trusted as the ledger is.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from penstock.errors import PenstockError, ServerError, TargetError
from penstock.model.server.names import init_command
from penstock.model.server.settings import Lease, PriorSetting, ServerIdentity
from penstock.server.connect.connection import is_usable
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.ledger.locks import find_lock_holder, try_lock
from penstock.server.ledger.trust import LedgerRelation, PublicationRow, refuse_foreign
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from penstock.server.connect.connection import Connection

# The database where leases are; every cluster has it unless somebody dropped it.
LEASE_DATABASE = "postgres"

_SCHEMA = "penstock"
_TABLES = frozenset(("leases", "lease_values", "lease_priors"))
_COMMENT = "penstock leases, version 1"

# Whoever changes settings or leases holds it for that long; "penslsee" in ASCII.
_MUTEX = 0x70656E736C736565

# A change of settings takes milliseconds, one that is seen through at most some seconds.
_MUTEX_TIMEOUT = "60s"

_STATEMENTS = (
    """
    CREATE TABLE {schema}.leases (
        id uuid PRIMARY KEY,
        owner name NOT NULL DEFAULT CURRENT_USER,
        client text NOT NULL,
        reason text NOT NULL,
        profile text NOT NULL,
        began_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
        until timestamptz,
        system_identifier bigint NOT NULL,
        timeline integer NOT NULL,
        address text,
        port integer
    )
    """,
    """
    CREATE TABLE {schema}.lease_values (
        lease uuid NOT NULL REFERENCES {schema}.leases ON DELETE CASCADE,
        name text NOT NULL,
        value double precision NOT NULL,
        PRIMARY KEY (lease, name)
    )
    """,
    # What a setting was before the first lease on it, and all texts that leases have given it since.
    """
    CREATE TABLE {schema}.lease_priors (
        name text PRIMARY KEY,
        value text NOT NULL,
        unit text,
        source text NOT NULL,
        source_file text,
        auto_text text,
        auto_line integer,
        ours text[] NOT NULL
    )
    """,
)


@dataclass
class LeaseLocks:
    """The session that holds leases, and its locks, wherever leases are written down. Methods raise ServerError."""

    connection: Connection

    def now(self) -> datetime:
        """Return the time by the server's clock, as leases have it."""
        with translate_errors("reading the server's time"):
            row = self.connection.execute("SELECT pg_catalog.clock_timestamp()").fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other penstock from changing settings or leases; ends with the session too."""
        try:
            with in_transaction(self.connection, "waiting for other sessions that change settings"):
                self.connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_MUTEX_TIMEOUT)))
                self.connection.execute("SELECT pg_catalog.pg_advisory_lock(%s)", [_MUTEX])
        except ServerError as error:
            if error.sqlstate == "55P03":
                error.hint = "Another penstock is changing settings and hangs: find it in pg_stat_activity."
            raise
        try:
            yield
        finally:
            if is_usable(self.connection):
                with translate_errors("unlocking settings"):
                    self.connection.execute("SELECT pg_catalog.pg_advisory_unlock(%s)", [_MUTEX])
            else:
                self.connection.close()

    def find_relations(self, tables: list[str], *, what: str) -> list[LedgerRelation]:
        """Return the schema, and those of the tables that are there; raises TargetError where one cannot be trusted."""
        with translate_errors(what):
            relations = fetch_rows(self.connection, "ledger_state", LedgerRelation, schema=_SCHEMA, tables=tables)
        try:
            refuse_foreign(_SCHEMA, relations)
        except TargetError as error:
            error.hint = f"Find out who created it in database {LEASE_DATABASE}, and drop what does not belong there."
            raise
        return relations

    def create_schema(self, tables: list[str]) -> None:
        """Create the schema if it is missing; refuse one that cannot be trusted, and has been created just now."""
        if not self.find_relations(tables, what="looking for the schema"):
            self.connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(_SCHEMA)))

    def hold(self, lease_id: str) -> None:
        """Hold a lease for as long as this session lasts."""
        is_held = try_lock(self.connection, _identity(lease_id))
        assert is_held, "a new lease's id is unique"

    def find_holder(self, lease_id: str) -> int | None:
        """Return the backend whose session holds a lease, None where it has gone."""
        return find_lock_holder(self.connection, _identity(lease_id))


class LeaseStore(LeaseLocks):
    """The leases of a cluster, by a session in LEASE_DATABASE. Methods raise ServerError, TargetError."""

    def exists(self) -> bool:
        """Whether there are tables of leases; refuse those that cannot be trusted."""
        relations = self.find_relations(sorted(_TABLES), what="looking for leases on settings")
        names = {relation.name for relation in relations if relation.name is not None}
        if not names:
            return False
        comment = next((relation.comment for relation in relations if relation.name == "leases"), None)
        if names != _TABLES or comment != _COMMENT:
            raise TargetError(
                f'schema "{_SCHEMA}" of database {LEASE_DATABASE} was created by another version of penstock',
                hint="Use that version; or drop the schema, if no lease is left in it.",
            )
        return True

    def ensure(self) -> None:
        """Create the tables if they are missing. Needs CREATE on the database, or on schema penstock there."""
        if self.exists():
            return
        refuse_publications(self.connection, "leases on settings", hint="Load with --settings none.")
        try:
            with in_transaction(self.connection, f"creating tables of leases in database {LEASE_DATABASE}"):
                self._create()
        except TargetError as error:
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise self._no_right(error) from error
            raise

    def _create(self) -> None:
        name, tables = sql.Identifier(_SCHEMA), sorted(_TABLES)
        self.create_schema(tables)
        for statement in _STATEMENTS:
            self.connection.execute(sql.SQL(statement).format(schema=name))
        comment = sql.SQL("COMMENT ON TABLE {}.leases IS {}").format(name, sql.Literal(_COMMENT))
        self.connection.execute(comment)
        # Owned by whom SET ROLE has made the current role.
        self.find_relations(tables, what="looking at the tables of leases")

    def _no_right(self, error: PenstockError) -> TargetError:
        row = self.connection.execute("SELECT CURRENT_USER").fetchone()
        assert row is not None
        return TargetError(
            f"cannot record a lease on settings: {error.message}",
            detail=f"Settings apply to the whole cluster, so their leases are in one database, {LEASE_DATABASE}.",
            hint=f"Have a superuser run {init_command(_SCHEMA, row[0])} in database {LEASE_DATABASE}.",
            sqlstate=error.sqlstate,
        )

    # ---------------------------------------------------------------- rows

    def read(self) -> tuple[list[Lease], list[PriorSetting]]:
        """Return all leases, the oldest first, and what was before them."""
        query = sql.SQL(
            """
            SELECT l.id::text, l.owner::text, l.client, l.reason, l.profile, l.began_at, l.until, l.system_identifier,
                   l.timeline, l.address, l.port,
                   (SELECT pg_catalog.jsonb_object_agg(v.name, v.value) FROM ONLY {schema}.lease_values AS v
                     WHERE v.lease = l.id)
              FROM ONLY {schema}.leases AS l
             ORDER BY l.began_at, l.id
            """
        ).format(schema=sql.Identifier(_SCHEMA))
        priors = sql.SQL(
            "SELECT name, value, unit, source, source_file, auto_text, auto_line, ours"
            " FROM ONLY {}.lease_priors ORDER BY auto_line, name"
        ).format(sql.Identifier(_SCHEMA))
        with _explaining_refusal(), translate_errors("reading leases on settings"):
            rows = self.connection.execute(query).fetchall()
            with self.connection.cursor(row_factory=dict_row) as cursor:
                found = cursor.execute(priors).fetchall()
        return [self._to_lease(*row) for row in rows], [
            PriorSetting(**{**row, "ours": tuple(row["ours"])}) for row in found
        ]

    def _to_lease(self, lease_id: str, *row: Any) -> Lease:
        owner, client, reason, profile, began_at, until, system_identifier, timeline, address, port, wanted = row
        return Lease(
            lease_id=lease_id,
            owner=owner,
            client=client,
            reason=reason,
            profile=profile,
            began_at=began_at,
            until=until,
            server=ServerIdentity(system_identifier=system_identifier, timeline=timeline, address=address, port=port),
            wanted={name: float(value) for name, value in (wanted or {}).items()},
            holder_pid=self.find_holder(lease_id),
        )

    def write(self, lease: Lease | None, priors: Sequence[PriorSetting]) -> None:
        """Write down a lease, and what settings were in place of what was known of them; both or neither."""
        query = sql.SQL(
            """
            INSERT INTO {}.lease_priors (name, value, unit, source, source_file, auto_text, auto_line, ours)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (name) DO UPDATE
               SET value = excluded.value, unit = excluded.unit, source = excluded.source,
                   source_file = excluded.source_file, auto_text = excluded.auto_text,
                   auto_line = excluded.auto_line, ours = excluded.ours
            """
        ).format(sql.Identifier(_SCHEMA))
        with writing_durably(self.connection, "recording leases on settings"):
            if lease is not None:
                self._insert(lease)
            for prior in priors:
                values = [prior.name, prior.value, prior.unit, prior.source, prior.source_file]
                self.connection.execute(query, [*values, prior.auto_text, prior.auto_line, list(prior.ours)])

    def _insert(self, lease: Lease) -> None:
        query = sql.SQL(
            """
            WITH begun AS (
                INSERT INTO {schema}.leases
                    (id, client, reason, profile, until, system_identifier, timeline, address, port)
                VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
                RETURNING id
            )
            INSERT INTO {schema}.lease_values (lease, name, value)
            SELECT b.id, w.key, w.value::double precision
              FROM begun AS b, pg_catalog.jsonb_each_text(%s::jsonb) AS w
            """
        ).format(schema=sql.Identifier(_SCHEMA))
        server = lease.server
        values: list[Any] = [lease.lease_id, lease.client, lease.reason, lease.profile, lease.until]
        values += [server.system_identifier, server.timeline, server.address, server.port, json.dumps(lease.wanted)]
        self.connection.execute(query, values)

    def forget(self, lease_ids: Sequence[str]) -> None:
        """Remove leases, and what was before settings that no lease is on any more."""
        schema = sql.Identifier(_SCHEMA)
        with writing_durably(self.connection, "recording leases on settings"):
            self.connection.execute(
                sql.SQL("DELETE FROM ONLY {}.leases WHERE id = ANY (%s::uuid[])").format(schema), [list(lease_ids)]
            )
            self.connection.execute(
                sql.SQL(
                    "DELETE FROM ONLY {schema}.lease_priors AS p"
                    " WHERE NOT EXISTS (SELECT FROM ONLY {schema}.lease_values AS v WHERE v.name = p.name)"
                ).format(schema=schema)
            )


@contextmanager
def writing_durably(connection: Connection, what: str) -> Iterator[None]:
    """Run the block in a transaction that is durable on this server before its COMMIT returns."""
    with in_transaction(connection, what):
        # Off would let a crash lose the record and keep the change; a standby's answer is not waited for.
        connection.execute("SET LOCAL synchronous_commit = 'local'")
        yield


def refuse_publications(connection: Connection, what: str, *, hint: str) -> None:
    """Raise TargetError where tables that are created now would be published. Raises ServerError."""
    with translate_errors("looking for publications"):
        publications = fetch_rows(connection, "ledger_publications", PublicationRow)
    if publications:
        raise TargetError(
            f"{what} would stop the subscribers of a publication for all tables",
            detail=f'Publication "{publications[0].name}" of database {LEASE_DATABASE} would publish their tables.',
            hint=hint,
        )


@contextmanager
def _explaining_refusal() -> Iterator[None]:
    """Say what a role needs that may not use tables of leases that others have made."""
    try:
        yield
    except TargetError as error:
        if error.sqlstate == "42501":
            error.hint = (
                f"Have their owner run in database {LEASE_DATABASE}: GRANT USAGE ON SCHEMA {_SCHEMA} and GRANT SELECT, "
                f"INSERT, UPDATE, DELETE ON {', '.join(f'{_SCHEMA}.{name}' for name in sorted(_TABLES))} to the role."
            )
        raise


def _identity(lease_id: str) -> str:
    return lease_id.replace("-", "")
