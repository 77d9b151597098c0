"""The checks that refuse a load: each takes facts and returns a diagnosis, or None if the load is possible. Pure.

doctor shows the diagnoses. Plans and loads raise them as errors, with the same words (`refuse` of
core/values/diagnosis.py).
The argument `deed` is the refused action. It completes the message "cannot ...".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.values.diagnosis import Diagnosis, refusal, warning
from penstock.core.values.names import init_command, quote_name, quote_table, upgrade_command
from penstock.core.values.server import DSQL_LOADER, Distributed, LedgerRights, PoolerFacts, ServerFacts
from penstock.core.values.table import TableFacts, TableName

if TYPE_CHECKING:
    from penstock.core.values.inspection import Receiver

OLDEST_MAJOR = 14

# The newest version that the tests have run on. ARCHITECTURE.md, "A version of PostgreSQL", says how to add another.
NEWEST_TESTED_MAJOR = 19

MORE_CONNECTIONS = "Close connections, or raise max_connections or the limit of the role or the database."


def check_server(server: ServerFacts, receiver: Receiver | None = None) -> Iterator[Diagnosis]:
    """Yield the reasons why no load into the server is possible.

    `receiver` is the WAL receiver of a standby, which shows where the primary is.
    """
    checks = (
        check_version(server),
        check_distributed(server),
        check_standby(server.is_in_recovery, receiver=receiver),
        check_connections(server),
    )
    yield from filter(None, checks)


def check_version(server: ServerFacts) -> Diagnosis | None:
    """Return a refusal if the server is too old, otherwise None."""
    if server.major >= OLDEST_MAJOR:
        return None
    return refusal("server", f"PostgreSQL {server.version} is older than {OLDEST_MAJOR}", "Upgrade the server.")


# What the two distributed Auroras are called, and the loaders that AWS has for them.
_OWN_LOADERS: Mapping[Distributed, tuple[str, str]] = {
    "dsql": ("Aurora DSQL", DSQL_LOADER),
    "limitless": (
        "Aurora Limitless Database",
        "Use its data loading utility, CALL rds_aurora.limitless_data_load_start(...), or COPY by psql.",
    ),
}


def check_distributed(server: ServerFacts) -> Diagnosis | None:
    """Return a refusal if the server is an Aurora that distributes its rows over many servers, otherwise None.

    penstock's ledger needs transactions and locks of one server.
    """
    if server.distributed is None:
        return None
    name, loader = _OWN_LOADERS[server.distributed]
    return refusal("server", f"cannot load into {name}", loader)


def warn_of_version(server: ServerFacts) -> Diagnosis | None:
    """Return a warning if the server is newer than the newest version that was tested, otherwise None."""
    if server.major <= NEWEST_TESTED_MAJOR:
        return None
    return warning(
        "server",
        f"PostgreSQL {server.version} is newer than {NEWEST_TESTED_MAJOR}, the newest version that this penstock was "
        "tested with",
        "Use a newer penstock if there is one, or try the load on a copy of the database first.",
    )


def check_standby(is_in_recovery: bool, deed: str = "load", *, receiver: Receiver | None = None) -> Diagnosis | None:
    """Return a refusal if the server is a standby, otherwise None.

    `receiver` is the standby's WAL receiver, which shows where the primary is.
    """
    if not is_in_recovery:
        return None
    remedy = "Connect to its primary; with all hosts in --to, the primary is found."
    if receiver is not None and receiver.sender_host is not None:
        port = "" if receiver.sender_port is None else f" port={receiver.sender_port}"
        remedy = f"Connect to its primary: --to 'host={receiver.sender_host}{port} ...'."
    return refusal("server", f"cannot {deed} on a standby", remedy)


def check_connections(server: ServerFacts) -> Diagnosis | None:
    """Return a refusal if the server accepts no further connection of the role, otherwise None."""
    if server.free_connections >= 1:
        return None
    return refusal(
        "connection",
        "no free connection for a session",
        MORE_CONNECTIONS,
        detail=f"{server.address} allows no more connections for role {server.user}.",
    )


def check_pooler(pooler: PoolerFacts | None, deed: str = "load") -> Diagnosis | None:
    """Return a refusal if there is a connection pooler, which may give each transaction to another session."""
    if pooler is None:
        return None
    return refusal(
        "connection",
        f"cannot {deed} through a connection pooler",
        "Connect to the server directly: give its own host and port in --to. For managed services, use the endpoint "
        "that is not the pooler's or the proxy's.",
        detail=f"libpq was told of backend {pooler.told_pid}, and backend {pooler.backend_pid} answered: a pooler such "
        "as PgBouncer may give every transaction to another session.",
    )


def check_read_only(is_read_only: bool, deed: str = "load") -> Diagnosis | None:
    """Return a refusal if transactions of the connection are read-only by default, otherwise None."""
    if not is_read_only:
        return None
    return refusal(
        "rights",
        f"cannot {deed} in read-only transactions",
        "If writing there is meant, use --read-write.",
        detail="default_transaction_read_only is on for this database, role or session.",
    )


def check_ledger_creation(rights: LedgerRights, schema: str) -> Diagnosis | None:
    """Return a refusal if the role may not create the ledger's tables, otherwise None."""
    if rights.may_create:
        return None
    where = "database" if rights.owner is None else f"schema {quote_name(schema)}"
    return refusal(
        "ledger",
        f"cannot create the ledger: permission denied for {where}",
        "Name a schema of your own with --ledger-schema, or have the database's owner run "
        f"{init_command(schema, rights.role)}",
        detail="The ledger records loads, so that they can be resumed and nothing is loaded twice.",
    )


def check_publications(names: Sequence[str], *, upgraded: str | None = None) -> Diagnosis | None:
    """Return a refusal to create or upgrade the ledger if there are publications for all tables, otherwise None.

    `names` are these publications. They would publish the ledger's tables, which the subscribers lack. `upgraded` is
    the schema of the ledger to upgrade, None if a ledger is to be created.
    """
    if not names:
        return None
    if upgraded is None:
        hint = "Run these statements on every subscriber, then use --publish-ledger once. penstock load shows them."
    else:
        hint = (
            "While no load runs, run these statements on every subscriber, then here "
            f"{upgrade_command(upgraded)} --publish-ledger."
        )
    return refusal(
        "ledger",
        f"{'creating' if upgraded is None else 'upgrading'} the ledger would stop the subscribers of a publication for "
        "all tables",
        hint,
        detail=f"Publication {', '.join(map(quote_name, names))} would publish the ledger's tables, which the "
        f"subscribers {'lack' if upgraded is None else 'have in an older form'}.",
    )


def check_upgrade(rights: LedgerRights, schema: str, *, database: str, version: int, newest: int) -> Diagnosis | None:
    """Return a refusal if the role may not upgrade the ledger from `version` to `newest`, otherwise None."""
    if rights.may_upgrade:
        return None
    owner = quote_name(rights.tables_owner or "")
    return refusal(
        "ledger",
        f"the ledger in schema {quote_name(schema)} of database {quote_name(database)} has version {version}, and only "
        f"its owner can upgrade it to version {newest}",
        f"Have the owner, or a member of that role, run {upgrade_command(schema)}.",
        detail=f"Its owner is {owner}, and the current role is {quote_name(rights.role)}.",
    )


def check_staging_right(rights: LedgerRights, schema: str) -> Diagnosis | None:
    """Return a refusal if the role may not create a staging table in the ledger's schema, otherwise None."""
    if rights.may_create:
        return None
    return refusal(
        "ledger",
        f"permission denied for schema {schema}",
        f"GRANT CREATE ON SCHEMA {quote_name(schema)} TO {quote_name(rights.role)};",
        detail="Staging tables are created there.",
    )


def check_table(name: TableName, *, exists: bool, creates: bool) -> Diagnosis | None:
    """Return a refusal if a table does not exist and the load does not create it, otherwise None."""
    if exists or creates:
        return None
    return refusal(
        "table",
        f'table "{name}" does not exist',
        "Create it first, name its schema if that is not in search_path, or use --create: text columns, named by the "
        "header.",
    )


def check_columns(table: TableFacts, filled: Collection[str], *, role: str) -> Diagnosis | None:
    """Return a refusal if the role lacks INSERT on a column that the load fills, otherwise None."""
    denied = ", ".join(quote_name(name) for name in table.denied_columns if name in filled)
    if not denied:
        return None
    return refusal(
        "table",
        f'permission denied for table "{table.name}"',
        f"GRANT INSERT ({denied}) ON {quote_table(table.name)} TO {quote_name(role)};",
        detail=f"The role lacks INSERT on columns {denied}.",
    )


def check_sequences(table: TableFacts, filled: Collection[str], *, role: str) -> Diagnosis | None:
    """Return a refusal if the role may not use a sequence from which a column gets its default, otherwise None.

    The columns in `filled` are not checked: the load gives them values, so their defaults are not used.
    """
    for column in table.columns:
        if column.name not in filled and (sequence := column.denied_sequence) is not None:
            return refusal(
                "table",
                f"permission denied for sequence {sequence}",
                f"GRANT USAGE ON SEQUENCE {sequence} TO {quote_name(role)};",
                detail=f'Column "{column.name}" of table "{table.name}" is not in the file, and its default is the '
                "sequence's next value.",
            )
    return None
