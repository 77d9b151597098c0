"""Reads everything about a server that SQL shows, in three round trips (four on Amazon RDS with rds_tools).

No privilege is needed: what a role may not read is None. If a server lacks a function (Aurora refuses some functions of
replication), the queries are run one by one, and a query that fails is reported with the server's message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import psycopg

from penstock.errors import PenstockError, ServerError, TargetError
from penstock.model.finding import refusal_of
from penstock.model.server.inspection import (
    Archiver,
    Connections,
    Encryption,
    Inspection,
    LedgerState,
    Mark,
    Publication,
    Receiver,
    Rights,
    Setting,
    Slot,
    Standby,
    TableCosts,
    TableInspection,
    Tablespace,
)
from penstock.model.server.reading import Unread
from penstock.model.server.server import LedgerRights, PoolerFacts, ServerFacts
from penstock.model.server.table import TableName
from penstock.server.changes.missing import refuse_missing
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_transaction, is_passing, read_report, to_penstock_error, translate_errors
from penstock.server.connect.route import is_loopback
from penstock.server.connect.search_path import find_creation_schema
from penstock.server.ddl.definition import PublicationRow
from penstock.server.facts.facts import ask_server_facts
from penstock.server.facts.recognise import recognise_flavour, recognise_managers
from penstock.server.inspect.moment import read_moment
from penstock.server.ledger.lookup import look_for_ledgers, refuse_known_elsewhere
from penstock.server.ledger.schema import look_for_ledger
from penstock.server.sql.queries import fetch_rows, send_query
from penstock.server.table.catalog import check_loadable, find_foreign_partitions, find_table
from penstock.server.table.locking import LOCK_NOT_AVAILABLE, with_lock_retries

# The queries, each with a name for what cannot be read if it fails.
_QUERIES: dict[str, tuple[type, str]] = {
    "inspect_marks": (Mark, "marks of managed services"),
    "inspect_rights": (Rights, "rights"),
    "inspect_settings": (Setting, "settings"),
    "inspect_connections": (Connections, "connections"),
    "inspect_standbys": (Standby, "standbys"),
    "inspect_slots": (Slot, "replication slots"),
    "inspect_receiver": (Receiver, "WAL receiver"),
    "inspect_archiver": (Archiver, "archiver"),
    "inspect_publications": (Publication, "publications"),
    "inspect_tablespaces": (Tablespace, "tablespaces"),
}

_CLUSTER_FUNCTION = Mark(kind="function", name="rds_tools.multi_az_db_cluster_source_dbi_resource_id()")
_CLUSTER_QUERY = """
    SELECT multi_az_db_cluster_source_dbi_resource_id IS NOT NULL
      FROM rds_tools.multi_az_db_cluster_source_dbi_resource_id()
"""


def inspect_server(
    connection: Connection,
    *,
    pooler: PoolerFacts | None,
    ledger_schema: str = "penstock",
    clock: Callable[[], float] = time.time,
) -> Inspection:
    """Return everything that SQL shows the current role about a server. `clock` is this host's, in Unix time.

    Raises ServerError if the connection is lost, and TargetError if not even the role's rights can be read.
    """
    server, ledger = _ask_basics(connection, ledger_schema)
    if pooler is not None:
        # The server's address is the one that the pooler uses, and the pooler may be on another machine.
        server = replace(server, is_local=False)
    answers, unread = _ask_all(connection)
    marks: list[Mark] = answers.get("inspect_marks", [])
    settings: list[Setting] = answers.get("inspect_settings", [])
    if "inspect_rights" not in answers:
        raise next(TargetError(f"cannot read {note.what}: {note.why}") for note in unread if note.what == "rights")
    (rights,) = answers["inspect_rights"]
    moment, measured = read_moment(connection, clock)
    cluster_name = next((setting.value for setting in settings if setting.name == "cluster_name"), None)
    return Inspection(
        server=server,
        flavour=recognise_flavour(marks, is_multi_az_cluster=_is_multi_az_cluster(connection, marks)),
        managers=recognise_managers(marks, cluster_name=cluster_name),
        pooler=pooler,
        rights=rights,
        settings=tuple(settings),
        connections=_first(answers, "inspect_connections"),
        standbys=_all(answers, "inspect_standbys"),
        slots=_all(answers, "inspect_slots"),
        receiver=_first(answers, "inspect_receiver"),
        archiver=_first(answers, "inspect_archiver"),
        publications=_all(answers, "inspect_publications"),
        tablespaces=_all(answers, "inspect_tablespaces"),
        autovacuum_workers=moment.autovacuum_workers,
        ledger=ledger,
        clock=measured,
        encryption=_find_encryption(connection),
        unread=tuple(unread),
    )


def _find_encryption(connection: Connection) -> Encryption | None:
    """Return whether the network connection is encrypted, as this end knows it.

    Returns None for a connection without TLS that is local or uses GSSAPI.
    """
    pgconn, address = connection.pgconn, connection.info.hostaddr
    # psycopg does not show whether GSSAPI encrypts or only authenticates.
    is_plain_elsewhere = bool(address) and not is_loopback(address) and not pgconn.used_gssapi
    if not pgconn.ssl_in_use and not is_plain_elsewhere:
        return None
    # The value from the connection string or variable, or libpq's default.
    (sslmode,) = (option.val for option in pgconn.info if option.keyword == b"sslmode")
    return Encryption(is_encrypted=pgconn.ssl_in_use, sslmode=(sslmode or b"prefer").decode())


def _ask_basics(connection: Connection, schema: str) -> tuple[ServerFacts, LedgerState]:
    """Return the facts that every server shows, and the state of its ledger."""
    with translate_errors("reading server and ledger"), connection.pipeline():
        facts = ask_server_facts(connection)
        rights = send_query(connection, "inspect_ledger", LedgerRights, schema=schema)
        find_ledger = look_for_ledger(connection, schema)
    (row,) = rights()
    exists, distrust = False, None
    try:
        exists = find_ledger()
    except TargetError as error:
        distrust = refusal_of(error, "ledger")
    return facts(), LedgerState(schema=schema, exists=exists, distrust=distrust, **asdict(row))


def _ask_all(connection: Connection) -> tuple[dict[str, list[Any]], list[Unread]]:
    """Return the rows of each query that succeeds, and the server's messages for the others."""
    with translate_errors("reading the search_path"):
        parameters = {"creation_schema": find_creation_schema(connection)}
    try:
        with in_transaction(connection), connection.pipeline():
            fetches: dict[str, Callable[[], list[Any]]] = {
                query: send_query(connection, query, row, **parameters) for query, (row, _) in _QUERIES.items()
            }
        return {query: fetch() for query, fetch in fetches.items()}, []
    except psycopg.Error as error:
        _raise_if_lost(error, connection)
    answers: dict[str, list[Any]] = {}
    unread = []
    for query, (row, what) in _QUERIES.items():
        try:
            with in_transaction(connection):
                answers[query] = fetch_rows(connection, query, row, **parameters)
        except psycopg.Error as error:
            _raise_if_lost(error, connection)
            unread.append(Unread(what=what, why=read_report(error).message))
    return answers, unread


def _raise_if_lost(error: psycopg.Error, connection: Connection) -> None:
    """Raise an error that does not concern one query only: the connection is lost, or the server has failed."""
    is_lost = connection.closed or isinstance(error, psycopg.OperationalError)
    if is_lost and is_passing(error.sqlstate, is_disconnect=error.sqlstate is None):
        raise to_penstock_error(error, "inspecting the server") from error


def _is_multi_az_cluster(connection: Connection, marks: list[Mark]) -> bool:
    """Ask rds_tools whether this is a Multi-AZ DB cluster. The extension may be installed on any RDS instance."""
    if _CLUSTER_FUNCTION not in marks:
        return False
    try:
        with in_transaction(connection, "asking rds_tools for the cluster"):
            row = connection.execute(_CLUSTER_QUERY).fetchone()
    except PenstockError as error:
        if error.is_transient:
            raise
        # The role may not call the function. The server is then treated as an instance.
        return False
    return row is not None and bool(row[0])


def _first(answers: dict[str, list[Any]], query: str) -> Any:
    return next(iter(answers.get(query, [])), None)


def _all(answers: dict[str, list[Any]], query: str) -> tuple[Any, ...] | None:
    return tuple(answers[query]) if query in answers else None


def inspect_table(
    connection: Connection,
    name: TableName,
    *,
    user: str,
    ledger_schema: str | None = None,
    is_repeating: bool = False,
) -> TableInspection:
    """Return what affects a load into a table. `user` is the role that loads. Raises ServerError.

    `ledger_schema` is None if the ledger cannot be read. With `is_repeating`, other ledgers may know the table.
    """
    facts = find_table(connection, name)
    if facts is None:
        return TableInspection(asked=name)

    def look() -> tuple[TableCosts | None, tuple[str, ...]]:
        with translate_errors(f"inspecting table {facts.name}"), connection.pipeline():
            costs = send_query(connection, "inspect_table", TableCosts, oid=facts.oid)
            publications = send_query(connection, "ddl_publications", PublicationRow, oid=facts.oid)
        return next(iter(costs()), None), tuple(row.name for row in publications())

    try:
        costs, publications = with_lock_retries(connection, look, relations=[facts.oid], deadline_s=0)
    except ServerError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        return TableInspection(asked=name, facts=facts, refusal=refusal_of(error, "table"))
    refusal = None
    try:
        check_loadable(facts, user=user, foreign_partitions=find_foreign_partitions(connection, facts))
        if ledger_schema is not None:
            ledgers = look_for_ledgers(connection, ledger_schema)
            if ledgers.exists:
                refuse_missing(connection, ledger_schema, [facts.oid])
            if not is_repeating:
                refuse_known_elsewhere(connection, ledgers, {facts.oid: facts.name})
    except TargetError as error:
        refusal = refusal_of(error, "table")
    return TableInspection(
        asked=name,
        facts=facts,
        costs=costs,
        publications=publications,
        refusal=refusal,
    )
