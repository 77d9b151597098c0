"""`penstock rds show`: what AWS knows of an RDS instance or an Aurora cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.output import write_result
from penstock.cli.rds_view import describe_lines, description_object
from penstock.cli.target import warn_of_secrets

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CONNINFO",
        help="Server whose host is meant, as psql takes it; by default what the PG* variables say.",
    ),
]
Region = Annotated[
    str | None,
    typer.Option(
        "--region", metavar="REGION", help="AWS region; an endpoint has its own, otherwise the configured one counts."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Profile of the AWS configuration; by default AWS_PROFILE."),
]


def show(
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="ENDPOINT|IDENTIFIER",
            show_default=False,
            help="Endpoint (or a host name that DNS leads there), identifier or resource id of an instance or a "
            "cluster; by default the host of --to.",
        ),
    ] = None,
    to: To = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Show what AWS says of an instance or a cluster: hardware, storage, parameter groups, windows, what is pending.

    Nothing is changed, and the server itself is not asked. What may not be asked is named at the end, with AWS's
    reason; docs/rds.md has the IAM policy.

    Exit codes: 0 it is shown, 2 nothing is named, 10 AWS cannot be asked or does not know it.
    """
    from datetime import UTC, datetime

    from penstock.api.rds import describe_rds

    warn_of_secrets(to)
    found = describe_rds(wanted, now=datetime.now(UTC), to=to, region=region, profile=profile)
    write_result(description_object(found) if as_json else describe_lines(found))
