"""Examines a server, the role's rights there, and whether a load would work.

The facts come from SQL, from this host if the server is local, and from AWS if the server is on Amazon RDS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.changes.tables.copied import refuse_copied
from penstock.changes.tables.definition import PublicationRow
from penstock.changes.tables.look import (
    describe_change,
    group_attached,
    read_missing,
    refuse_changed_elsewhere,
    refuse_missing,
)
from penstock.changes.values import Change
from penstock.core.aws.credentials import AwsCredentials
from penstock.core.catalogue.catalog import ask_server_facts, check_loadable, find_foreign_partitions, find_table
from penstock.core.catalogue.locking import LOCK_NOT_AVAILABLE, with_lock_retries
from penstock.core.catalogue.settings import recognise_flavour, recognise_managers
from penstock.core.catalogue.tables import refuse_creation
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.connect.errors import in_transaction, is_passing, read_report, to_penstock_error, translate_errors
from penstock.core.connect.route import is_loopback
from penstock.core.connect.search_path import find_creation_schema
from penstock.core.errors import AwsError, PenstockError, ServerError, TargetError, UsageError
from penstock.core.host.disks import measure_disk
from penstock.core.host.machine import cpu_count, read_machine
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, send_query
from penstock.core.values.diagnosis import Diagnosis, refusal, refusal_of
from penstock.core.values.inspection import (
    Archiver,
    Connections,
    Encryption,
    FileSystem,
    HostFacts,
    Inspection,
    LedgerState,
    Mark,
    Publication,
    Receiver,
    Rights,
    Setting,
    Slot,
    StandbyRow,
    TableCosts,
    TableInspection,
    Tablespace,
)
from penstock.core.values.job import Request
from penstock.core.values.server import LedgerRights, PoolerFacts, ServerFacts, Unread
from penstock.core.values.source import S3Bucket
from penstock.core.values.table import TableName
from penstock.core.words import hide_secrets
from penstock.ledger.lookup import look_for_ledgers, refuse_known_elsewhere
from penstock.ledger.schema import foresee_upgrade, look_for_ledger
from penstock.loading.files.streams import SourceReader
from penstock.loading.loader import Loader
from penstock.loading.plan.settings import LoadSettings
from penstock.loading.plan.space import DiskSpace
from penstock.loading.steps.columns import SpaceCheck
from penstock.loading.values.plan import ForeseenLoad, LoadPlan
from penstock.preflight.findings import (
    judge,
    judge_disks,
    judge_routes,
    judge_volume,
    judge_windows,
    sort_findings,
    would_load,
)
from penstock.rds.describe import describe_instance, read_host
from penstock.rds.findings import describe_silence, find_iam_fault, judge_rds
from penstock.watch.activity import read_moment, read_settings, read_slow
from penstock.watch.risks import RiskMeter
from penstock.watch.values import Progress, Sample

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription

# The queries of doctor. Each has the type of its rows, and a name for the facts that it reads, which error messages
# use.
_QUERIES: dict[str, tuple[type, str]] = {
    "core/inspect_marks": (Mark, "marks of managed services"),
    "preflight/rights": (Rights, "rights"),
    "preflight/settings": (Setting, "settings"),
    "preflight/connections": (Connections, "connections"),
    "core/inspect_standbys": (StandbyRow, "standbys"),
    "core/inspect_slots": (Slot, "replication slots"),
    "preflight/receiver": (Receiver, "WAL receiver"),
    "core/inspect_archiver": (Archiver, "archiver"),
    "preflight/publications": (Publication, "publications"),
    "preflight/tablespaces": (Tablespace, "tablespaces"),
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
    """Return all facts of a server that the current role can read by SQL. A fact that it may not read is None.

    `pooler` are the facts of the connection pooler in between, None if there is none. `clock` returns this host's Unix
    time in seconds. Raises ServerError if the connection is lost, and TargetError if not even the role's rights can be
    read.
    """
    server, ledger = _ask_basics(connection, ledger_schema)
    if pooler is not None:
        # The pooler may run on another machine than penstock. The server's address shows only whether the server and
        # the pooler are on one machine.
        server = replace(server, is_local=False)
    answers, unread = _ask_all(connection)
    marks: list[Mark] = answers.get("core/inspect_marks", [])
    settings: list[Setting] = answers.get("preflight/settings", [])
    if "preflight/rights" not in answers:
        raise next(TargetError(f"cannot read {note.what}: {note.why}") for note in unread if note.what == "rights")
    (rights,) = answers["preflight/rights"]
    moment, measured = read_moment(connection, clock)
    cluster_name = next((setting.value for setting in settings if setting.name == "cluster_name"), None)
    return Inspection(
        server=server,
        flavour=recognise_flavour(marks, is_multi_az_cluster=_is_multi_az_cluster(connection, marks)),
        managers=recognise_managers(marks, cluster_name=cluster_name),
        pooler=pooler,
        rights=rights,
        settings=tuple(settings),
        connections=_first(answers, "preflight/connections"),
        standbys=_all(answers, "core/inspect_standbys"),
        slots=_all(answers, "core/inspect_slots"),
        receiver=_first(answers, "preflight/receiver"),
        archiver=_first(answers, "core/inspect_archiver"),
        publications=_all(answers, "preflight/publications"),
        tablespaces=_all(answers, "preflight/tablespaces"),
        autovacuum_workers=moment.autovacuum_workers,
        ledger=ledger,
        clock=measured,
        encryption=_find_encryption(connection),
        unread=tuple(unread),
    )


def _find_encryption(connection: Connection) -> Encryption | None:
    """Return whether the network connection is encrypted, as libpq reports it.

    Return None for a connection without TLS that is local or uses GSSAPI.
    """
    pgconn, address = connection.pgconn, connection.info.hostaddr
    # psycopg does not show whether GSSAPI encrypts or only authenticates.
    is_plain_elsewhere = bool(address) and not is_loopback(address) and not pgconn.used_gssapi
    if not pgconn.ssl_in_use and not is_plain_elsewhere:
        return None
    # `val` is the sslmode of the connection string or of PGSSLMODE, or libpq's default.
    (sslmode,) = (option.val for option in pgconn.info if option.keyword == b"sslmode")
    return Encryption(is_encrypted=pgconn.ssl_in_use, sslmode=(sslmode or b"prefer").decode())


def _ask_basics(connection: Connection, schema: str) -> tuple[ServerFacts, LedgerState]:
    """Return the facts that every server shows, and the state of its ledger."""
    with translate_errors("reading server and ledger"), connection.pipeline():
        facts = ask_server_facts(connection)
        rights = send_query(connection, "ledger/ledger", LedgerRights, schema=schema)
        find_ledger = look_for_ledger(connection, schema)
    (row,) = rights()
    version, distrust = None, None
    try:
        version = find_ledger()
    except TargetError as error:
        distrust = refusal_of(error, "ledger")
    upgrade = None if version is None else foresee_upgrade(schema, version, row, database=connection.info.dbname)
    exists = version is not None
    return facts(), LedgerState(schema=schema, exists=exists, distrust=distrust, upgrade=upgrade, **asdict(row))


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
    """Return the facts of a table that affect a load into it, and why a load would be refused. Raises ServerError.

    `user` is the role that loads. `ledger_schema` is the schema of the ledger, None if the ledger cannot be read. With
    `is_repeating`, the load may repeat files that the ledgers of other schemas record.
    """
    facts = find_table(connection, name)
    if facts is None:
        try:
            refuse_creation(connection, name)
        except TargetError as error:
            return TableInspection(asked=name, refusal=refusal_of(error, "table"))
        return TableInspection(asked=name)

    def look() -> tuple[TableCosts | None, tuple[str, ...]]:
        with translate_errors(f"inspecting table {facts.name}"), connection.pipeline():
            costs = send_query(connection, "preflight/table", TableCosts, oid=facts.oid)
            publications = send_query(connection, "changes/ddl_publications", PublicationRow, oid=facts.oid)
        return next(iter(costs()), None), tuple(row.name for row in publications())

    try:
        costs, publications = with_lock_retries(connection, look, relations=[facts.oid], deadline_s=0)
    except ServerError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        return TableInspection(asked=name, facts=facts, refusal=refusal_of(error, "table"))
    refusal, missing = None, list[Change]()
    try:
        check_loadable(facts, user=user, foreign_partitions=find_foreign_partitions(connection, facts))
        if ledger_schema is not None:
            ledgers = look_for_ledgers(connection, ledger_schema)
            if ledgers.exists:
                _refuse_unrestored(connection, ledger_schema, [facts.oid])
                missing = read_missing(connection, ledger_schema, facts.oid)
            if not is_repeating:
                refuse_known_elsewhere(connection, ledgers, {facts.oid: facts.name})
            refuse_changed_elsewhere(connection, ledgers.others, [facts.oid])
    except TargetError as error:
        refusal = refusal_of(error, "table")
    return TableInspection(
        asked=name,
        facts=facts,
        costs=costs,
        publications=publications,
        refusal=refusal,
        lacking=tuple(describe_change(family[0]) for family in group_attached(missing)),
        dropped_by=tuple(dict.fromkeys(each.load_id for each in missing)),
    )


def _refuse_unrestored(connection: Connection, schema: str, oids: Sequence[int] | None) -> None:
    """Raise TargetError if a load has left one of the tables changed, and only `penstock repair` restores it."""
    refuse_copied(connection, refuse_missing(connection, schema, oids), oids)


def _find_unrestored(connection: Connection, ledger: LedgerState) -> Diagnosis | None:
    """Return why loads into a table of the database are refused until `penstock repair`, None if there is none."""
    if not (ledger.exists and ledger.may_write) or ledger.distrust is not None or ledger.upgrade is not None:
        return None
    try:
        _refuse_unrestored(connection, ledger.schema, None)
    except TargetError as error:
        return refusal_of(error, "ledger")
    return None


def explain_refused_token(error: ServerError, *, to: str | None, now: datetime) -> ServerError:
    """Return the error of a refused IAM token, with cause and remedy if AWS's description of the server shows them.

    `to` is the connection string; None means the server that the PG* variables name. Without a cause, the error is
    returned unchanged.
    """
    try:
        host = read_host(to)
        fault = find_iam_fault(describe_instance(host, now=now, is_brief=True)) if is_rds_endpoint(host) else None
    except (AwsError, UsageError):
        return error
    if fault is None:
        return error
    detail = f"{fault.claim[:1].upper()}{fault.claim[1:]}."
    return ServerError(
        error.message,
        detail=detail if error.detail is None else f"{error.detail}\n{detail}",
        hint=fault.remedy,
        sqlstate=error.sqlstate,
    )


# The object store's client uses this region if none is configured.
_DEFAULT_REGION = "us-east-1"


@slotted
class LoadExamination:
    """A planned load, and the endpoints by which its S3 buckets are reached."""

    # On an RDS instance, the load's disk space has one disk: the instance's volume.
    foreseen: ForeseenLoad
    # The endpoint by which each S3 bucket is reached.
    routes: tuple[S3Bucket, ...]


@slotted
class DoctorResult:
    """What doctor found: the facts of a server, and the findings that say what they mean for a load."""

    inspection: Inspection
    # AWS's description, or the error of asking AWS; None if AWS was not asked.
    aws: RdsDescription | AwsError | None
    findings: tuple[Diagnosis, ...]
    # The planned load, None if no load was to be planned, or if a finding refuses it.
    planned: LoadExamination | None = None

    @property
    def described(self) -> RdsDescription | None:
        """Return AWS's description, None if there is none."""
        return None if isinstance(self.aws, AwsError) else self.aws

    @property
    def would_load(self) -> bool:
        """Return whether a load would begin."""
        return would_load(self.findings)


def diagnose(
    connect: ConnectionFactory,
    *,
    now: datetime,
    table: TableName | None = None,
    request: Request | None = None,
    ledger_schema: str = "penstock",
    creates: bool = False,
    publishes: bool = False,
    is_repeating: bool = False,
    uses_iam: bool = False,
    sources: Callable[..., SourceReader] | None = None,
) -> DoctorResult:
    """Return the facts of a server, and findings that say whether a load into a table would begin. Changes nothing.

    Works on a standby and through a pooler, and needs no privilege. `now` is the time that windows of RDS are compared
    with. If `request` is given and no finding refuses the load, the load is planned too; `sources` makes the reader of
    its sources. `creates` is whether the load creates a missing table, and `publishes` whether publications may include
    the ledger's tables. With `is_repeating`, the load may repeat files that other ledgers record. `uses_iam` is whether
    sessions authenticate by IAM tokens. Raises ServerError.
    """
    found = examine_server(connect, ledger_schema=ledger_schema, table=table, is_repeating=is_repeating)
    aws = ask_aws(connect, now=now)
    described = None if isinstance(aws, AwsError) else aws
    findings = [*judge(found, creates=creates, publishes=publishes), *read_risks(connect)]
    if aws is not None:
        findings += (
            [describe_silence(aws)]
            if isinstance(aws, AwsError)
            else [*judge_rds(aws, uses_iam=uses_iam), *judge_windows(aws, now=now)]
        )
    planned: LoadExamination | None = None
    if found.pooler is None and (found_refusal := connect.explain_unwritable("load")) is not None:
        findings.append(found_refusal)
    if request is not None and would_load(findings):
        try:
            planned = examine_load(connect, request, described, sources)
        except PenstockError as error:
            findings.append(refusal_of(error, "plan"))
        else:
            findings += _judge_load(planned, described)
    return DoctorResult(inspection=found, aws=aws, findings=sort_findings(findings), planned=planned)


def read_risks(connect: ConnectionFactory) -> tuple[Diagnosis, ...]:
    """Return findings about what does not slow the server now but will stop it, such as exhausted transaction numbers.

    They are found in one reading of the server. Raises ServerError.
    """
    nowhere = Progress(wal_bytes=None, next_xid=None)
    with connect.borrow() as connection:
        meter = RiskMeter(read_settings(connection))
        counters = read_slow(connection)
    meter.see(Sample(at_s=0.0, interval_s=0.0, sessions=(), progress=nowhere, counters=counters))
    return meter.result()


def _judge_load(planned: LoadExamination, described: RdsDescription | None) -> list[Diagnosis]:
    foreseen = planned.foreseen
    space, settings = foreseen.find_part(DiskSpace), foreseen.find_part(LoadSettings)
    findings = [*judge_routes(foreseen.plan, planned.routes)]
    if foreseen.plan.job.rules.warnings == "error":
        findings += [refusal("warnings", f"a warning is an error: {notice.message}") for notice in foreseen.notices]
    if settings is not None and settings.is_refusing:
        findings.append(
            refusal("settings", "the settings that were asked for cannot be had: see penstock settings diff")
        )
    if space is not None:
        storage = None if described is None or described.instance is None else described.instance.storage
        if described is None or storage is None:
            findings += judge_disks(space)
        else:
            findings += judge_volume(space.disks[0], storage, described, is_ignored=space.is_ignored)
    return findings


def examine_server(
    connect: ConnectionFactory,
    *,
    ledger_schema: str = "penstock",
    table: TableName | None = None,
    is_repeating: bool = False,
) -> Inspection:
    """Return the facts of a server, and of `table` if it is given. Changes nothing, and works through a pooler.

    Needs no privilege: facts that the role may not read are None. With `is_repeating`, a load may repeat files that
    other ledgers record. Raises ServerError.
    """
    with connect.borrow() as connection:
        inspection = inspect_server(connection, pooler=connect.pooler, ledger_schema=ledger_schema)
        ledger = inspection.ledger
        if table is None and ledger is not None:
            inspection = replace(inspection, ledger=replace(ledger, unrestored=_find_unrestored(connection, ledger)))
        if table is not None:
            is_readable = ledger is not None and ledger.distrust is None
            inspected = inspect_table(
                connection,
                table,
                user=inspection.server.user,
                ledger_schema=ledger_schema if is_readable else None,
                is_repeating=is_repeating,
            )
            inspection = replace(inspection, table=inspected)
    return replace(inspection, host=_examine_host(inspection)) if inspection.server.is_local else inspection


def ask_aws(connect: ConnectionFactory, *, now: datetime) -> RdsDescription | AwsError | None:
    """Return AWS's description of the connected server, or the AwsError if AWS gives none.

    Return None if the server is not on RDS. docs/rds.md lists the AWS permissions. Raises ServerError if the server
    cannot be reached.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        return None
    try:
        return describe_instance(host, now=now)
    except AwsError as error:
        return error


def examine_load(
    connect: ConnectionFactory,
    request: Request,
    aws: RdsDescription | None,
    sources: Callable[..., SourceReader] | None = None,
) -> LoadExamination:
    """Plan a load without beginning it. Return its plan, the disk space it needs, and the endpoints of its S3 buckets.

    `aws` is AWS's description of the server, None if there is none. `sources` makes the reader of the sources. Raises
    PenstockError.
    """
    with Loader(connect, request.housekeeping, sources=sources or SourceReader) as loader:
        foreseen = loader.foresee(loader.plan(request.job))
        instance = None if aws is None else aws.instance
        # What is left of objects that would be resumed is not known.
        actions = ("new",) if foreseen.outlook is None else foreseen.outlook.actions
        is_known = "new" in actions and "resume" not in actions
        if (
            is_known
            and instance is not None
            and instance.storage is not None
            and instance.storage.free_bytes is not None
        ):
            device = f"the storage of {instance.identifier}"
            volume = loader.forecast_volume(foreseen, device=device, free_bytes=instance.storage.free_bytes)
            space = DiskSpace(disks=(volume,), is_ignored=request.job.rules.ignore_space)
            foreseen = replace(foreseen, steps={**foreseen.steps, SpaceCheck.name: space})
        return LoadExamination(foreseen=foreseen, routes=_find_routes(foreseen.plan))


def _find_routes(plan: LoadPlan) -> tuple[S3Bucket, ...]:
    uris = {source.uri for target in plan.targets for source in target.objects}
    buckets = sorted({uri.split("/")[2] for uri in uris if uri.startswith("s3://")})
    if not buckets:
        return ()
    given = AwsCredentials().s3_config()
    region = given.get("region", _DEFAULT_REGION)
    endpoint = hide_secrets(given["endpoint"]) if "endpoint" in given else None
    return tuple(S3Bucket(bucket=bucket, region=region, endpoint=endpoint) for bucket in buckets)


def _examine_host(inspection: Inspection) -> HostFacts:
    found = ((holds, measure_disk(path)) for holds, path in find_directories(inspection))
    volumes = tuple(FileSystem(holds=holds, **asdict(disk)) for holds, disk in found if disk is not None)
    return HostFacts(cpu_count=cpu_count(), memory_bytes=read_machine().memory_bytes, volumes=volumes)


def find_directories(inspection: Inspection) -> list[tuple[str, Path]]:
    """Return the server's data directory, pg_wal and tablespaces that this role may see, each as a name and a path."""
    found = []
    if (data := inspection.value("data_directory")) is not None:
        found += [("data directory", Path(data)), ("WAL", Path(data) / "pg_wal")]
    found += [
        (f'tablespace "{space.name}"', Path(space.location))
        for space in inspection.tablespaces or ()
        # pg_default and pg_global have no location. Tablespaces that were created with allow_in_place_tablespaces have
        # a relative location.
        if Path(space.location).is_absolute()
    ]
    return found
