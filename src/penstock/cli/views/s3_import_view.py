"""Describes how a server is prepared for importing from S3, as text and as JSON. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.terminal.columns import line_up

if TYPE_CHECKING:
    from penstock.model.s3_import import Owner, S3ImportReport, S3Route


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
