"""`penstock storage`: the limits of a server's storage, a workload's use of them, and storage that would carry it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Profile, Region, To, warn_of_secrets
from penstock.cli.output import write_result
from penstock.core.errors import UsageError
from penstock.storage.view import describe_plan, describe_report, report_object

if TYPE_CHECKING:
    from penstock.storage.report import StorageReport

app = typer.Typer(
    help="Show the limits of a server's storage, and what would carry it. Show what a workload used of them.",
    no_args_is_help=True,
    add_completion=False,
)

Wanted = Annotated[
    str | None,
    typer.Argument(
        metavar="ENDPOINT|IDENTIFIER",
        show_default=False,
        help="Endpoint, identifier or resource id of an RDS instance; by default the host of --to.",
    ),
]
Recorded = Annotated[
    Path | None,
    typer.Option(
        "--recording",
        metavar="FILE",
        help="Use the workload of this recording (default: with --volume the newest recording of your loads, on RDS "
        "the last hour).",
    ),
]
VolumeName = Annotated[
    str | None,
    typer.Option(
        "--volume",
        metavar="VOLUME",
        help="The storage, if it is not that of RDS: gp2:SIZE[:spent], gp3:SIZE:IOPS:MiBps, io1:SIZE:IOPS or "
        "io2:SIZE:IOPS, such as gp2:250GiB:spent for an empty burst bucket.",
    ),
]


@app.command()
def show(
    wanted: Wanted = None,
    to: To = None,
    recording: Recorded = None,
    volume: VolumeName = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the limits of an RDS instance's storage, or of a volume's. Show what a workload used of them.

    Changes nothing, and does not connect to the server. The use of an RDS instance is that of CloudWatch's metrics.

    Exit codes: 0 shown, 2 the storage is not known, 4 the recording does not show its use, 10 AWS does not answer.
    """
    report = make_report(wanted, to, recording, volume, region, profile, needs_use=False)
    write_result(report_object(report) if as_json else describe_report(report))


@app.command()
def plan(
    wanted: Wanted = None,
    to: To = None,
    recording: Recorded = None,
    volume: VolumeName = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show which storage would carry a workload. List the smallest change first, each with how the workload would run.

    For an RDS instance the commands are printed, and never run. Prices are in multiples of the present storage's.

    Exit codes: 0 planned, 2 the storage is not known, 4 the recording does not show its use, 10 AWS does not answer.
    """
    report = make_report(wanted, to, recording, volume, region, profile, needs_use=True)
    write_result(report_object(report) if as_json else describe_plan(report))


def make_report(
    wanted: str | None,
    to: str | None,
    recording: Path | None,
    volume: str | None,
    region: str | None,
    profile: str | None,
    *,
    needs_use: bool,
) -> StorageReport:
    """Return the report that the options ask for. Raises UsageError, SourceError, AwsError."""
    from datetime import UTC, datetime

    from penstock.rds.describe import describe_rds
    from penstock.storage.report import report_instance, report_volume
    from penstock.watch.watching import find_rds_host

    warn_of_secrets(to)
    if volume is not None:
        if wanted is not None or to is not None:
            raise UsageError("--volume cannot be used with an RDS instance", hint="Use one of them.")
        return report_volume(volume, recording, needs_use=needs_use)
    if wanted is None and find_rds_host(to) is None:
        raise UsageError(
            "the storage of the server is not known",
            hint="Name an RDS instance, or the volume, such as --volume gp3:400GiB:12000:500.",
        )
    now = datetime.now(UTC)
    described = describe_rds(wanted, now=now, to=to, region=region, profile=profile)
    return report_instance(described, recording, needs_use=needs_use, now=now, profile=profile)
