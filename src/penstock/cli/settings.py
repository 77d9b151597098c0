"""`penstock settings`: a server's settings, profiles of them, and the leases under which they are changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli import options as given  # noqa: TC001 (typer reads annotations)
from penstock.cli import options_settings as wanted  # noqa: TC001 (typer reads annotations)
from penstock.cli.loads import Json  # noqa: TC001 (typer reads annotations)
from penstock.cli.messages import Messages, show_warning
from penstock.cli.output import write_result
from penstock.cli.parsing import parse_duration
from penstock.cli.settings_view import (
    decision_object,
    describe_decision,
    describe_leases,
    describe_overview,
    describe_profiles,
    describe_refusals,
    describe_report,
    describe_skips,
    overview_object,
    profiles_object,
    report_object,
)
from penstock.cli.target import open_target
from penstock.model.dialect import Notice
from penstock.model.refusals import REFUSALS
from penstock.settings.profiles import BULK_LOAD, PROFILES, find_profile, make_profile
from penstock.settings.values import parse_assignments, parse_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.api.settings import ServerSettings
    from penstock.model.settings import LeaseReport, Profile

app = typer.Typer(
    help="Show a server's settings, change them temporarily, and restore them.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the profiles: their settings with reasons, sources and costs, and what penstock never sets."""
    found = list(PROFILES.values())
    as_text = [*describe_profiles(found), *describe_refusals(REFUSALS)]
    write_result(profiles_object(found, REFUSALS) if as_json else as_text)


@app.command()
def show(
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    as_json: Json = False,
) -> None:
    """Show the current values of the settings in profiles, their sources, and the leases on them."""
    with _open(to, role=role, iam_auth=iam_auth, tunnel=tunnel) as server:
        overview = server.show()
    write_result(overview_object(overview) if as_json else describe_overview(overview))


@app.command()
def diff(
    wishes: wanted.Wishes = None,
    expect_wal: wanted.ExpectWal = None,
    shared_group: wanted.SharedGroup = False,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    as_json: Json = False,
) -> None:
    """Show what apply would change, and what it would not and why. Changes nothing."""
    profile, expected = _parse_wishes(wishes), _parse_size(expect_wal)
    with _open(to, role=role, iam_auth=iam_auth, tunnel=tunnel, may_share_group=shared_group) as server:
        decision = server.compare(profile, expected_wal_bytes=expected)
    write_result(decision_object(decision) if as_json else describe_decision(decision))


@app.command("apply")
def apply_settings(
    wishes: wanted.Wishes = None,
    lasts: wanted.Lasts = "12h",
    expect_wal: wanted.ExpectWal = None,
    shared_group: wanted.SharedGroup = False,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    as_json: Json = False,
) -> None:
    """Change settings temporarily, under a lease that lasts until it is restored or expires.

    A load does this with --settings; this command is for other work.
    """
    profile, expected = _parse_wishes(wishes), _parse_size(expect_wal)
    lasts_s = parse_duration(lasts)
    messages = Messages()
    with _open(to, role=role, iam_auth=iam_auth, tunnel=tunnel, may_share_group=shared_group) as server:
        report, decision = server.apply(profile, lasts_s=lasts_s, expected_wal_bytes=expected)
    _warn(report)
    for note in [*describe_skips(decision), *decision.notes]:
        messages.note(note)
    if report.lease_ids:
        messages.note(f"to restore them: penstock settings restore {report.lease_ids[0][:8]}")
    as_text = describe_report(report) if report.lease_ids else ["nothing to change"]
    write_result(report_object(report) if as_json else as_text)


@app.command()
def restore(
    lease_id: wanted.LeaseId = None,
    forget: wanted.Forget = False,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    as_json: Json = False,
) -> None:
    """Restore the settings that apply or killed loads have changed; running loads keep theirs."""
    with _open(to, role=role, iam_auth=iam_auth, tunnel=tunnel) as server:
        report = server.restore(beginning=lease_id, forgets=forget)
    _warn(report)
    write_result(report_object(report) if as_json else describe_report(report))


@app.command()
def leases(
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
    as_json: Json = False,
) -> None:
    """List the leases on a server's settings: who, why, until when, and whether a session holds them."""
    with _open(to, role=role, iam_auth=iam_auth, tunnel=tunnel) as server:
        overview = server.leases()
    if as_json:
        write_result({"leases": overview_object(overview)["leases"]})
    else:
        write_result(describe_leases(overview))


@app.command("prepare-rds")
def prepare_rds(
    name: wanted.GroupName,
    to: given.To = None,
    role: given.Role = None,
    iam_auth: given.IamAuth = False,
    tunnel: given.Tunnel = None,
) -> None:
    """Create a parameter group for a server of Amazon RDS that has a default group of AWS, which cannot be changed.

    It is of the same family, with nothing set in it, and attached to nothing. Attaching it needs a reboot, so that the
    command for it is printed and not run.
    """
    from penstock.api.settings import prepare_group

    connect = open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel)
    try:
        attached, command = prepare_group(connect, name)
    finally:
        connect.close()
    messages = Messages()
    messages.note(f"created parameter group {name}; {attached.identifier} still has {attached.name}")
    if not attached.is_default:
        text = f"{attached.name} is already a group of your own: attaching {name} loses the settings in it"
        show_warning(Notice(code="settings", message=text))
    messages.note("run this, then reboot without failover: until then none of its values applies")
    write_result(command)


def _open(
    to: str | None, *, role: str | None, iam_auth: bool, tunnel: str | None, may_share_group: bool = False
) -> ServerSettings:
    from penstock.api.settings import ServerSettings

    connect = open_target(to, role=role, iam_auth=iam_auth, tunnel=tunnel)
    return ServerSettings(connect, may_share_group=may_share_group)


def _parse_wishes(wishes: Sequence[str] | None) -> Profile:
    """Return the profile that is named, bulk-load by default, or one of settings that are given. Raises UsageError."""
    if not wishes:
        return BULK_LOAD
    if len(wishes) == 1 and "=" not in wishes[0]:
        return find_profile(wishes[0])
    return make_profile(parse_assignments(wishes))


def _parse_size(text: str | None) -> int | None:
    return None if text is None else round(parse_value("max_wal_size", text) * 1024 * 1024)


def _warn(report: LeaseReport) -> None:
    for warning in report.warnings:
        show_warning(Notice(code="settings", message=warning))
