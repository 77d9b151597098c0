"""`penstock temp place`, `check` and `remove`: create, check and undo a place for temporary work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import SERVER, Json, Quiet, takes
from penstock.cli.output import PROBLEMS, Messages, show_warning, write_result
from penstock.cli.target import open_target
from penstock.core.values.dialect import Notice
from penstock.core.values.options import split_names
from penstock.core.values.temp_place import parse_name, parse_scope
from penstock.temp.place.view import (
    check_object,
    describe_check,
    describe_placed,
    describe_plan,
    describe_removed,
    report_object,
)

if TYPE_CHECKING:
    from penstock.temp.place.place import PlaceKeeper

Dir = Annotated[str, typer.Argument(metavar="DIR", show_default=False, help="An empty directory of the server's.")]
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="Whose temporary work: server, database:NAME or role:NAME.")
]
Grant = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE[,ROLE]", help="Let only these roles use it (default: the role of --scope, or else every role)."
    ),
]
SameDevice = Annotated[bool, typer.Option("--same-device", help="Place it there though the data is on the same disk.")]
Plan = Annotated[bool, typer.Option("--plan", help="Print the statements, and do nothing else.")]
_WRITES = ("read_write", *SERVER)


@takes(_WRITES)
def place(
    directory: Dir,
    scope: ScopeOption = "server",
    grant: Grant = None,
    same_device: SameDevice = False,
    plan: Plan = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Have sorts, hashes and temporary tables go to a directory on another disk, and prove that they do.

    Creates a tablespace there, grants its use and sets temp_tablespaces, as a superuser. A sort that spills and a
    temporary table of a new session are then looked for in it; if they are not found, everything is undone. If it was
    interrupted, run it again to complete it; penstock temp remove and penstock repair undo it.
    """
    from penstock.temp.place.place import PlaceRequest

    request = PlaceRequest(
        directory=directory,
        scope=parse_scope(scope),
        granted=() if grant is None else tuple(map(parse_name, split_names(grant))),
        allows_same_device=same_device,
    )
    with closing(_open(options, is_quiet=quiet)) as keeper:
        report = keeper.plan(request) if plan else keeper.place(request)
    if as_json:
        write_result(report_object(report))
    elif plan or not quiet:
        write_result(describe_plan(report) if plan else describe_placed(report))


@takes(SERVER)
def check(as_json: Json = False, **options: Any) -> None:
    """Check the place for temporary work, and create its directory again if a reboot has removed it.

    Looks for a missing directory, for tables and indexes there that would be lost with the disk, for roles that may not
    use it, for a changed setting, and at the space that is free. The directory is created if the server runs on this
    machine and this process may; otherwise the command is shown.

    Exit codes: 0 no problem was found, 5 problems were found; others as for every command.
    """
    with closing(_open(options)) as keeper:
        report = keeper.check()
    if report is None:
        write_result({"placement": None} if as_json else "no temporary work is placed")
        return
    write_result(check_object(report) if as_json else describe_check(report))
    if report.problems:
        raise typer.Exit(PROBLEMS)


@takes(_WRITES)
def remove(quiet: Quiet = False, as_json: Json = False, **options: Any) -> None:
    """Undo the place for temporary work: restore temp_tablespaces, and drop the tablespace.

    What somebody else has changed since stays, and is shown. Refused while tables or indexes are there, which are
    listed; so are temporary files, once the setting is restored: run it again when they are gone.
    """
    with closing(_open(options, is_quiet=quiet)) as keeper:
        report = keeper.remove()
    for text in report.left:
        show_warning(Notice(code="settings", message=f"not restored: {text}"))
    if as_json or not quiet:
        write_result(report_object(report) if as_json else describe_removed(report))


def _open(options: Mapping[str, Any], *, is_quiet: bool = False) -> PlaceKeeper:
    from penstock.temp.place.place import PlaceKeeper

    return PlaceKeeper(open_target(options, allows_standby=True), tell=Messages(is_quiet=is_quiet).note)
