"""Opens the server or the ledger that a command's options name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.cli.output import show_warning
from penstock.cli.typeable import remember_target
from penstock.core.values.dialect import Notice
from penstock.core.values.job import Access, Housekeeping
from penstock.core.values.options import pick
from penstock.core.words import hide_secrets

if TYPE_CHECKING:
    from penstock.api.ledger_view import LedgerView
    from penstock.core.connect.connection import ConnectionFactory


def open_target(options: Mapping[str, Any], *, allows_standby: bool = False) -> ConnectionFactory:
    """Return the factory for the server that the options name. Raises UsageError, LabError."""
    from penstock.api.connect import connect_to

    remember_target(options)
    warn_of_secrets(options.get("to"))
    return connect_to(**pick(Access, options), allows_standby=allows_standby)


def open_ledger(options: Mapping[str, Any]) -> LedgerView:
    """Return a view of the ledger that the options name. Raises UsageError, LabError."""
    from penstock.api.ledger_view import LedgerView

    return LedgerView(open_target(options), ledger_schema=Housekeeping(**pick(Housekeeping, options)).ledger_schema)


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
    from penstock.core.connect.conninfo import parse_conninfo

    if parse_conninfo(to).keys() & {"password", "sslpassword"}:
        show_warning(
            Notice(
                code="secret-visible",
                message="every user of this machine can read the password in --to",
                hint="Use ~/.pgpass or PGPASSWORD: process lists show command lines.",
            )
        )
