"""`penstock doctor`: what the server is and may do, and whether a load would go."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.doctor_view import describe_facts
from penstock.cli.exit_codes import WOULD_NOT_LOAD
from penstock.cli.loads import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_drawn, write_result
from penstock.cli.plan_view import describe_plan, plan_object
from penstock.errors import AwsError, PenstockError, ServerError, UsageError
from penstock.model.finding import Finding
from penstock.model.job import LoadJob, TargetJob
from penstock.model.names import parse_table_name

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.api.doctor import LoadExamination
    from penstock.model.inspection import Inspection
    from penstock.model.rds import RdsDescription
    from penstock.model.table import TableName
    from penstock.server.connection import ConnectionFactory

app = typer.Typer(add_completion=False)

For = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="SOURCE",
        help="Also plan a load of these files into --into, as penstock load --plan does, and check disk "
        "space. May be given several times.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option("--into", metavar="TABLE", help="Also check this target table: TABLE or SCHEMA.TABLE."),
]


@app.command("doctor")
def doctor(
    into: Into = None,
    sources: For = None,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """Show what the server is, what the role may do there, whether a load can begin, and how to fix what prevents it.

    Changes nothing and needs no privilege. It also works on a standby and behind a connection pooler, and reports it.
    For an endpoint of Amazon RDS or Aurora, AWS is asked too (permissions: docs/rds.md); no answer is not an error.

    Exit codes: 0 ready to load, 9 a load would be refused; others as for every command.
    """
    if sources and into is None:
        raise UsageError("--for needs a table", hint="Name the table to load into with --into.")
    from datetime import UTC, datetime

    from penstock.api import connect_to
    from penstock.api.doctor import ask_aws, examine_server, explain_refused_token
    from penstock.loading.preflight import judge, sort_findings, would_load

    now = datetime.now(UTC)
    table = None if into is None else parse_table_name(into)
    connect = connect_to(to, role=role, iam_auth=iam_auth, tunnel=tunnel, allows_standby=True)
    try:
        found = examine_server(connect, ledger_schema=ledger_schema, table=table)
        aws = ask_aws(connect, now=now)
        findings = sort_findings([*judge(found), *_judge_aws(aws, uses_iam=iam_auth, now=now)])
        planned: LoadExamination | None = None
        if sources and table is not None and would_load(findings):
            planned, more = _examine(connect, sources, table, aws)
            findings = sort_findings([*findings, *more])
    except ServerError as error:
        raise (explain_refused_token(error, to=to, now=now) if iam_auth else error) from error.__cause__
    finally:
        connect.close()
    if as_json:
        write_result(_as_object(found, aws, findings, planned))
    else:
        from penstock.cli.doctor_screen import render

        lines = [] if planned is None else describe_plan(planned.plan, planned.server)
        facts = [*describe_facts(found), *_describe_aws(aws)]
        write_drawn(render(facts, findings, goes=would_load(findings), plan=lines))
    if not would_load(findings):
        raise typer.Exit(WOULD_NOT_LOAD)


def _judge_aws(aws: RdsDescription | AwsError | None, *, uses_iam: bool, now: datetime) -> list[Finding]:
    if aws is None:
        return []
    from penstock.loading.preflight_load import judge_windows
    from penstock.loading.preflight_rds import describe_silence, judge_rds

    if isinstance(aws, AwsError):
        return [describe_silence(aws)]
    return [*judge_rds(aws, uses_iam=uses_iam), *judge_windows(aws, now=now)]


def _describe_aws(aws: RdsDescription | AwsError | None) -> list[tuple[str, str]]:
    if aws is None or isinstance(aws, AwsError):
        return []
    from penstock.cli.doctor_rds import describe_rds_facts

    # A section of its own, in the same columns.
    return [("", ""), *describe_rds_facts(aws)]


def _rds_object(aws: RdsDescription | AwsError | None) -> dict[str, object] | None:
    if aws is None or isinstance(aws, AwsError):
        return None
    from penstock.cli.rds_view import description_object

    return description_object(aws)


def _examine(
    connect: ConnectionFactory, sources: list[str], table: TableName, aws: RdsDescription | AwsError | None
) -> tuple[LoadExamination | None, list[Finding]]:
    """Return the plan of a load and what it needs, or what it would be refused for."""
    from penstock.api.doctor import examine_load
    from penstock.loading.preflight_load import judge_disks, judge_routes, judge_volume

    job = LoadJob(targets=(TargetJob(sources=tuple(sources), table=table),))
    described = None if isinstance(aws, AwsError) else aws
    try:
        examined = examine_load(connect, job, described)
    except PenstockError as error:
        text = error.message if error.detail is None else f"{error.message}. {error.detail}"
        return None, [Finding(severity="refusal", subject="plan", text=text, remedy=error.hint)]
    findings = [*judge_disks(examined.disks), *judge_routes(examined.plan, examined.routes)]
    if examined.volume is not None and described is not None:
        assert described.instance is not None
        assert described.instance.storage is not None
        findings += judge_volume(examined.volume, described.instance.storage, described)
    return examined, findings


def _plan_object(planned: LoadExamination) -> dict[str, object]:
    disks = [*planned.disks, *([] if planned.volume is None else [planned.volume])]
    return plan_object(planned.plan, planned.server, disks)


def _as_object(
    found: Inspection,
    aws: RdsDescription | AwsError | None,
    findings: tuple[Finding, ...],
    planned: LoadExamination | None,
) -> dict[str, object]:
    from penstock.loading.preflight import would_load

    facts = asdict(found)
    if found.table is not None and found.table.facts is not None:
        # A set is nothing that JSON knows.
        facts["table"]["facts"]["references"] = sorted(found.table.facts.references)
    return {
        "would_load": would_load(findings),
        "findings": [asdict(finding) for finding in findings],
        "facts": facts,
        "rds": _rds_object(aws),
        "plan": None if planned is None else _plan_object(planned),
    }
