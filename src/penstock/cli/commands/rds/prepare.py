"""`penstock rds prepare-s3-import`: prepares a server of Amazon RDS for importing from S3, and undoes that."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from penstock.cli.commands.rds.show import Profile  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.declared import SERVER, takes
from penstock.cli.options.shared import Json, Quiet  # noqa: TC001 (typer reads annotations)
from penstock.cli.options.target import warn_of_secrets
from penstock.cli.terminal.messages import Messages
from penstock.cli.terminal.output import write_result
from penstock.cli.views.s3_import_view import describe_commands, describe_prepared, describe_undone, report_object
from penstock.model.s3_import import parse_place


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
    from penstock.api.rds.s3_import import open_s3_import

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
