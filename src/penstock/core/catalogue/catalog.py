"""Reads the facts of a server that a load needs, in one query that an ordinary user may run, and those of tables.

The facts of a table are its columns, keys, triggers and partitions, and the disk where it is stored.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from psycopg import sql

from penstock.core.connect.connection import Connection, ConnectionFactory, describe_connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.route import is_loopback
from penstock.core.connect.search_path import find_schemas
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query, send_query, table_identifier
from penstock.core.values.server import Distributed, ServerFacts
from penstock.core.values.table import Column, TableFacts, TableName


@slotted
class ServerRow:
    """The row of server.sql: the server, the database, and how many more connections the role could open."""

    version_num: int
    version: str
    database: str
    user: str
    server_encoding: str
    free_connections: int
    is_in_recovery: bool
    # The server's address, None on a Unix socket.
    server_address: str | None
    may_checkpoint: bool
    is_aurora: bool
    wal_level: str
    distributed: Distributed | None


def read_server_facts(connection: Connection) -> ServerFacts:
    """Return the facts of a connection's server. The free connections do not include this connection.

    Raises ServerError.
    """
    return ask_server_facts(connection)()


def read_facts(connect: ConnectionFactory, connection: Connection) -> ServerFacts:
    """Return what `read_server_facts` returns, and whether it is penstock's embedded server. Raises ServerError."""
    return replace(read_server_facts(connection), is_embedded=connect.is_embedded)


def ask_server_facts(connection: Connection) -> Callable[[], ServerFacts]:
    """Send the query of `read_server_facts`, and return the function that fetches the facts. Both raise ServerError.

    In a pipeline, sending does not wait for the server.
    """
    address = describe_connection(connection)
    with translate_errors(f"reading the facts of {address}"):
        fetch = send_query(connection, "core/server", ServerRow)

    def facts() -> ServerFacts:
        with translate_errors(f"reading the facts of {address}"):
            (row,) = fetch()
        info = connection.info
        fields = asdict(row)
        is_local = is_local_server(
            server_address=fields.pop("server_address"),
            dialled_address=info.hostaddr,
            named_host=info.host,
            own_name=socket.gethostname(),
        )
        host = f"{info.host or info.hostaddr}:{info.port}"
        return ServerFacts(**fields, is_local=is_local, address=address, host=host)

    return facts


def is_local_server(*, server_address: str | None, dialled_address: str, named_host: str, own_name: str) -> bool:
    """Return whether a server runs on this machine.

    `server_address` is the server's end of the connection, None for a Unix socket. `dialled_address` is the address to
    which libpq has connected, empty for a Unix socket. `named_host` is the host in the connection string, and
    `own_name` is the name of this machine.

    A server is local if the connection uses a Unix socket, or if both addresses are loopback addresses and `named_host`
    is a name of this machine. One loopback address does not suffice, because either end of an SSH tunnel may have one.
    A tunnel that is named localhost looks local.
    """
    if server_address is None:
        return not dialled_address
    ends_are_loopback = is_loopback(server_address) and is_loopback(dialled_address)
    return ends_are_loopback and _is_own_name(named_host, own_name)


def _is_own_name(host: str, own_name: str) -> bool:
    name = host.rstrip(".").lower()
    return is_loopback(name) or name in ("", "localhost", own_name.lower()) or name.endswith(".localhost")


@slotted
class TableStorage:
    """Where a table is stored, and how large it is. The numbers are 0 for a table that does not exist yet."""

    # The directory of the table on the server's machine; None if the role may not read it.
    path: str | None
    # The directory of WAL on the server's machine; None if the role may not read it.
    wal_path: str | None
    # The size of the table with its indexes.
    stored_bytes: int
    index_count: int
    # The setting max_wal_size, or max_slot_wal_keep_size if a slot that nobody uses keeps WAL. None if WAL is kept
    # without a limit.
    wal_limit_bytes: int | None
    # What keeps WAL from being reused after a checkpoint: a slot that nobody uses, or an archiver that fails.
    wal_kept_for: str | None


@slotted
class SpaceNeed:
    """How many bytes a load is expected to add to the file system of a directory."""

    path: str
    # A name of what is added, shown in messages.
    what: str
    needed_bytes: int


@slotted
class DiskForecast:
    """How many bytes a load is expected to add to one file system, and how many are free there now."""

    device: str
    free_bytes: int
    needs: tuple[SpaceNeed, ...]

    @property
    def needed_bytes(self) -> int:
        """Return the sum of all needs, in bytes."""
        return sum(need.needed_bytes for need in self.needs)

    @property
    def is_short(self) -> bool:
        """Whether the load would fill the file system."""
        return self.needed_bytes > self.free_bytes

    @property
    def is_tight(self) -> bool:
        """Whether the load would use more than half of the free space."""
        return self.needed_bytes * 2 > self.free_bytes


@slotted
class ReferenceRow:
    """The row of references.sql: a table to which a foreign key of the given table, or of a partition of it, refers."""

    oid: int


@slotted
class BlockedRow:
    """The row of blocked.sql: a backend of the load that waits for a lock."""

    pid: int
    # Whether another session of the load blocks this one, directly or indirectly, with a lock that can last until the
    # other session's transaction ends.
    waits_for_own: bool
    # Descriptions of the sessions and prepared transactions outside the load that block this backend.
    others: list[str]
    # The names of the prepared transactions among them.
    gids: list[str]


def find_references(connection: Connection, oid: int) -> frozenset[int]:
    """Return the OIDs of the tables to which foreign keys of a table or its partitions refer. Raises ServerError."""
    with translate_errors("looking up foreign keys"):
        return frozenset(row.oid for row in fetch_rows(connection, "core/references", ReferenceRow, oid=oid))


def defer_constraints(connection: Connection) -> None:
    """Have deferrable constraints checked at the end of the caller's transaction. Raises ServerError."""
    with translate_errors("deferring constraints"):
        connection.execute("SET CONSTRAINTS ALL DEFERRED")


def find_blocked(connection: Connection, pids: Sequence[int]) -> list[BlockedRow]:
    """Return those of the backends `pids` that wait for a lock. Raises ServerError."""
    with translate_errors("reading what the load's sessions wait for"):
        return fetch_rows(connection, "core/blocked", BlockedRow, pids=list(pids))


# The kinds of relations that never accept rows from COPY: pg_class.relkind, with PostgreSQL's word for it.
_UNLOADABLE_KINDS = {
    "f": "foreign table",
    "m": "materialized view",
    "i": "index",
    "I": "partitioned index",
    "S": "sequence",
    "c": "composite type",
    "t": "TOAST table",
}


@slotted
class TableRow:
    """The row of table.sql: a relation, and what decides how a load stores rows in it.

    TableFacts has the fields with their explanations.
    """

    oid: int
    schema: str
    name: str
    kind: str
    is_unlogged: bool
    row_security_applies: bool
    can_insert: bool
    denied_columns: list[str]
    suppressing_triggers: list[str]
    row_triggers: list[str]
    statement_triggers: list[str]
    unlogged_partitions: list[str]
    unpublished: list[str]
    may_vacuum: bool
    is_owner: bool
    has_indexes: bool
    attributes: int
    is_partition: bool


def find_table(connection: Connection, name: TableName) -> TableFacts | None:
    """Return the facts of the relation that a name means to the user, or None if no such relation exists.

    Names are exact: `Orders` is what SQL writes as "Orders". Any kind of relation is returned, so that a refusal can
    name its kind. Raises ServerError.
    """
    with translate_errors(f"looking up table {name}"):
        schemas = find_schemas(connection, [name])
        with connection.pipeline():
            tables = _ask_tables(connection, [name], schemas)
    return tables()[0]


def survey(connection: Connection, names: Sequence[TableName]) -> tuple[ServerFacts, list[TableFacts | None]]:
    """Return the facts of the server, and for each name the facts of the relation, None if no such relation exists.

    The facts of a relation are those of `find_table`. Takes two round trips if all names have a schema. Raises
    ServerError.
    """
    with translate_errors("looking up server and tables"):
        schemas = find_schemas(connection, names)
        with connection.pipeline():
            facts = ask_server_facts(connection)
            tables = _ask_tables(connection, names, schemas)
    return facts(), tables()


def _ask_tables(
    connection: Connection, names: Sequence[TableName], schemas: Sequence[str | None]
) -> Callable[[], list[TableFacts | None]]:
    """Send the queries for the facts of tables in these schemas, and return the function that fetches the facts.

    In a pipeline, sending does not wait for the server. Fetching takes one more round trip. Both raise ServerError.
    """
    what = f"looking up {', '.join(f'table {name}' for name in names)}"
    with translate_errors(what):
        asked = [
            send_query(connection, "core/table", TableRow, schema=schema or "", name=name.name)
            for name, schema in zip(names, schemas, strict=True)
        ]

    def tables() -> list[TableFacts | None]:
        with translate_errors(what):
            found = [next(iter(fetch()), None) for fetch in asked]
            return _complete(connection, found)

    return tables


def _complete(connection: Connection, rows: Sequence[TableRow | None]) -> list[TableFacts | None]:
    """Read the columns and foreign keys of relations in one round trip, and return the relations' facts."""
    oids = {row.oid for row in rows if row is not None}
    if not oids:
        return [None for _ in rows]
    with connection.pipeline():
        parts = {
            oid: (
                send_query(connection, "core/columns", Column, oid=oid),
                send_query(connection, "core/references", ReferenceRow, oid=oid),
            )
            for oid in oids
        }
    read = {oid: (columns(), references()) for oid, (columns, references) in parts.items()}
    return [None if row is None else _describe(row, *read[row.oid]) for row in rows]


def _describe(row: TableRow, columns: list[Column], references: list[ReferenceRow]) -> TableFacts:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in asdict(row).items()
    }
    return TableFacts(
        name=TableName(schema=fields.pop("schema"), name=fields.pop("name")),
        columns=tuple(columns),
        references=frozenset(reference.oid for reference in references),
        **fields,
    )


def read_partition_line(connection: Connection, oids: Sequence[int]) -> dict[int, TableName]:
    """Return the names of tables, of their partitions, and of the tables whose partitions they are, by OID.

    `oids` are those of the tables. Raises ServerError.
    """
    with translate_errors("looking up the partitions of tables"):
        rows = run_query(connection, "core/partition_line", oids=list(oids))
        return {oid: TableName(schema=schema, name=name) for oid, schema, name in rows}


def find_foreign_partitions(connection: Connection, facts: TableFacts) -> tuple[TableName, ...]:
    """Return the foreign tables among a partitioned table's partitions. Raises ServerError."""
    if facts.kind != "p":
        return ()
    with translate_errors(f"looking up the partitions of {facts.name}"):
        return tuple(fetch_rows(connection, "core/foreign_partitions", TableName, oid=facts.oid))


def check_loadable(
    facts: TableFacts,
    *,
    user: str,
    foreign_partitions: Sequence[TableName] = (),
) -> None:
    """Raise TargetError if COPY into a relation would be refused, or would write to another server.

    `user` is the role that loads. `foreign_partitions` is the result of `find_foreign_partitions`. PostgreSQL also
    refuses COPY into a table with row-level security. That is not checked here, because penstock sends the records for
    such a table to a staging table. Source: BeginCopyFrom, DoCopy in src/backend/commands/copy*.c
    """
    _check_kind(facts, foreign_partitions)
    if not facts.can_insert:
        raise TargetError(
            f'permission denied for table "{facts.name}"',
            detail=f'Role "{user}" lacks INSERT on the table or USAGE on its schema.',
            hint=f"Have the owner run {_compose_grants(facts.name, user)} Or use another role with --role.",
        )


def _check_kind(facts: TableFacts, foreign_partitions: Sequence[TableName]) -> None:
    if kind := _UNLOADABLE_KINDS.get(facts.kind):
        hint = "Load into the table on the server that holds it." if facts.kind == "f" else "Name a table."
        raise TargetError(f'cannot load into "{facts.name}": it is a {kind}', hint=hint)
    if facts.kind == "v" and not facts.suppressing_triggers:
        raise TargetError(
            f'cannot load into view "{facts.name}"',
            detail="It has no enabled INSTEAD OF INSERT trigger.",
            hint="Load into its table, or give the view such a trigger.",
        )
    if foreign_partitions:
        names = ", ".join(f'"{name}"' for name in foreign_partitions)
        raise TargetError(
            f'cannot load into "{facts.name}": it has partitions that are foreign tables',
            detail=f"Foreign partitions: {names}.",
            hint="Load into the partitions that are plain tables, or detach the foreign ones.",
        )


def _compose_grants(name: TableName, user: str) -> str:
    role = sql.Identifier(user)
    schema = sql.Identifier(name.schema or "public")
    table = table_identifier(name)
    grants = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}; GRANT INSERT ON {} TO {};").format(schema, role, table, role)
    return grants.as_string(None)


def read_table_storage(connection: Connection, oids: Sequence[int]) -> list[TableStorage]:
    """Return where the tables with these OIDs are stored, in the order of `oids`. Raises ServerError.

    Takes one round trip. OID 0 stands for a table that is still to be created.
    """
    with translate_errors("looking up disk space"):
        with connection.pipeline():
            asked = [send_query(connection, "core/space_place", TableStorage, oid=oid) for oid in oids]
        return [places()[0] for places in asked]
