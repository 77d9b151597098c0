"""`penstock rds show`: shows AWS's description of an RDS instance or an Aurora cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.output import write_result
from penstock.cli.target import warn_of_secrets
from penstock.rds.view import describe_lines, description_object

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="CONNINFO",
        help="Use the host of this server, given as for psql (default: the PG* variables).",
    ),
]
Region = Annotated[
    str | None,
    typer.Option("--region", metavar="REGION", help="Use this AWS region (default: the endpoint's or configured one)."),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Use this profile of the AWS configuration (default: AWS_PROFILE)."),
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
    as_json: Json = False,
) -> None:
    """Show what AWS reports of an instance or a cluster: hardware, storage, parameter groups, windows, pending changes.

    Changes nothing, and does not connect to the server. Calls that are denied are shown at the end, with AWS's
    reason; docs/rds.md has the IAM policy.

    Exit codes: 0 it is shown, 2 no instance was given, 10 AWS cannot be reached or does not know it.
    """
    from datetime import UTC, datetime

    from penstock.rds.describe import describe_rds

    warn_of_secrets(to)
    found = describe_rds(wanted, now=datetime.now(UTC), to=to, region=region, profile=profile)
    write_result(description_object(found) if as_json else describe_lines(found))
