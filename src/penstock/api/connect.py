"""Which server is meant: the one that was named, the environment's, or the embedded one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.server.connection import ConnectionFactory, has_connection_settings

if TYPE_CHECKING:
    from pathlib import Path


def connect_to(
    to: str | None = None, *, role: str | None = None, pg_bin: Path | None = None, allows_standby: bool = False
) -> ConnectionFactory:
    """Return the factory for a target: `to` as libpq takes it, else PG* variables, else the embedded server.

    The embedded server is started where it is not running; `pg_bin` names another PostgreSQL's programs for it.
    `allows_standby`: a standby will do where there is no primary. Raises LabError.
    """
    if to is None and (pg_bin is not None or not has_connection_settings(os.environ)):
        from penstock.lab import default_server  # noqa: PLC0415 (only who needs a server pays for the lab)

        to = default_server(pg_bin).ensure_running()
    return ConnectionFactory(to or "", role=role, allows_standby=allows_standby)
