"""The server that a command is to work on, from its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.messages import Messages
from penstock.model.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server.connection import ConnectionFactory


def open_target(to: str | None, *, role: str | None, iam_auth: bool, tunnel: str | None) -> ConnectionFactory:
    """Return the factory for the server that the options name. Raises UsageError, LabError."""
    from penstock.api import connect_to

    warn_of_secrets(to, Messages())
    return connect_to(to, role=role, iam_auth=iam_auth, tunnel=tunnel)


def warn_of_secrets(to: str | None, messages: Messages, *, sources: Iterable[str] = ()) -> None:
    """Say where a command line shows secrets to every user of the machine. Raises UsageError."""
    if any(hide_secrets(source) != source for source in sources):
        messages.warning(
            "every user of this machine can read the signed URL",
            detail="Lists of processes show command lines.",
            hint="Write it into a job file that nobody else may read.",
        )
    if to is None:
        return
    from penstock.server.conninfo import parse_conninfo

    if parse_conninfo(to).keys() & {"password", "sslpassword"}:
        messages.warning(
            "every user of this machine can read the password in --to",
            detail="Lists of processes show command lines.",
            hint="Keep it in ~/.pgpass or in PGPASSWORD.",
        )
