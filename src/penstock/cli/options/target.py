"""Opens the server or the ledger that a command's options name."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.options.declared import LOAD_OPTIONS, SERVER, flag
from penstock.cli.terminal.messages import show_warning
from penstock.cli.terminal.suggested import note_options
from penstock.model.load.job import Access, Housekeeping
from penstock.model.options import pick
from penstock.model.redaction import hide_secrets
from penstock.model.source.dialect import Notice

if TYPE_CHECKING:
    from penstock.api.ledger_view import LedgerView
    from penstock.server.connect.connection import ConnectionFactory


def open_target(options: Mapping[str, Any], *, allows_standby: bool = False) -> ConnectionFactory:
    """Return the factory for the server that the options name. Raises UsageError, LabError."""
    from penstock.api import connect_to

    access = pick(Access, options)
    warn_of_secrets(access.get("to"))
    suggest_options(Access(**access), Housekeeping(**pick(Housekeeping, options)))
    return connect_to(**access, allows_standby=allows_standby)


def open_ledger(options: Mapping[str, Any]) -> LedgerView:
    """Return a view of the ledger that the options name. Raises UsageError, LabError."""
    from penstock.api.ledger_view import LedgerView

    return LedgerView(open_target(options), ledger_schema=Housekeeping(**pick(Housekeeping, options)).ledger_schema)


def suggest_options(access: Access, house: Housekeeping) -> None:
    """Have the commands that messages suggest name the same server and ledger. A secret is not repeated."""
    options = []
    for name in SERVER:
        value = getattr(access, name)
        if value:
            word = "..." if hide_secrets(str(value)) != value else shlex.quote(str(value))
            options.append(flag(LOAD_OPTIONS[name]) if value is True else f"{flag(LOAD_OPTIONS[name])} {word}")
    of_ledger = ["--read-write"] if access.read_write else []
    if house.ledger_schema != Housekeeping().ledger_schema:
        of_ledger.append(f"--ledger-schema {shlex.quote(house.ledger_schema)}")
    note_options(of_server=" ".join(options), of_ledger=" ".join(of_ledger))


def warn_of_secrets(to: str | None, *, sources: Iterable[str] = ()) -> None:
    """Warn if the command line contains secrets, which every user of the machine can read. Raises UsageError."""
    if any(hide_secrets(source) != source for source in sources):
        show_warning(
            Notice(
                code="secret-visible",
                message="every user of this machine can read the signed URL",
                hint="Write it into a job file that only you can read: process lists show command lines.",
            )
        )
    if to is None:
        return
    from penstock.server.connect.conninfo import parse_conninfo

    if parse_conninfo(to).keys() & {"password", "sslpassword"}:
        show_warning(
            Notice(
                code="secret-visible",
                message="every user of this machine can read the password in --to",
                hint="Use ~/.pgpass or PGPASSWORD: process lists show command lines.",
            )
        )
