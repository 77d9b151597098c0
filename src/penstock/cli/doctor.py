"""`penstock doctor`: what the server is and may do, and whether a load would go."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli.doctor_view import describe_facts
from penstock.cli.exit_codes import WOULD_NOT_LOAD
from penstock.cli.loads import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_result
from penstock.cli.plan_view import describe_plan, plan_object
from penstock.errors import PenstockError, UsageError
from penstock.model.finding import Finding
from penstock.model.job import LoadJob, TargetJob
from penstock.model.names import parse_table_name

if TYPE_CHECKING:
    from penstock.model.inspection import Inspection
    from penstock.model.plan import LoadPlan
    from penstock.model.table import TableName
    from penstock.server.connection import ConnectionFactory

app = typer.Typer(add_completion=False)

For = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="SOURCE",
        help="Also plan a load of these files into --into, as penstock load --plan does. May be given several times.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="TABLE", help="Also look at the table that is to be loaded into: TABLE or SCHEMA.TABLE."
    ),
]


@app.command("doctor")
def doctor(
    into: Into = None,
    sources: For = None,
    to: given.To = None,
    role: given.Role = None,
    ledger_schema: given.LedgerSchema = "penstock",
    as_json: Json = False,
) -> None:
    """Say what the server is, what the role may do there, what of a load would work, and what would mend the rest.

    Changes nothing and needs no privilege. It also works on a standby and behind a connection pooler, and says so.

    Exit codes: 0 a load would go, 9 it would be refused; others as of every command.
    """
    if sources and into is None:
        raise UsageError("--for needs a table", hint="Name the table to load into with --into.")
    from penstock.api import connect_to
    from penstock.api.doctor import examine_server
    from penstock.loading.preflight import judge, would_load

    table = None if into is None else parse_table_name(into)
    connect = connect_to(to, role=role, allows_standby=True)
    try:
        found = examine_server(connect, ledger_schema=ledger_schema, table=table)
        findings = judge(found)
        planned: tuple[LoadPlan, list[str]] | None = None
        if sources and table is not None and would_load(findings):
            planned, refused = _plan(connect, sources, table)
            findings = (*refused, *findings)
    finally:
        connect.close()
    if as_json:
        write_result(json.dumps(_as_object(found, findings, planned)))
    else:
        from penstock.cli.doctor_screen import render

        lines = [] if planned is None else planned[1]
        write_result(render(describe_facts(found), findings, goes=would_load(findings), plan=lines))
    if not would_load(findings):
        raise typer.Exit(WOULD_NOT_LOAD)


def _plan(
    connect: ConnectionFactory, sources: list[str], table: TableName
) -> tuple[tuple[LoadPlan, list[str]] | None, tuple[Finding, ...]]:
    """Return the plan of a load with its lines, or what it would be refused for."""
    from penstock.api import Loader

    job = LoadJob(targets=(TargetJob(sources=tuple(sources), table=table),))
    try:
        with Loader(connect) as loader:
            plan = loader.plan(job)
            return (plan, describe_plan(plan, loader.server)), ()
    except PenstockError as error:
        text = error.message if error.detail is None else f"{error.message}. {error.detail}"
        return None, (Finding(severity="refusal", subject="plan", text=text, remedy=error.hint),)


def _as_object(
    found: Inspection, findings: tuple[Finding, ...], planned: tuple[LoadPlan, list[str]] | None
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
        "plan": None if planned is None else plan_object(planned[0], found.server),
    }
