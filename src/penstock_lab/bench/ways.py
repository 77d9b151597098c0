"""The ways to load files in experiment A, each as one function, and the tables to load. `bulk_load` measures the ways.

A benchmark uses its own schema, and the demo its own database. Both are marked as penstock's by a comment, and only one
run at a time may use them. The schema is dropped in every case. The database is kept until the next run replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.catalogue.tables import create_table
from penstock.core.checks import check_standby
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import LabError, PenstockError, ServerError, TargetError
from penstock.core.host.machine import client_name
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one
from penstock.core.values.accounts import LoadCounts
from penstock.core.values.diagnosis import refuse
from penstock.core.values.job import Housekeeping, LoadJob, LoadRules, TargetJob
from penstock.core.values.mode import Mode
from penstock.core.values.names import quote_name
from penstock.core.values.table import TableName
from penstock.ledger.ledger import Ledger
from penstock.ledger.schema import find_publications
from penstock.loading.choices import list_conditions
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import copy_statement
from penstock.loading.files.streams import SourceReader
from penstock.loading.plan_load import PlanTools, plan_load
from penstock.loading.run import run_load
from penstock.loading.values.objects import CopySpec
from penstock.settings.decide import BULK_LOAD
from penstock.settings.lease import LeaseRequest
from penstock_lab.datasets.people import IMDB_TABLES

if TYPE_CHECKING:
    from penstock.loading.imports.server import S3Object
    from penstock.settings.backend import SettingsBackend
    from penstock_lab.datasets.datafiles import DataFile
    from penstock_lab.programs import Psql

SCHEMA = "penstock_bench"

# The comment that marks the schema as penstock's.
_MARK = "made by penstock bench, which drops it"

# "commi" in ASCII. The lock allows one experiment at a time in a database.
_LOCK = 0x636F6D6D69

# Cancels the statements of penstock and psql that hold locks in the schema.
_CANCEL = """
    SELECT pg_catalog.pg_cancel_backend(a.pid)
      FROM pg_catalog.pg_stat_activity AS a
     WHERE a.datname = pg_catalog.current_database()
       AND a.usename = SESSION_USER
       AND pg_catalog.pg_has_role(a.usesysid, 'USAGE')
       AND a.pid <> pg_catalog.pg_backend_pid()
       AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_locks AS l
                 JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
                WHERE l.pid = a.pid
                  AND l.database = (
                          SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
                      )
                  AND c.relnamespace = pg_catalog.to_regnamespace(%s)
           )
       AND (pg_catalog.starts_with(a.application_name, %s) OR a.application_name = 'psql')
"""

# The comment that marks the database as penstock's. Only a database with this comment is dropped.
_DATABASE_MARK = "created by penstock demo, which drops and recreates it at each run"

# "demo" in ASCII. The lock allows one demo at a time on a server.
_DATABASE_LOCK = 0x64656D6F


@contextmanager
def own_schema(factory: ConnectionFactory, *, purpose: str, setup: str) -> Iterator[Connection]:
    """Create SCHEMA, run the statements of `setup` in it, and provide a session in its database.

    `purpose` says what the caller does, as in "measure commits". A schema that a killed run has left is replaced. Needs
    CREATE on the database. Raises TargetError if the schema exists and is not penstock's. Raises ServerError if the
    connection goes to a pooler or a standby, or if another benchmark is running.
    """
    with factory.connect(label="bench") as control:
        factory.refuse_unwritable(purpose)
        refuse(check_standby(read_server_facts(control).is_in_recovery, purpose), ServerError)
        _create_schema(control, setup)
        try:
            yield control
        except BaseException:
            # The statements of an interrupted step may still run there. If this fails, the drop waits for them.
            with suppress(psycopg.Error):
                control.execute(_CANCEL, [SCHEMA, factory.application])
            raise
        finally:
            _drop_schema(control, factory)


def _drop_schema(control: Connection, factory: ConnectionFactory) -> None:
    """Drop SCHEMA. If the session was lost, a new one drops it, unless another session has the benchmark's lock."""
    what, drop = f"dropping schema {SCHEMA}", f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode()
    try:
        with translate_errors(what):
            control.execute(drop)
    except PenstockError:
        if not control.closed:
            raise
        with factory.connect(label="bench") as again, translate_errors(what):
            (is_alone,) = fetch_one(again, "SELECT pg_catalog.pg_try_advisory_lock(%s)", [_LOCK])
            if is_alone:
                again.execute(drop)
            else:
                factory.on_warning(f"schema {SCHEMA} stays: another session uses it. The next penstock bench drops it")


def _create_schema(control: Connection, setup: str) -> None:
    with in_transaction(control, f"creating schema {SCHEMA}"):
        is_alone, oid, comment = fetch_one(
            control,
            "SELECT pg_catalog.pg_try_advisory_lock(%s), pg_catalog.to_regnamespace(%s)::oid,"
            " pg_catalog.obj_description(pg_catalog.to_regnamespace(%s)::oid, 'pg_namespace')",
            [_LOCK, SCHEMA, SCHEMA],
        )
        if not is_alone:
            raise ServerError("another penstock bench runs in this database", hint="Wait until it ends.")
        if oid is not None and comment != _MARK:
            raise TargetError(
                f'schema "{SCHEMA}" already exists and was not created by penstock',
                detail="It lacks the comment of penstock bench.",
                hint="Name another database in --to, or rename the schema.",
            )
        if publications := find_publications(control):
            raise TargetError(
                f"publication {', '.join(map(quote_name, publications))} for all tables would publish the benchmark",
                detail="Its subscribers lack the tables, and would stop.",
                hint="Name another database in --to.",
            )
        if oid is not None:
            control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        control.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        control.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{_MARK}'".encode())
        control.execute(f"SET LOCAL search_path = {SCHEMA}; {setup}".encode())


@contextmanager
def new_database(factory: ConnectionFactory, name: str) -> Iterator[None]:
    """Create an empty database. It replaces the database that an earlier run has kept.

    `factory` connects to another database of the server. Needs CREATEDB. Raises TargetError if the database is not
    penstock's, and ServerError if another run is in progress or a session is connected to the database.
    """
    with factory.connect(label="bench") as control:
        with translate_errors(f"creating database {name}"):
            _create_database(control, name)
        yield


def _create_database(control: Connection, name: str) -> None:
    is_alone, oid, comment = fetch_one(
        control,
        "SELECT pg_catalog.pg_try_advisory_lock(%s), d.oid, pg_catalog.shobj_description(d.oid, 'pg_database')"
        " FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_database AS d ON d.datname = %s",
        [_DATABASE_LOCK, name],
    )
    if not is_alone:
        raise ServerError("another penstock demo runs on this server", hint="Wait until it ends.")
    if oid is not None and comment != _DATABASE_MARK:
        raise TargetError(
            f'database "{name}" already exists and was not created by penstock',
            detail="It lacks the comment of penstock demo.",
            hint="Rename it, or drop it if you do not need it.",
        )
    database = sql.Identifier(name)
    if oid is not None:
        control.execute(sql.SQL("DROP DATABASE {}").format(database))
    control.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(database))
    control.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(database, sql.Literal(_DATABASE_MARK)))


# This format reads a backslash N as text and removes quotes. IMDb's files contain both as data.
_OPTIONS = r"(FORMAT csv, HEADER true, DELIMITER E'\t')"


def make_staging(connection: Connection, schema: str, tables: Mapping[str, Sequence[str]]) -> None:
    """Create empty tables with text columns and without indexes, in place of those of the last run.

    `tables` gives the columns of each table name. Nothing of the user is replaced, because the schema or the database
    is the benchmark's own. Needs CREATE on the schema, or on the database if the schema does not exist. Raises
    ServerError.
    """
    with in_transaction(connection, f"creating the tables of schema {schema}"):
        for name, columns in tables.items():
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))
            create_table(connection, TableName(schema=schema, name=name), columns)


def count_rows(connection: Connection, schema: str, tables: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each table, by the table's name. Needs SELECT on them. Raises ServerError."""
    counts = {}
    with translate_errors(f"counting the rows of schema {schema}"):
        for name in tables:
            query = sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(sql.Identifier(schema, name))
            counts[name] = int(fetch_one(connection, query)[0])
    return counts


def checkpoint(connection: Connection) -> None:
    """Write all dirty pages, so that the next measurement does not include earlier writes.

    Needs superuser, or pg_checkpoint on PostgreSQL 15 and later. Raises ServerError.
    """
    with translate_errors("writing a checkpoint"):
        connection.execute("CHECKPOINT")


def read_wal_to_replay(connection: Connection) -> int:
    """Return how many bytes of WAL the server would replay after a crash. Needs superuser. Raises ServerError."""
    with translate_errors("reading the last checkpoint"):
        (wal_bytes,) = fetch_one(
            connection,
            "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), redo_lsn)"
            " FROM pg_catalog.pg_control_checkpoint()",
        )
    return int(wal_bytes)


def describe_copy(spec: CopySpec) -> str:
    """Return the text of a COPY FROM STDIN command for psql, for files with a header."""
    return f"{copy_statement(spec).as_string(None).removesuffix(')')}, HEADER)"


def create_import_functions(connection: Connection) -> None:
    """Create the extension aws_s3. Needs CREATE on the database and, in a lab, superuser. Raises ServerError."""
    with translate_errors("creating extension aws_s3"):
        connection.execute("CREATE EXTENSION IF NOT EXISTS aws_s3 CASCADE")


def import_as_published(connection: Connection, schema: str, table: str, place: S3Object) -> None:
    """Import an object into a table with the options of the article. Raises ServerError.

    Source: AWS Database Blog on bulk loading into Amazon RDS for PostgreSQL.
    """
    name = sql.Identifier(schema, table).as_string(connection)
    with translate_errors(f"importing into {schema}.{table}"):
        connection.execute(
            "SELECT aws_s3.table_import_from_s3(%s, '', %s, aws_commons.create_s3_uri(%s, %s, %s))",
            [name, _OPTIONS, *place],
        )


# COPY has no option for "no quoting", so this names as the quote a byte that does not occur in IMDb's files. The
# article's own FORMAT csv would load \N as text and remove quotes, so the rows would differ between the ways.
_QUOTE = "\x01"

# How many bytes of WAL are expected for each byte of text that is loaded into tables without indexes.
_WAL_OF_TEXT = 2


@slotted
class LoadTask:
    """The files to load into existing empty tables, the schema of the tables, and how to reach the server."""

    files: tuple[DataFile, ...]
    schema: str
    psql: Psql
    connect: ConnectionFactory
    open_settings: Callable[[], SettingsBackend]
    # For each table name, the S3 object that the server can import. Empty without S3.
    objects: Mapping[str, S3Object] = field(default_factory=dict)


def table_of(file: DataFile) -> str:
    """Return the name of the table for a file: title_principals for title.principals."""
    return file.table.replace(".", "_")


def import_in_turn(setting: LoadTask) -> None:
    """Have the server import one file after another from S3, with the article's call."""
    for file in setting.files:
        _import(setting, file)


def import_in_parallel(setting: LoadTask) -> None:
    """Have the server import all files from S3 at once, each in a session, with the article's call."""
    _run_together(lambda file: _import(setting, file), setting.files)


def _import(setting: LoadTask, file: DataFile) -> None:
    with setting.connect.connect(label="bench") as connection:
        import_as_published(connection, setting.schema, table_of(file), setting.objects[file.table])


def _run_together(load: Callable[[DataFile], object], files: Sequence[DataFile]) -> None:
    with ThreadPoolExecutor(max_workers=len(files)) as threads:
        runs = [threads.submit(load, file) for file in files]
    for run in runs:
        run.result()


def load_in_turn(setting: LoadTask) -> None:
    """Load one file after the other, each with its own psql."""
    for file in setting.files:
        setting.psql.copy(file.path, _copy_statement(setting.schema, file))


def load_in_parallel(setting: LoadTask) -> None:
    """Load all files at once, each with its own psql: the article's `psql ... &`."""
    _run_together(lambda file: setting.psql.copy(file.path, _copy_statement(setting.schema, file)), setting.files)


def load_with_penstock(setting: LoadTask) -> LoadCounts | None:
    """Load all files as one job, with the number of sessions that penstock chooses. Return what the loader counted."""
    return load_files(setting.connect, setting.schema, setting.files)


def load_and_vacuum(setting: LoadTask) -> None:
    """Load one file after the other by psql, freeze and analyze the tables, and write a checkpoint. Needs superuser."""
    load_in_turn(setting)
    with setting.connect.connect(label="bench") as connection:
        for file in setting.files:
            with translate_errors(f"vacuuming {setting.schema}.{table_of(file)}"):
                table = sql.Identifier(setting.schema, table_of(file))
                connection.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(table))
        checkpoint(connection)


def load_and_checkpoint(setting: LoadTask) -> LoadCounts | None:
    """Load all files as one job, with the VACUUM that follows by default, and write a checkpoint.

    Return what the loader counted. Needs superuser.
    """
    return load_files(setting.connect, setting.schema, setting.files, rules=_SETTLING)


def load_frozen(setting: LoadTask) -> LoadCounts | None:
    """Load as `load_and_checkpoint` does, by COPY commands that freeze the rows. Return what the loader counted.

    Needs superuser.
    """
    rules = replace(_SETTLING, freeze="always")
    return load_files(setting.connect, setting.schema, setting.files, rules=rules, mode="truncate")


@contextmanager
def bulk_load_settings(setting: LoadTask) -> Iterator[None]:
    """Give the server the settings of profile bulk-load, and restore the old ones at the end of the block."""
    with closing(setting.open_settings()) as backend:
        report, _ = backend.take(_request_settings(setting))
        try:
            yield
        finally:
            for lease_id in report.lease_ids:
                for warning in backend.release(lease_id).warnings:
                    setting.connect.on_warning(warning)


def why_no_settings(setting: LoadTask) -> str | None:
    """Return why the settings of profile bulk-load cannot be changed, and what to do, None if they can.

    Raises PenstockError.
    """
    with closing(setting.open_settings()) as backend:
        decision, _ = backend.leases().look(_request_settings(setting))
    if decision.obstacle is None or not decision.leased:
        return None
    return ". ".join(filter(None, (decision.obstacle, decision.remedy)))


def _request_settings(setting: LoadTask) -> LeaseRequest:
    wal_bytes = _WAL_OF_TEXT * sum(file.plain_bytes for file in setting.files)
    return LeaseRequest(
        profile=BULK_LOAD,
        client=client_name(),
        reason="penstock bench bulk-load",
        expected_wal_bytes=wal_bytes,
    )


# `again` is set because every round loads the same files into new tables. VACUUM is skipped because psql runs none.
_RULES = LoadRules(again=True, vacuum=False)
_SETTLING = LoadRules(again=True, checkpoint=True)


def load_files(
    connect: ConnectionFactory,
    schema: str,
    files: Sequence[DataFile],
    *,
    rules: LoadRules = _RULES,
    mode: Mode = "append",
) -> LoadCounts | None:
    """Load each file into the table of `schema` that has the file's name, as one job, and without a recording.

    Return the counts from which a load is diagnosed, None if the ledger shows that nothing was left to load. Raises
    PenstockError.
    """
    job = LoadJob(
        targets=tuple(
            TargetJob(sources=(str(file.path),), into=TableName(schema=schema, name=table_of(file)), mode=mode)
            for file in files
        ),
        rules=rules,
    )
    # On a user's own server, the ledger too is in the schema that is dropped.
    ledger = SCHEMA if schema == SCHEMA else Housekeeping().ledger_schema
    with SourceReader() as sources:
        plan = plan_load(job, PlanTools(connect=connect, sources=sources, ledger_schema=ledger))
        tools = LoadTools(connect=connect, sources=sources, server_major=plan.server.major, ledger=Ledger(ledger))
        outcome = run_load(plan, tools)
    if outcome.accounts is None:
        return None
    setting = list_conditions(plan, Housekeeping(), outcome.accounts, is_recorded=False)
    return LoadCounts(accounts=outcome.accounts, setting=setting)


def check_rows(what: str, counts: Mapping[str, int], files: Sequence[DataFile]) -> None:
    """Raise LabError if a table's number of rows differs from its file's.

    `counts` maps the tables' names to the numbers, and `what` names the load in the message.
    """
    for file in files:
        if counts[table_of(file)] != file.rows:
            raise LabError(
                f'"{what}" did not load every row of {file.table}',
                detail=f"{counts[table_of(file)]} rows in the table, {file.rows} in the file",
            )


def staging_tables(files: Sequence[DataFile]) -> Mapping[str, Sequence[str]]:
    """Return the names of each file's columns, by the name of the table for the file."""
    return {table_of(file): IMDB_TABLES[file.table] for file in files}


def _copy_statement(schema: str, file: DataFile) -> str:
    spec = CopySpec(
        schema=schema,
        table=table_of(file),
        columns=IMDB_TABLES[file.table],
        format="csv",
        delimiter="\t",
        null=r"\N",
        quote=_QUOTE,
        escape=_QUOTE,
        encoding="UTF8",
    )
    return describe_copy(spec)
