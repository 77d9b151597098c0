"""Examines a server, the role's rights there, and whether a load would work.

The facts come from SQL, from this host if the server is local, and from AWS if the server is on Amazon RDS.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.access.load import judge_disks, judge_routes, judge_volume, judge_windows
from penstock.access.preflight import judge, sort_findings, would_load
from penstock.access.rds import describe_silence, find_iam_fault, judge_rds
from penstock.api.loader import Loader
from penstock.api.rds.describe import find_host
from penstock.aws.credentials import AwsCredentials
from penstock.errors import AwsError, PenstockError, ServerError, UsageError
from penstock.frozen import frozen
from penstock.host import cpu_count, measure_disk, read_machine
from penstock.loading.plan.settings import LoadSettings
from penstock.loading.plan.space import DiskSpace
from penstock.loading.steps.space import SpaceCheck
from penstock.model.finding import Finding, refusal, refusal_of
from penstock.model.redaction import hide_secrets
from penstock.model.server.endpoints import is_rds_endpoint
from penstock.model.server.inspection import HostFacts, Inspection, Volume
from penstock.model.source.source import S3Route
from penstock.server.inspect.inspect import inspect_server, inspect_table

if TYPE_CHECKING:
    from penstock.model.load.job import Request
    from penstock.model.load.ledger import LedgerOutlook
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.rds import RdsDescription
    from penstock.model.server.server import ServerFacts
    from penstock.model.server.table import TableName
    from penstock.server.connect.connection import ConnectionFactory


def explain_refused_token(error: ServerError, *, to: str | None, now: datetime) -> ServerError:
    """Return the error of a refused IAM token, with cause and remedy if AWS's description of the server shows them."""
    from penstock.aws.rds import describe_instance  # noqa: PLC0415 (59 ms, botocore)

    try:
        host = find_host(to)
        fault = find_iam_fault(describe_instance(host, now=now, is_brief=True)) if is_rds_endpoint(host) else None
    except (AwsError, UsageError):
        return error
    if fault is None:
        return error
    detail = f"{fault.text[:1].upper()}{fault.text[1:]}."
    return ServerError(
        error.message,
        detail=detail if error.detail is None else f"{error.detail}\n{detail}",
        hint=fault.remedy,
        sqlstate=error.sqlstate,
    )


# The object store's client uses this region if none is configured.
_DEFAULT_REGION = "us-east-1"


@frozen
class LoadExamination:
    """A planned load, and what it needs."""

    # For an RDS instance, its volume is the only disk of the plan.
    plan: LoadPlan
    server: ServerFacts
    # The routes to S3.
    routes: tuple[S3Route, ...]
    outlook: LedgerOutlook


@frozen
class Diagnosis:
    """What doctor found: the facts, and what they mean for a load."""

    inspection: Inspection
    # AWS's description, or the error of asking AWS; None if AWS was not asked.
    aws: RdsDescription | AwsError | None
    findings: tuple[Finding, ...]
    # None if no load was to be planned, or if a finding refuses it.
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
) -> Diagnosis:
    """Return the facts of a server, and whether a load into a table would work. Changes nothing.

    Works on a standby and through a pooler, and needs no privilege. If a `request` is given and no finding refuses it,
    the load that it describes is planned too. If `creates` is true, the load creates the table if it does not exist. If
    `publishes` is true, publications may include the ledger's tables. If `is_repeating` is true, other ledgers may know
    the load's files. Raises ServerError.
    """
    found = examine_server(connect, ledger_schema=ledger_schema, table=table, is_repeating=is_repeating)
    aws = ask_aws(connect, now=now)
    described = None if isinstance(aws, AwsError) else aws
    findings = list(judge(found, creates=creates, publishes=publishes))
    if aws is not None:
        findings += (
            [describe_silence(aws)]
            if isinstance(aws, AwsError)
            else [*judge_rds(aws, uses_iam=uses_iam), *judge_windows(aws, now=now)]
        )
    planned: LoadExamination | None = None
    if found.pooler is None and (found_refusal := connect.find_refusal("load")) is not None:
        findings.append(found_refusal)
    if request is not None and would_load(findings):
        try:
            planned = examine_load(connect, request, described)
        except PenstockError as error:
            findings.append(refusal_of(error, "plan"))
        else:
            findings += _judge_load(planned, described)
    return Diagnosis(inspection=found, aws=aws, findings=sort_findings(findings), planned=planned)


def _judge_load(planned: LoadExamination, described: RdsDescription | None) -> list[Finding]:
    rules = planned.plan.job.rules
    space, settings = planned.plan.find_part(DiskSpace), planned.plan.find_part(LoadSettings)
    findings = [*judge_routes(planned.plan, planned.routes)]
    if rules.warnings == "error":
        findings += [refusal("warnings", f"a warning is an error: {notice.message}") for notice in planned.plan.notices]
    if settings is not None and settings.is_refusing:
        findings.append(
            refusal("settings", "the settings that were asked for cannot be had: see penstock settings diff")
        )
    if space is not None:
        storage = None if described is None or described.instance is None else described.instance.storage
        if described is None or storage is None:
            findings += judge_disks(space)
        else:
            findings += judge_volume(space.disks[0], storage, described)
    return findings


def examine_server(
    connect: ConnectionFactory,
    *,
    ledger_schema: str = "penstock",
    table: TableName | None = None,
    is_repeating: bool = False,
) -> Inspection:
    """Return the facts of a server, and of a table to load into. Changes nothing, and works through a pooler.

    Needs no privilege: facts that the role may not see are None. Raises ServerError.
    """
    with connect.borrow() as connection:
        inspection = inspect_server(connection, pooler=connect.pooler, ledger_schema=ledger_schema)
        if table is not None:
            is_readable = inspection.ledger is not None and inspection.ledger.distrust is None
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
    """Return AWS's description of the connected server, or the AwsError of the request; None if it is not on RDS.

    docs/rds.md lists the AWS permissions. Raises ServerError if the server cannot be reached.
    """
    with connect.borrow() as connection:
        host = connection.info.host
    if not is_rds_endpoint(host):
        return None
    from penstock.aws.rds import describe_instance  # noqa: PLC0415 (59 ms, botocore)

    try:
        return describe_instance(host, now=now)
    except AwsError as error:
        return error


def examine_load(connect: ConnectionFactory, request: Request, aws: RdsDescription | None) -> LoadExamination:
    """Plan a load, and return the disk space and the routes that it needs.

    The load does not begin. Raises PenstockError.
    """
    with Loader(connect, request.housekeeping) as loader:
        plan, outlook = loader.foresee(loader.plan(request.job))
        instance = None if aws is None else aws.instance
        if instance is not None and instance.storage is not None and instance.storage.free_bytes is not None:
            device = f"the storage of {instance.identifier}"
            volume = loader.forecast_volume(plan, device=device, free_bytes=instance.storage.free_bytes)
            plan = plan.with_part(SpaceCheck.name, DiskSpace(disks=(volume,)))
        return LoadExamination(
            plan=plan,
            server=loader.server,
            routes=_find_routes(plan),
            outlook=outlook,
        )


def _find_routes(plan: LoadPlan) -> tuple[S3Route, ...]:
    uris = {source.uri for target in plan.targets for source in target.objects}
    buckets = sorted({uri.split("/")[2] for uri in uris if uri.startswith("s3://")})
    if not buckets:
        return ()
    given = AwsCredentials().s3_config()
    region = given.get("region", _DEFAULT_REGION)
    endpoint = hide_secrets(given["endpoint"]) if "endpoint" in given else None
    return tuple(S3Route(bucket=bucket, region=region, endpoint=endpoint) for bucket in buckets)


def _examine_host(inspection: Inspection) -> HostFacts:
    found = ((holds, measure_disk(path)) for holds, path in find_directories(inspection))
    volumes = tuple(Volume(holds=holds, **asdict(disk)) for holds, disk in found if disk is not None)
    return HostFacts(cpu_count=cpu_count(), memory_bytes=read_machine().memory_bytes, volumes=volumes)


def find_directories(inspection: Inspection) -> list[tuple[str, Path]]:
    """Return the server's directories, each with what it holds, as far as the role may read them."""
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
