"""`penstock settings`: shows and changes a server's settings, by profiles and under leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, Json, open_target, takes
from penstock.cli.output import Messages, show_warning, shown_warnings, write_result
from penstock.core.values.notice import Notice
from penstock.core.values.options import parse_duration
from penstock.settings.decide import (
    BULK_LOAD,
    PROFILES,
    describe_decision,
    describe_skips,
    find_profile,
    make_profile,
    parse_assignments,
    parse_value,
)
from penstock.settings.refusals import REFUSALS
from penstock.settings.view import (
    describe_leases,
    describe_overview,
    describe_profiles,
    describe_refusals,
    describe_report,
    overview_object,
)

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import LeaseReport, Profile
    from penstock.settings.backend import ServerSettings

GroupName = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="The name of the parameter group to make.")
]
Wishes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROFILE|NAME=VALUE...",
        show_default=False,
        help="A profile (bulk-load where nothing is given), or settings such as max_wal_size=8GB.",
    ),
]
ExpectWal = Annotated[
    str | None,
    typer.Option("--expect-wal", metavar="SIZE", help="How much WAL is going to be written, as in 20GB."),
]
Lasts = Annotated[
    str,
    typer.Option(
        "--for", metavar="TIME", help="How long the lease stands, as in 6h; then the next penstock that looks ends it."
    ),
]
LeaseId = Annotated[
    str | None,
    typer.Argument(metavar="ID", show_default=False, help="The lease's id, or its beginning. By default all."),
]
Forget = Annotated[
    bool,
    typer.Option(
        "--forget",
        help="Remove the record of leases that were made on another server, before a failover; nothing of them is "
        "restored, except in a parameter group of Amazon RDS, even if a load on another instance has the lease.",
    ),
]

app = typer.Typer(
    help="Show a server's settings, change them temporarily, and restore them.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the profiles of settings, and what penstock never sets. Show the reason, source and cost of each setting."""
    found = list(PROFILES.values())
    as_text = [*describe_profiles(found), *describe_refusals(REFUSALS)]
    write_result({"never": REFUSALS, "profiles": found} if as_json else as_text)


@app.command()
@takes(SERVER)
def show(as_json: Json = False, **options: Any) -> None:
    """Show the current values of the settings in profiles. Show their sources, and the leases on them."""
    with _open(options) as server:
        overview = server.show()
    write_result(overview_object(overview) if as_json else describe_overview(overview))


@app.command()
@takes(("shared_group", *SERVER))
def diff(wishes: Wishes = None, expect_wal: ExpectWal = None, as_json: Json = False, **options: Any) -> None:
    """Show what apply would change, and what it would not and why. Changes nothing."""
    profile, expected = _parse_wishes(wishes), _parse_size(expect_wal)
    with _open(options) as server:
        decision = server.compare(profile, expected_wal_bytes=expected)
    write_result(decision if as_json else describe_decision(decision))


@app.command("apply")
@takes(("shared_group", *SERVER))
def apply_settings(
    wishes: Wishes = None, lasts: Lasts = "12h", expect_wal: ExpectWal = None, as_json: Json = False, **options: Any
) -> None:
    """Change settings until a lease is restored or expires.

    A load does this with --settings; this command is for other work.
    """
    profile, expected = _parse_wishes(wishes), _parse_size(expect_wal)
    lasts_s = parse_duration(lasts, option="--for")
    messages = Messages()
    with _open(options) as server:
        report, decision = server.apply(profile, lasts_s=lasts_s, expected_wal_bytes=expected)
    _warn(report)
    for note in [*describe_skips(decision), *decision.notes]:
        messages.note(note)
    if report.lease_ids:
        messages.note(f"to restore them: penstock settings restore {report.lease_ids[0][:8]}")
    as_text = describe_report(report) if report.lease_ids else ["nothing to change"]
    write_result(_to_object(report) if as_json else as_text)


@app.command()
@takes(SERVER)
def restore(lease_id: LeaseId = None, forget: Forget = False, as_json: Json = False, **options: Any) -> None:
    """Restore what `settings apply` or a killed load has changed."""
    with _open(options) as server:
        report = server.restore(beginning=lease_id, forgets=forget)
    _warn(report)
    write_result(_to_object(report) if as_json else describe_report(report))


@app.command()
@takes(SERVER)
def leases(as_json: Json = False, **options: Any) -> None:
    """List the leases on a server's settings. Show who took each, why, until when, and whether a session holds it."""
    with _open(options) as server:
        overview = server.leases()
    if as_json:
        write_result({"leases": overview_object(overview)["leases"]})
    else:
        write_result(describe_leases(overview))


@app.command("prepare-rds")
@takes(SERVER)
def prepare_rds(name: GroupName, **options: Any) -> None:
    """Create a parameter group for a server of Amazon RDS. The default group of AWS cannot be changed.

    The new group is of the same family as the present one, has no parameter set, and is attached to nothing. To attach
    it, the server must be rebooted. So the command that attaches it is printed and not run.
    """
    from penstock.settings.backend import prepare_group

    with closing(open_target(options)) as connect:
        attached, command = prepare_group(connect, name)
    messages = Messages()
    messages.note(f"created parameter group {name}; {attached.identifier} still has {attached.name}")
    if not attached.is_default:
        text = f"{attached.name} is already a group of your own: attaching {name} loses the settings in it"
        show_warning(Notice(code="settings", message=text))
    messages.note("run this, then reboot without failover: until then none of its values applies")
    write_result(command)


def _open(options: Mapping[str, Any]) -> ServerSettings:
    from penstock.settings.backend import ServerSettings

    return ServerSettings(open_target(options), may_share_group=options.get("shared_group", False))


def _parse_wishes(wishes: Sequence[str] | None) -> Profile:
    """Return the named profile, or a profile of the given settings, by default bulk-load. Raises UsageError."""
    if not wishes:
        return BULK_LOAD
    if len(wishes) == 1 and "=" not in wishes[0]:
        return find_profile(wishes[0])
    return make_profile(parse_assignments(wishes))


def _parse_size(text: str | None) -> int | None:
    return None if text is None else round(parse_value("max_wal_size", text) * 1024 * 1024)


def _to_object(report: LeaseReport) -> dict[str, object]:
    return asdict(report) | {"warnings": shown_warnings()}


def _warn(report: LeaseReport) -> None:
    for warning in report.warnings:
        show_warning(Notice(code="settings", message=warning))
