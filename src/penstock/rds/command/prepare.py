"""`penstock rds prepare-s3-import`: prepares a server of Amazon RDS for importing from S3, and undoes that."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api.connect import connect_to
from penstock.cli.options import SERVER, Json, Quiet, takes
from penstock.cli.output import Messages, write_result
from penstock.cli.target import warn_of_secrets
from penstock.core.connect.conninfo import describe_target, given_settings, parse_conninfo
from penstock.core.connect.route import parse_tunnel, resolve_tunnel
from penstock.core.words import line_up
from penstock.rds.command.show import Profile  # noqa: TC001 (typer reads annotations)
from penstock.rds.describe import find_full_host
from penstock.rds.s3_import.aws import RdsS3Import
from penstock.rds.s3_import.setup import S3ImportSetup
from penstock.rds.s3_import.values import parse_place

if TYPE_CHECKING:
    from penstock.rds.s3_import.values import Owner, S3ImportReport, S3Route


def open_s3_import(
    to: str | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
    profile: str | None = None,
    tunnel: str | None = None,
    role: str | None = None,
    iam_auth: bool = False,
) -> S3ImportSetup:
    """Return the setup of the server that `to` or the PG* variables name. The caller closes it.

    `profile` is that of AWS. Raises PenstockError.
    """
    host = find_full_host(to)
    connect = connect_to(to, tunnel=tunnel, role=role, iam_auth=iam_auth)
    given = given_settings(parse_conninfo(to or ""), os.environ)
    given.pop("dbname", None)
    if tunnel is not None:
        end = parse_tunnel(tunnel)
        given |= {"hostaddr": resolve_tunnel(end), "port": str(end.port)}
    aws = RdsS3Import(host, profile=profile)
    try:
        return S3ImportSetup(connect=connect, aws=aws, tell=tell, server=describe_target(given), profile=profile)
    except BaseException:
        aws.close()
        raise


def describe_commands(report: S3ImportReport) -> list[str]:
    """Return the commands of a plan, with other information as comments, so that a shell can run the text."""
    commands = list(report.commands) or ["# nothing is missing"]
    notes = [f"# {note}" for note in report.notes]
    routes = [] if report.route is None else [f"# route to S3: {line}" for line in _route_lines(report)]
    return [*commands, *notes, *routes]


def describe_prepared(report: S3ImportReport) -> list[str]:
    """Return the lines that say how a server may import."""
    owner = report.owner
    changed = "" if report.done else ": nothing was missing"
    head = f"{owner.kind} {owner.identifier} may import from {report.place}{changed}"
    rows = [("role", report.role_name), ("policy", report.policy_name)]
    rows += [("note", note) for note in report.notes]
    rows += [("route to S3", line) for line in _route_lines(report)]
    return [head, *line_up(rows, align="<<", indent="  ")]


def describe_undone(report: S3ImportReport) -> list[str]:
    """Return the lines that say what was removed."""
    owner = report.owner
    if not report.done:
        head = f"penstock made nothing for {owner.kind} {owner.identifier} and {report.place}"
    else:
        head = f"removed what penstock made for {owner.kind} {owner.identifier} and {report.place}"
    return [head, *(f"  {note}" for note in report.notes)]


def report_object(report: S3ImportReport) -> dict[str, object]:
    """Return a report as an object for JSON."""
    return {
        report.owner.kind: report.owner.identifier,
        "region": report.owner.region,
        **asdict(report.place),
        "role": report.owner.role_arn(report.role_name),
        "policy": report.owner.policy_arn(report.policy_name),
        "commands": report.commands,
        "done": report.done,
        "notes": report.notes,
        "route": report.route,
    }


def _route_lines(report: S3ImportReport) -> Iterator[str]:
    route = report.route
    if route is None:
        return
    if route.reason is not None:
        yield f"cannot tell: {route.reason}"
        return
    if route.ways:
        yield ", ".join(route.ways)
    if route.lacking:
        yield f"none from {', '.join(route.lacking)}: imports there get no answer; to create one:"
        yield _compose_endpoint(report.owner, route)


def _compose_endpoint(owner: Owner, route: S3Route) -> str:
    words = ["aws", "ec2", "create-vpc-endpoint", "--vpc-id", route.vpc]
    words += ["--service-name", f"com.amazonaws.{owner.region}.s3", "--route-table-ids", *route.tables]
    return shlex.join([*words, "--region", owner.region])


@takes(SERVER)
def prepare_s3_import(
    bucket: Annotated[str, typer.Option("--bucket", metavar="BUCKET", help="Let the server read this bucket.")],
    prefix: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Let it read only keys that begin so (default: all)."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the equivalent commands, and do nothing else.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what this command made for the same place.")] = False,
    profile: Profile = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Let an RDS instance or Aurora cluster import from S3 by aws_s3.table_import_from_s3.

    Creates what is missing, and nothing else: an IAM policy for the bucket and a role for the server alone, the role's
    feature s3Import, and extension aws_s3 in the database. Looks for a private route to S3. What it makes has tags;
    --undo removes that alone. If it was interrupted, run it again, or with --undo. docs/rds.md has the IAM policy.
    """
    place = parse_place(bucket, prefix)
    warn_of_secrets(options.get("to"))
    tell = Messages(is_quiet=quiet).note
    with closing(open_s3_import(tell=tell, profile=profile, **options)) as setup:
        if plan:
            report = setup.plan_undo(place) if undo else setup.plan(place)
        else:
            report = setup.undo(place) if undo else setup.prepare(place)
    if as_json:
        write_result(report_object(report))
    elif plan:
        write_result(describe_commands(report))
    elif not quiet:
        write_result(describe_undone(report) if undo else describe_prepared(report))
